"""What a decoder of JSON is held to: the grammar of a schema, and that of trees, derived from `art.schema.json`.

A schema is handed to llguidance's `%json`, in which keys follow the schema's order. A decoder that must end can stand
anywhere in an object, before a key, in the middle of one, in a text: each end of the shortest text of an object closes
it from one of these places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from revelator.plans.art import schema
from revelator.plans.grammar import CONTROLS, Grammar, character_class

Schema = dict[str, Any]


def make_json_grammar(schema: Schema) -> Grammar:
    """The grammar of JSON values of a schema, after the one space that a completion begins with.

    A text that has to fit a `pattern` is closed by the first of its `examples`, else by `x`.
    """
    compact = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
    text = f'start: " " value\nvalue: %json {json.dumps(schema | {"x-guidance": compact})}\n'
    ends = dict.fromkeys(end for whole in sorted(_write_texts(schema), key=len) for end in _list_ends(whole))
    return Grammar(text, (*ends, "0"), brackets='"]}', opening="[{")


def _list_ends(text: str) -> list[str]:
    """From each place of `text` to its end; not brackets alone, which are closed as they were opened."""
    return [text[at:] for at in range(text.rfind('"') + 1)]


def _write_texts(schema: Schema) -> set[str]:
    """The shortest text of each part of a schema, and of each object with one more of its keys."""
    definitions, found = schema.get("$defs", {}), set()
    for part in _list_parts(schema):
        found.add(_write_shortest(part, definitions))
        required = part.get("required", [])
        for key in part.get("properties", {}):
            found.add(_write_object(part, {*required, key}, definitions))
    return {text for text in found if text}


def _list_parts(value: Any) -> Iterator[Schema]:
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            yield value
        for inner in value.values():
            yield from _list_parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _list_parts(inner)


def _write_shortest(schema: Schema, definitions: Schema, inside: frozenset[str] = frozenset()) -> str | None:
    """None where every text of `schema` would hold another of it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return None if name in inside else _write_shortest(definitions[name], definitions, inside | {name})
    if "const" in schema or "enum" in schema:
        return min((json.dumps(value) for value in schema.get("enum", [schema.get("const")])), key=len)
    if "anyOf" in schema:
        ways = [_write_shortest(way, definitions, inside) for way in schema["anyOf"]]
        return min((way for way in ways if way), key=len, default=None)
    match schema.get("type"):
        case "object":
            return _write_object(schema, schema.get("required", []), definitions, inside)
        case "array":
            items = [*schema.get("prefixItems", []), *[schema.get("items", {})] * schema.get("minItems", 0)]
            texts = [_write_shortest(item, definitions, inside) for item in items[: schema.get("minItems", 0)]]
            return None if None in texts else f"[{', '.join(map(str, texts))}]"
        case "string":
            return json.dumps(schema.get("examples", ["x"])[0])
        case "boolean":
            return "true"
    return "0"


def _write_object(schema: Schema, keys: Any, definitions: Schema, inside: frozenset[str] = frozenset()) -> str | None:
    values = {k: _write_shortest(v, definitions, inside) for k, v in schema.get("properties", {}).items() if k in keys}
    if None in values.values():
        return None
    return f"{{{', '.join(f'{json.dumps(key)}: {text}' for key, text in values.items())}}}"


KINDS = 10  # the tenth child of the root and those after it are of one kind, and may name [1] to [9]
DEEPEST = 4  # nodes from the root to a leaf, as the paper's trees have
REFERRED = re.compile(r'"#/\$defs/(\w+)"')


@cache
def make_art_grammar() -> Grammar:
    """The grammar of trees in JSON, after the one space that a completion begins with: what it allows parses, and
    `art.check` finds nothing in it.

    Nodes are numbered breadth-first but written depth-first: of what stands to its left, a decoder can be sure of the
    numbers of the root's children alone. So the definitions of the schema are written out in kinds, as the rules of
    plans:

        0   the root: no `[i]` in its texts
        k   the k-th child of the root and what stands below it: `[i]` for i from 1 to k - 1; `direct` must name one

    Brackets stand nowhere else, texts are on one line, and a tree is at most `DEEPEST` nodes deep. An answer further
    down cannot be named; a flat tree, in which what is needed again is a child of the root, can name all of them.
    """
    return make_json_grammar(make_art_schema())


def make_art_schema() -> Schema:
    """The schema of trees with its definitions written out in those kinds."""
    definitions = _make_definitions(0, 1)
    for kind in range(1, KINDS + 1):
        for level in range(2, DEEPEST + 1):
            definitions |= _make_definitions(kind, level)
    return {"$ref": "#/$defs/node_0_1", "$defs": definitions}


def _make_definitions(kind: int, level: int) -> dict[str, Any]:
    """The definitions of the schema for nodes of this kind that stand `level` nodes deep, the root at 1."""
    written = schema()["$defs"]
    written["text"] = _make_text(kind)
    if kind:
        written["direct"]["properties"]["question"] = _make_text(kind, naming=True)
    barred = [*["direct"] * (kind == 1), *["parent"] * (level == DEEPEST)]
    ways = written["node"]["anyOf"]
    written["node"]["anyOf"] = [way for way in ways if way["$ref"].rpartition("/")[2] not in barred]
    named = REFERRED.sub(rf'"#/$defs/\1_{kind}_{level}"', json.dumps(written))
    definitions = {f"{name}_{kind}_{level}": value for name, value in json.loads(named).items() if name not in barred}
    if "parent" not in barred:
        below = [kind] if kind else list(range(1, KINDS + 1))
        nodes = [{"$ref": f"#/$defs/node_{k}_{level + 1}"} for k in below]
        definitions[f"parent_{kind}_{level}"]["properties"]["children"] |= {"prefixItems": nodes, "items": nodes[-1]}
    return definitions


def _make_text(kind: int, naming: bool = False) -> dict[str, Any]:
    """A text on one line with something in it to see; `naming`: with a reference in it."""
    letter = rf"[^\[\]{CONTROLS}]"
    spaces = character_class(r"\s")
    seen = rf"[^\[\]{CONTROLS}{spaces}]"
    reference = rf"\[[1-{kind - 1}]\]"
    either = f"(?:{letter}|{reference})" if kind > 1 else letter
    middle = reference if naming else f"(?:{seen}|{reference})" if kind > 1 else seen
    pattern = f"^{either}*{middle}{either}*$"
    written = _write_text(spaces, kind, naming)
    return {"type": "string", "pattern": pattern, "x-ebnf": written, "examples": ["[1]" if naming else "x"]}


def _write_text(spaces: str, kind: int, naming: bool) -> str:
    """The same in the dialect of xgrammar, quotes and escapes included."""
    escape = r'"\\" ["\\]'
    letter, seen = (rf'[^\[\]"\\{CONTROLS}{barred}] | {escape}' for barred in ("", spaces))
    reference = rf'"[" [1-{kind - 1}] "]"'
    either = f"({letter} | {reference})" if kind > 1 else f"({letter})"
    middle = reference if naming else f"({seen} | {reference})" if kind > 1 else f"({seen})"
    return rf'"\"" {either}* {middle} {either}* "\""'
