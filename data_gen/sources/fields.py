"""Fields of a published row, in the forms in which copies of one data set differ."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from data_gen.questions import quote_value
from revelator.errors import DataError
from revelator.fingerprints import hash_question

ITEM_END = re.compile(r"(?<!\s)\s*+,\s*+(?=['\"])|(?<=['\"])\s*+,\s*+|,\s*+(?=['\"])")


def read_text(row: dict[str, Any], *names: str) -> str:
    """The non-empty text in the first of the fields that the row has."""
    name = next((name for name in names if name in row), names[0])
    value = row[name]
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"field {name!r} must be a non-empty text, found {quote_value(value)}")
    if any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise DataError(f"field {name!r} has half a surrogate pair", hint="was it cut inside an emoji?")
    return value


def read_question(row: dict[str, Any], *names: str) -> str:
    """The question in one line."""
    return " ".join(read_text(row, *(names or ("question",))).split())


def read_texts(row: dict[str, Any], *names: str) -> tuple[str, ...]:
    """The texts in the first of the fields that the row has."""
    name = next((name for name in names if name in row), names[0])
    return check_texts(name, row[name])


def check_texts(name: str, value: Any) -> tuple[str, ...]:
    """A text or a list of texts, each once; a list may also be written out as a text. `name` is that of the field."""
    items = _split_items(value) if isinstance(value, str) else value
    if not isinstance(items, list) or not items or not all(isinstance(item, str) and item.strip() for item in items):
        raise DataError(f"field {name!r} must be a text or a list of texts, found {quote_value(value)}")
    return tuple(dict.fromkeys(" ".join(item.split()) for item in items))


def _split_items(value: str) -> list[str]:
    """A text, or the items of one that a list was written into: copies exist in which its quotes are damaged."""
    if not (value.startswith("[") and value.endswith("]")):
        return [value]
    return [item.strip(" '\"`") for item in ITEM_END.split(value[1:-1]) if item.strip(" '\"`")]


def read_nested(row: dict[str, Any], name: str, default: Any = None) -> Any:
    """A field that holds a list or object, or one that was written into a text as JSON or as a Python literal."""
    value = row[name] if default is None else row.get(name, default)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        pass
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(f"field {name!r} must be a list, found {quote_value(value)}") from error


def list_objects(value: Any) -> list[dict[str, Any]]:
    """A list of objects; the Hub keeps one as an object of lists."""
    if isinstance(value, dict):
        return [dict(zip(value, items, strict=True)) for items in zip(*value.values(), strict=True)]
    return list(value)


def list_pairs(value: Any) -> list[tuple[Any, Any]]:
    """A list of pairs; the Hub keeps one as an object of two lists."""
    found = zip(*value.values(), strict=True) if isinstance(value, dict) else value
    return [(first, second) for first, second in found]


def make_id(row: dict[str, Any], source: str, asked: str, *names: str) -> str:
    """`source:id`, or `source:` and the hash of the question where the row has no id: the same one in every copy."""
    found = next((row[name] for name in names if row.get(name) not in (None, "")), None)
    return f"{source}:{hash_question(asked)[:16] if found is None else found}"
