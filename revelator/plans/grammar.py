"""Grammars: the files that both parser and decoder read, what the parsers share, and the constraint of a decoder."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from revelator.plans.faults import fault

BREAKS = re.compile("[\x7f-\x9f\u2028\u2029]")  # what JSON leaves as it is though it may break a line
CONTROLS = r"\x00-\x1f\x7f-\x9f\u2028\u2029"  # inside a character class: what ends a line or cannot be seen


_CLASS = re.compile(r"/(\[[^/]*\])/")
_ESCAPED = re.compile(r"\\u\{(\w+)\}")  # of `character_class`


@dataclass(frozen=True)
class Grammar:
    """The constraint of a decoder.

    `rules` are names and what they stand for, the first an output after the one space that it begins with. They are in
    llguidance's dialect of Lark: a name in capitals is a text that is read as a whole, a class of characters stands
    between slashes, and nothing else does. Texts repeat one class, or characters written out, not names: then a mask
    takes xgrammar 4 µs, else up to 2 ms.
    """

    rules: tuple[tuple[str, str], ...]

    @cached_property
    def text(self) -> str:
        """The grammar for llguidance, which holds our own decoder."""
        return "\n".join(f"{name}: {body}" for name, body in [("start", f'" " {self.rules[0][0]}'), *self.rules]) + "\n"

    @cached_property
    def ebnf(self) -> str:
        """The same in the dialect of xgrammar, which holds vLLM; its rule `output` begins without the space."""
        text = "\n".join(f"{name} ::= {body}" for name, body in [("output", self.rules[0][0]), *self.rules])
        return _ESCAPED.sub(_escape_character, _CLASS.sub(r"\1", text))


def _escape_character(escape: re.Match[str]) -> str:
    """Writes a character of a class as xgrammar reads it; letters as they are, for each request carries the grammar."""
    character = chr(int(escape[1], 16))
    return character if character.isalnum() else f"\\U{ord(character):08x}"


@cache
def read_grammar_file(file: str) -> str:
    """Reads a grammar file of this package: `bnf.lark`, `logic.lark` or `art.schema.json`."""
    return files("revelator.plans").joinpath(file).read_text(encoding="utf-8")


def read_string(text: str, start: int, end: int, what: str) -> str:
    """Reads the JSON string `text[start:end]`. Raises ExpressionError that names `what` it is."""
    try:
        return json.loads(text[start:end], strict=False)
    except json.JSONDecodeError as error:
        at = min(start + error.pos, end - 1)
        hint = rf"{what} is a JSON string: write a backslash as \\\\, a quote as \", a line break as \n"
        raise fault(text, "bad-escape", "this escape has no meaning", at, at + 1, hint) from None


def read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The JSON object of these pairs. Raises ValueError for a name that stands twice or has no value."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} stands twice in one object")
    if None in value.values():
        raise ValueError(f"{next(name for name in value if value[name] is None)!r} is null")
    return value


def write_string(text: str) -> str:
    """Writes a JSON string on one line."""
    return BREAKS.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(text, ensure_ascii=False))


@cache
def character_class(kind: str) -> str:
    """Lists the characters of `kind` in all of Unicode, as the inside of a character class."""
    runs = re.finditer(f"{kind}+", "".join(map(chr, range(sys.maxunicode + 1))))
    return "".join(rf"\u{{{ord(run[0][0]):x}}}-\u{{{ord(run[0][-1]):x}}}" for run in runs)
