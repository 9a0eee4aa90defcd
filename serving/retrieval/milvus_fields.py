"""Fields of passages in a collection of Milvus, and a scope as an expression that the engine's searches keep to.

A row has `fields`, as JSON, which the engine does not read; `marks`, a digest of each field with its value; and
`readers`, the groups that may read it. The manifest lists the distinct values: a comparison is put to them here, as
that of an index folder is, and the expression names the marks of those that fulfil it. So every engine finds the same,
whatever its expressions know of dates, lists and missing fields, and no text of a question is part of an expression.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from revelator.files import sha256_text
from serving.protocols import Scope
from serving.retrieval.columns import remember, require_fields
from serving.retrieval.fields import ALLOWED, EVERYBODY, Fields
from serving.retrieval.filters import (
    And,
    Comparison,
    Condition,
    Kind,
    Not,
    Reading,
    Value,
    list_readings,
    match_values,
    parse_filter,
)

MARK = 32  # characters of a digest
MOST = 4_096  # values of an array of Milvus
MARKS, READERS = "marks", "readers"


def write_fields(fields: Fields) -> dict[str, Any]:
    """What a row holds of a passage's fields."""
    marks = [_mark(name, json.dumps(value)) for name, value in fields.items() if name != ALLOWED]
    return {"fields": json.dumps(fields), MARKS: marks, READERS: list_readers(fields)}


def list_readers(fields: Fields) -> list[str]:
    """The groups that may read a passage of these fields."""
    allowed = fields.get(ALLOWED, [EVERYBODY])
    return [str(group) for group in allowed] if isinstance(allowed, list) else []


def _mark(name: str, value: str) -> str:
    return sha256_text(f"{name}={value}")[:MARK]


def quote(text: str) -> str:
    """A text in an expression of Milvus."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


def _list_any(field: str, texts: Sequence[str]) -> str:
    """An expression for rows that have one of the texts; of none it names an empty one, which no row has."""
    return f"array_contains_any({field}, [{', '.join(map(quote, texts or ['']))}])"


def summarize_fields(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the manifest says of the fields of all passages: how many distinct values each has; and for each set of
    readers the distinct values, and how many passages each file has."""
    shelves: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        fields: Fields = json.loads(row["fields"])
        readers = list_readers(fields)
        shelf = shelves.setdefault(tuple(readers), {"readers": readers, "values": {}, "passages": {}})
        for name, value in fields.items():
            shelf["values"].setdefault(name, {})[json.dumps(value)] = None
        shelf["passages"][row["source"]] = shelf["passages"].get(row["source"], 0) + 1
    ordered = [shelves[readers] for readers in sorted(shelves)]
    distinct: dict[str, set[str]] = {}
    for shelf in ordered:
        for name, values in shelf["values"].items():
            distinct.setdefault(name, set()).update(values)
            shelf["values"][name] = sorted(values)
    return {"fields": {name: len(distinct[name]) for name in sorted(distinct)}, "shelves": ordered}


class Vocabulary:
    """The distinct values of the fields of an index, by who may read them. Safe to share between threads."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._shelves: Sequence[Mapping[str, Any]] = manifest["shelves"]
        self._expressions: dict[Scope, str] = {}
        self._fields: dict[frozenset[str] | None, dict[str, list[Kind]]] = {}

    def write_expression(self, scope: Scope) -> str:
        """The scope as an expression; nothing for one of all passages. Raises InvalidRequest for a filter that cannot
        be read."""
        return remember(self._expressions, scope, self._write_expression)

    def list_fields(self, groups: frozenset[str] | None) -> dict[str, list[Kind]]:
        """The fields, and the kinds of their values, of the passages that somebody of these groups may read."""
        return remember(self._fields, groups, self._list_fields)

    def require_fields(self, scope: Scope) -> None:
        """Raises InvalidRequest for a filter that names a field or a kind of value that the caller's documents lack."""
        require_fields(scope, self.list_fields(scope.groups))

    def count_passages(self, groups: frozenset[str] | None) -> dict[str, int]:
        """How many passages of each file somebody of these groups may read."""
        counts: dict[str, int] = {}
        for shelf in self._list_open(groups):
            for name, count in shelf["passages"].items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def _list_open(self, groups: frozenset[str] | None) -> list[Mapping[str, Any]]:
        wanted = None if groups is None else groups | {EVERYBODY}
        return [shelf for shelf in self._shelves if wanted is None or not wanted.isdisjoint(shelf["readers"])]

    def _list_fields(self, groups: frozenset[str] | None) -> dict[str, list[Kind]]:
        found: dict[str, set[Kind]] = {}
        for shelf in self._list_open(groups):
            for name in shelf["values"].keys() - {ALLOWED}:
                kinds = (reading.kind for value in shelf["values"][name] for reading in self._readings[name][value])
                found.setdefault(name, set()).update(kinds)
        return {name: sorted(found[name]) for name in sorted(found)}

    def _write_expression(self, scope: Scope) -> str:
        condition = parse_filter(scope.where)
        parts = [] if condition is None else [self._write_condition(condition)]
        if scope.groups is not None:
            parts.append(_list_any(READERS, sorted(scope.groups | {EVERYBODY})))
        return " and ".join(f"({part})" for part in parts)

    def _write_condition(self, condition: Condition) -> str:
        if isinstance(condition, Comparison):
            return self._write_comparison(condition)
        if isinstance(condition, Not):
            return f"not ({self._write_condition(condition.operand)})"
        sign = " and " if isinstance(condition, And) else " or "
        return sign.join(f"({self._write_condition(operand)})" for operand in condition.operands)

    def _write_comparison(self, comparison: Comparison) -> str:
        readings = {} if comparison.field == ALLOWED else self._readings.get(comparison.field, {})
        holds = match_values(comparison, list(readings.values()))
        fulfilled = (value for value, is_so in zip(readings, holds, strict=True) if is_so)
        return _list_any(MARKS, [_mark(comparison.field, value) for value in fulfilled])

    @cached_property
    def _readings(self) -> dict[str, dict[str, list[Reading]]]:
        """By field, what each value is, by its JSON."""
        found: dict[str, dict[str, list[Reading]]] = {}
        for shelf in self._shelves:
            for name, values in shelf["values"].items():
                known = found.setdefault(name, {})
                for value in values:
                    if value not in known:
                        read: Value = json.loads(value)
                        known[value] = list_readings(read)
        return found
