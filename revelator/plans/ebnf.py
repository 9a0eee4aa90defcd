"""The grammars of the three languages in the dialect of xgrammar, which holds what vLLM writes.

They allow what `decoding` and `json_decoding` allow, and names of placeholders with a space in them outside quotes,
too: xgrammar reads characters and no lexemes. Its dialect has no intersection of terminals: a text that must hold a
placeholder is written out as what stands before the first one, that one, and what follows. vLLM closes nothing: an
output that reaches its budget is cut off, and whoever asked takes the fallback of the language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from revelator.plans.decoding import TEXTS, RulesByKind
from revelator.plans.grammar import CONTROLS, character_class, read_grammar_file
from revelator.plans.json_decoding import make_art_schema

Schema = dict[str, Any]
LETTER_OR_DIGIT = r"[^\W_]"
_ESCAPED = re.compile(r"\\u\{(\w+)\}")  # of `character_class`, in the dialect of llguidance


@cache
def make_plan_ebnf() -> str:
    """The rule `output` is a plan."""
    rules = [(name, " | ".join(ways)) for name, ways in RulesByKind().rules("start", "unfed")]
    rules = [(name, ways.replace("/", "")) for name, ways in rules]  # which stand about a class of characters
    word, space = character_class(r"\w"), character_class(r"\s")
    parts = {
        "letter": f"[{word}]",
        "name": r'"{" letter ((letter | [ .\x27\-]){0,62} letter)? "}"',
        "first": rf'[^{space}(){{}}"+*×{CONTROLS}]',
        "rest": rf"[^{space}(){{}}{CONTROLS}]",
        "inside": rf'[^"\\{{}}{CONTROLS}]',
        "escaped": r'inside | "\\" ["\\bfnrt]',
    }
    quote = r'"\""'
    texts = {
        "WORD": _write_texts("rest", "name", "first"),
        "TAIL": _write_texts("rest", "name", "rest"),
        "QUOTATION": {kind: f"{quote} ({text}) {quote}" for kind, text in _write_texts("inside", "name").items()},
        "QUOTED": {kind: f"{quote} ({text}) {quote}" for kind, text in _write_texts("escaped", "name").items()},
    }
    for kind, text in _write_texts("rest", "name", "[+*×]", needs_second=True).items():
        texts["WORD"][kind] += f" | {text}"
    named = [(f"{text}_{kind}", texts[text][kind]) for text in TEXTS for kind in ("NONE", "ANY", "SOME")]
    return _join_rules([("output", "start_unfed"), *rules, *named, *parts.items()])


def _write_texts(character: str, name: str, first: str = "", needs_second: bool = False) -> dict[str, str]:
    """Returns three rule bodies: NONE (no placeholder), ANY, SOME (at least one).

    `character`, `name` (of a placeholder) and `first` (the first character) are rules. With `needs_second` the text
    does not begin with a placeholder and has a second character or a placeholder."""
    either = f"({character} | {name})"
    if not first:
        return {"NONE": f"{character}*", "ANY": f"{either}*", "SOME": f"{character}* {name} {either}*"}
    some = f"{first} {character}* {name} {either}*"
    if needs_second:
        return {"NONE": f"{first} {character}+", "ANY": f"{first} {either}+", "SOME": some}
    return {
        "NONE": f"{first} {character}*",
        "ANY": f"({first} | {name}) {either}*",
        "SOME": f"{name} {either}* | {some}",
    }


@cache
def make_logic_ebnf() -> str:
    """The rule `output` is a logical query. Terms may begin with a space, as they are learnt."""
    lines = [line.partition("->")[0] for line in read_grammar_file("logic.lark").splitlines()]
    rules = re.findall(r"^(\w+):(.*(?:\n +\|.*)*)", "\n".join(lines), re.MULTILINE)
    kept = [(name, " ".join(ways.split("\n"))) for name, ways in rules if name != "TERM"]
    space = character_class(r"\s")
    term = {
        "TERM": r'"\"" " "? visible* letter character* "\""',
        "visible": rf'[^{space}"\\{CONTROLS}]',
        "letter": f"[{character_class(LETTER_OR_DIGIT)}]",
        "character": rf'[^"\\{CONTROLS}] | "\\" ["\\]',
    }
    return _join_rules([("output", "start"), *kept, *term.items()])


@cache
def make_art_ebnf() -> str:
    """The rule `output` is a tree in JSON on one line."""
    return make_json_ebnf(make_art_schema())


def make_json_ebnf(schema: Schema) -> str:
    """The rule `output` is a JSON value of the schema, on one line, keys in the schema's order.

    Of a schema it reads `$ref`, `anyOf`, `const`, objects whose first key is required, arrays with `prefixItems`,
    booleans, and strings: with something in them to see, unless `x-ebnf` spells what they are. An array has one item or
    more, whatever `minItems` says. Raises KeyError for another type.
    """
    definitions = schema.get("$defs", {})
    rules = [("output", _write_value(schema)), *((name, _write_value(part)) for name, part in definitions.items())]
    space = character_class(r"\s")
    seen = {"visible": rf'[^{space}"\\{CONTROLS}] | escape', "character": rf'[^"\\{CONTROLS}] | escape'}
    return _join_rules([*rules, *seen.items(), ("escape", r'"\\" ["\\]')])


def _write_value(schema: Schema) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "const" in schema:
        return _quote(json.dumps(schema["const"]))
    if "anyOf" in schema:
        return " | ".join(map(_write_value, schema["anyOf"]))
    write: dict[str, Callable[[Schema], str]] = {
        "object": _write_object,
        "array": _write_array,
        "string": lambda text: text.get("x-ebnf", r'"\"" character* visible character* "\""'),
        "boolean": lambda _: '("true" | "false")',
    }
    return write[schema["type"]](schema)


def _write_object(schema: Schema) -> str:
    named = {key: _quote(f"{json.dumps(key)}: ") for key in schema["properties"]}
    pairs = [(key, f"{named[key]} {_write_value(part)}") for key, part in schema["properties"].items()]
    (_, first), *later = pairs
    joined = [f'", " {pair}' if key in schema["required"] else f'(", " {pair})?' for key, pair in later]
    return f'"{{" {first} {" ".join(joined)} "}}"'


def _write_array(schema: Schema) -> str:
    """One item or more: `prefixItems` first, each but the first only after the one before."""
    items = f'(", " ({_write_value(schema["items"])}))*'
    first, *later = [f"({_write_value(item)})" for item in schema.get("prefixItems", [schema["items"]])]
    for item in reversed(later):
        items = f'(", " {item} {items})?'
    return f'"[" {first} {items} "]"'


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _join_rules(rules: list[tuple[str, str]]) -> str:
    return "\n".join(f"{name} ::= {_ESCAPED.sub(_escape_character, ways)}" for name, ways in rules)


def _escape_character(escape: re.Match[str]) -> str:
    """Writes a character of a class as xgrammar reads it; letters as they are, for each request carries the grammar."""
    character = chr(int(escape[1], 16))
    return character if character.isalnum() else f"\\U{ord(character):08x}"
