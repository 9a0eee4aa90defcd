"""The decoder's grammar of a JSON schema, and the pieces that end a value of it: made from what its objects must hold.

Handed to llguidance's `%json`, in which keys follow the schema's order. A decoder that must end can stand anywhere in
an object, before a key, in the middle of one, in a text: each end of the shortest text of an object closes it from one
of these places.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from revelator.plans.decoding import Grammar

Schema = dict[str, Any]


def json_grammar(schema: Schema) -> Grammar:
    """The grammar of JSON values of a schema, after the one space that a completion begins with.

    A text that has to fit a `pattern` is closed by the first of its `examples`, else by `x`.
    """
    compact = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
    text = f'start: " " value\nvalue: %json {json.dumps(schema | {"x-guidance": compact})}\n'
    ends = dict.fromkeys(end for whole in sorted(_texts(schema), key=len) for end in _ends(whole))
    return Grammar(text, (*ends, "0"), brackets='"]}', opening="[{")


def _ends(text: str) -> list[str]:
    """From each place of `text` to its end; not brackets alone, which are closed as they were opened."""
    return [text[at:] for at in range(text.rfind('"') + 1)]


def _texts(schema: Schema) -> set[str]:
    """The shortest text of each part of a schema, and of each object with one more of its keys."""
    definitions, found = schema.get("$defs", {}), set()
    for part in _parts(schema):
        found.add(_shortest(part, definitions))
        required = part.get("required", [])
        for key in part.get("properties", {}):
            found.add(_object(part, {*required, key}, definitions))
    return {text for text in found if text}


def _parts(value: Any) -> Iterator[Schema]:
    if isinstance(value, dict):
        if isinstance(value.get("type"), str):
            yield value
        for inner in value.values():
            yield from _parts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _parts(inner)


def _shortest(schema: Schema, definitions: Schema, inside: frozenset[str] = frozenset()) -> str | None:
    """None where every text of `schema` would hold another of it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return None if name in inside else _shortest(definitions[name], definitions, inside | {name})
    if "const" in schema or "enum" in schema:
        return min((json.dumps(value) for value in schema.get("enum", [schema.get("const")])), key=len)
    if "anyOf" in schema:
        ways = [_shortest(way, definitions, inside) for way in schema["anyOf"]]
        return min((way for way in ways if way), key=len, default=None)
    match schema.get("type"):
        case "object":
            return _object(schema, schema.get("required", []), definitions, inside)
        case "array":
            items = [*schema.get("prefixItems", []), *[schema.get("items", {})] * schema.get("minItems", 0)]
            texts = [_shortest(item, definitions, inside) for item in items[: schema.get("minItems", 0)]]
            return None if None in texts else f"[{', '.join(map(str, texts))}]"
        case "string":
            return json.dumps(schema.get("examples", ["x"])[0])
        case "boolean":
            return "true"
    return "0"


def _object(schema: Schema, keys: Any, definitions: Schema, inside: frozenset[str] = frozenset()) -> str | None:
    values = {k: _shortest(v, definitions, inside) for k, v in schema.get("properties", {}).items() if k in keys}
    if None in values.values():
        return None
    return f"{{{', '.join(f'{json.dumps(key)}: {text}' for key, text in values.items())}}}"
