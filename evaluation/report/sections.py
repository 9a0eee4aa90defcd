"""Sections of a page of results that commands of their own write: each keeps what the others wrote.

A section stands between two marks, `<!-- NAME -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import re
from pathlib import Path

from revelator.errors import ConfigError
from revelator.files import write_bytes

SECTION = re.compile(r"<!-- (?P<name>[\w-]+) -->\n(?P<text>.*?)<!-- end of (?P=name) -->", re.DOTALL)


def sections(text: str) -> dict[str, str]:
    """What stands between the marks of each name."""
    return {match["name"]: match["text"] for match in SECTION.finditer(text)}


def text_with(page: Path, name: str) -> str:
    """The text of a page. Raises ConfigError where it has no marks of that name."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    if name not in sections(text):
        hint = f"write there <!-- {name} --> and <!-- end of {name} -->, a line each"
        raise ConfigError(f"the page has no place for {name!r}", where=str(page), hint=hint)
    return text


def put(page: Path, name: str, section: str) -> None:
    """Writes `section` between the marks of a page. Raises ConfigError for a page that has none of that name."""
    write_bytes(page, _with(text_with(page, name), {name: f"{section.strip()}\n"}).encode())


def _with(text: str, written: dict[str, str]) -> str:
    def whole(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- {name} -->\n{written.get(name, match['text'])}<!-- end of {name} -->"

    return SECTION.sub(whole, text)
