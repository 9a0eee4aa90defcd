"""ART between text and value: `parse` reads the JSON form, `render` writes it. `schema()` documents it.

The form is described by `art.schema.json` (JSON Schema 2020-12), from which `decoding` derives the decoder's grammar.
Faults point into the text: line, column, caret, and the place as a path such as `children[1].relate.head`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from revelator.plans.art_tree import MAX_DEPTH, Art, Call, Filter, Relate, Search, depth
from revelator.plans.faults import fault

WAYS = ("search", "relate", "filter", "direct", "children")
FORM = 'a node is {"question": …} with one of search, relate, filter, direct or children'
_DECODER = json.JSONDecoder(parse_int=float)  # numbers of any number of digits
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_int=float)  # of any number of digits
Path = tuple[str | int, ...]


@cache
def schema_text() -> str:
    return files("revelator.plans").joinpath("art.schema.json").read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """The JSON schema of the form."""
    return json.loads(schema_text())


def parse(text: str) -> Art:
    """The tree that a JSON text spells. Raises ExpressionError with line, column, caret and a hint."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_int=float)  # of any number of digits
    except json.JSONDecodeError as error:
        raise fault(text, "not-json", f"not JSON: {error.msg}", error.pos, error.pos + 1, FORM) from error
    except _Refused as error:
        raise fault(text, "twice", error.message, 0, len(text), "write each name once") from error
    except RecursionError as error:
        raise fault(text, "too-deep", f"deeper than {MAX_DEPTH} nodes", 0, 1, "ask a simpler question") from error
    try:
        art = _node(value, ())
    except _Refused as error:
        start, end = _locate(text, error.path)
        place = _spelled(error.path)
        raise fault(text, error.code, f"{place}: {error.message}", start, end, error.hint) from error
    if depth(art) > MAX_DEPTH:
        raise fault(text, "too-deep", f"deeper than {MAX_DEPTH} nodes", 0, 1, "ask a simpler question")
    return art


def render(art: Art) -> str:
    """Canonical JSON on one line: `parse(render(art)) == art`."""
    return json.dumps(to_json(art), ensure_ascii=False)


def to_json(art: Art) -> dict[str, Any]:
    """Plain values in the form of `schema()`."""
    return {"question": art.question, **_way(art)}


def _way(art: Art) -> dict[str, Any]:
    match art.call:
        case Search(name, descriptor):
            return {"search": {"name": name, **({"descriptor": descriptor} if descriptor else {})}}
        case Relate(head, to, inverse):
            return {"relate": {"head": head, "to": to, **({} if inverse is None else {"inverse": inverse})}}
        case Filter(entities, condition):
            return {"filter": {"entities": list(entities), "condition": condition}}
    return {"children": [to_json(child) for child in art.children]} if art.children else {"direct": True}


class _Refused(Exception):
    def __init__(self, code: str, message: str, path: Path, hint: str = FORM) -> None:
        super().__init__(message)
        self.code, self.message, self.path, self.hint = code, message, path, hint


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Refused("twice", f"{next(n for n in names if names.count(n) > 1)!r} stands twice in one object", ())
    return value


def _node(value: Any, path: Path) -> Art:
    if len(path) > 2 * MAX_DEPTH:
        raise _Refused("too-deep", f"deeper than {MAX_DEPTH} nodes", path, "ask a simpler question")
    fields = _object(value, path, {"question"}, set(WAYS))
    question = _text(fields["question"], (*path, "question"))
    ways = [way for way in WAYS if way in fields]
    if len(ways) != 1:
        raise _Refused("way", f"{len(ways)} ways to answer, where one is needed: {', '.join(ways) or 'none'}", path)
    way, at = ways[0], (*path, ways[0])
    if way == "children":
        items = _items(fields[way], at)
        return Art(question, children=tuple(_node(item, (*at, place)) for place, item in enumerate(items)))
    if way == "direct":
        if fields[way] is not True:
            raise _Refused("type", "not true", at, '[DR] is written "direct": true')
        return Art(question)
    return Art(question, _call(way, fields[way], at))


def _call(way: str, value: Any, at: Path) -> Call:
    if way == "search":
        fields = _object(value, at, {"name"}, {"descriptor"})
        return Search(*(_text(fields[name], (*at, name)) for name in ("name", "descriptor") if name in fields))
    if way == "filter":
        fields = _object(value, at, {"entities", "condition"}, set())
        entities = _items(fields["entities"], (*at, "entities"))
        texts = tuple(_text(item, (*at, "entities", place)) for place, item in enumerate(entities))
        return Filter(texts, _text(fields["condition"], (*at, "condition")))
    fields = _object(value, at, {"head", "to"}, {"inverse"})
    inverse = fields.get("inverse")
    if "inverse" in fields and not isinstance(inverse, bool):
        raise _Refused("type", f"not true or false but {inverse!r}", (*at, "inverse"), "leave it out if not known")
    return Relate(_text(fields["head"], (*at, "head")), _text(fields["to"], (*at, "to")), inverse)


def _object(value: Any, path: Path, needed: set[str], optional: set[str]) -> dict[str, Any]:
    names = ", ".join(sorted(needed | optional))
    if not isinstance(value, dict):
        raise _Refused("type", f"not an object but {type(value).__name__}", path, f"an object with {names}")
    if missing := needed - set(value):
        raise _Refused("missing", f"`{min(missing)}` is missing", path, f"an object with {names}")
    if strange := set(value) - needed - optional:
        raise _Refused("unknown", f"there is no `{min(strange)}` here", (*path, min(strange)), f"names are {names}")
    return value


def _items(value: Any, path: Path) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise _Refused("type", "not a list of one or more", path, "a list in square brackets")
    return value


def _text(value: Any, path: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Refused("text", "not a text with at least one character to see", path, "a string in double quotes")
    return value


def _spelled(path: Path) -> str:
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return words.removeprefix(".") or "the root"


def _locate(text: str, path: Path) -> tuple[int, int]:
    """Offsets of the value at `path` in a JSON text that has been read without error."""
    start = _skip(text, 0)
    for step in path:
        start = _step(text, start, step)
    return start, _DECODER.raw_decode(text, start)[1]


def _step(text: str, start: int, wanted: str | int) -> int:
    at, place = _skip(text, start + 1), 0
    while True:
        if isinstance(wanted, str):
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # past the colon
        else:
            key = place
        if key == wanted:
            return at
        at = _skip(text, _DECODER.raw_decode(text, at)[1])
        at, place = _skip(text, at + 1), place + 1  # past the comma


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
