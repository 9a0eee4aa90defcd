"""Which of the named things is of a kind: common English words by category, from the data file beside it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import yaml

from serving.models.direct.comparison import options

_KIND = re.compile(
    r"(?:which|what)\b.*?\b(?:is|are|names|counts as|would be)(?: (?:one )?of)? (?:an? |the )?(?:name of )?"
    r"(?:(?:kind|type|sort|piece) of )?(?:an? )?(?P<kind>[a-z][a-z -]*?)(?: here)?\s*[,:]",
    re.IGNORECASE,
)


def category(text: str) -> tuple[str, str] | None:
    """The one option that belongs to the category asked for; None when none or several are known to.

    A word of several categories (`silver`) gives way to one of this category alone (`blue`).
    """
    match, split = _KIND.match(text), options(text)
    if match is None or split is None:
        return None
    members = _members(match["kind"].lower())
    chosen = [o for o in split[1] if _plain(o) in members]
    if len(chosen) > 1:
        chosen = [o for o in chosen if len(_categories(_plain(o))) == 1]
    return (chosen[0], "category") if len(chosen) == 1 else None


def _plain(option: str) -> str:
    return re.sub(r"^(?:an?|the) ", "", option.lower())


@cache
def _categories(word: str) -> frozenset[str]:
    return frozenset(name for name in _data()["words"] if word in _listed(name))


def _listed(name: str) -> frozenset[str]:
    return frozenset(word.strip() for word in _data()["words"].get(name, "").split(",") if word.strip())


@cache
def _members(kind: str) -> frozenset[str]:
    data = _data()
    name = data["called"].get(kind, kind)
    parts = [part for part, whole in data["within"].items() if whole == name]
    return _listed(name).union(*(_members(part) for part in parts))


@cache
def _data() -> dict[str, dict[str, str]]:
    return yaml.safe_load(
        files("serving.models.direct").joinpath("categories.yaml").read_text(encoding="utf-8").lower()
    )
