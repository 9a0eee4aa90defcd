"""The fields of an index's passages, a column a field, and which passages a search may find by them.

`columns.npy` has a row a field and a column a passage: the number of the passage's value in `columns.json`, which lists
the distinct values of each field; -1 where it has none. A filter is put to distinct values, and then to numbers. An
index that an earlier version built has no columns: its passages have no fields, and everybody may read them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from revelator.errors import ArtifactError
from serving.protocols import Scope
from serving.retrieval.fields import ALLOWED, EVERYBODY, Fields
from serving.retrieval.filters import (
    Comparison,
    Kind,
    Reading,
    Value,
    check_filter,
    compute_mask,
    list_readings,
    match_values,
    parse_filter,
)
from serving.retrieval.index_folder import Shard, create_mapped

NUMBERS, VALUES = "columns.npy", "columns.json"
NONE = -1
KEPT = 16  # masks, of a byte a passage, of filters and of groups


Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")


@dataclass(frozen=True)
class View:
    """What a search may find: passages of `found`, among those that its caller may read, `readable`. Each is a mask,
    shape (passages,), None where it is all of them."""

    readable: np.ndarray | None = None
    found: np.ndarray | None = None


def write(stage: Path, shards: Iterable[Shard]) -> dict[str, int]:
    """Writes the columns of all shards, in the corpus's order; returns how many distinct values each field has."""
    shards = list(shards)
    known: dict[str, dict[str, int]] = {}
    sizes = []
    for shard in shards:
        rows = _read_shard(shard)
        sizes.append(len(rows))
        for row in rows:
            for name, value in row.items():
                values = known.setdefault(name, {})
                values.setdefault(json.dumps(value), len(values))
    names = sorted(known)
    numbers = create_mapped(stage / NUMBERS, np.int32, (len(names), sum(sizes)))
    first = 0
    for shard, size in zip(shards, sizes, strict=True):
        rows = _read_shard(shard)
        for place, name in enumerate(names):
            numbers[place, first : first + size] = [
                known[name][json.dumps(row[name])] if name in row else NONE for row in rows
            ]
        first += size
    listed = {name: [json.loads(value) for value in known[name]] for name in names}
    (stage / VALUES).write_text(json.dumps(listed), encoding="utf-8")  # escaped: halves of surrogate pairs, too
    return {name: len(values) for name, values in listed.items()}


def _read_shard(shard: Shard) -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = json.loads(shard.read("fields").tobytes())
    return rows


class Columns:
    """The columns of an index folder, memory-mapped. Safe to share between threads."""

    def __init__(self, folder: Path, count: int) -> None:
        self._count = count
        self._values: dict[str, list[Value]] = {}
        if (folder / VALUES).exists():
            self._values = json.loads((folder / VALUES).read_text(encoding="utf-8"))
            self._numbers = np.load(folder / NUMBERS, mmap_mode="r")
            if self._numbers.shape != (len(self._values), count):
                hint = "build the index again"
                raise ArtifactError("other columns than the passages have", where=str(folder / NUMBERS), hint=hint)
        self._readable: dict[frozenset[str] | None, np.ndarray | None] = {}
        self._fields: dict[frozenset[str] | None, dict[str, list[Kind]]] = {}
        self._views: dict[Scope, View] = {}

    def read(self, position: int) -> Fields:
        """The fields of one passage."""
        placed = zip(self._values.items(), self._numbers[:, position] if self._values else (), strict=True)
        return {name: values[number] for (name, values), number in placed if number != NONE}

    def find_readable(self, groups: frozenset[str] | None) -> np.ndarray | None:
        """Which passages somebody of these groups may read, None where it is all of them. `groups` None: whoever owns
        the index."""
        return remember(self._readable, groups, self._find_readable)

    def list_fields(self, groups: frozenset[str] | None) -> dict[str, list[Kind]]:
        """The fields, and the kinds of their values, of the documents that somebody of these groups may read."""
        return remember(self._fields, groups, self._list_fields)

    def open_view(self, scope: Scope) -> View:
        """What a search within the scope may find; fields that no passage has are no fault. Raises InvalidRequest for
        a filter that cannot be read."""
        return remember(self._views, scope, self._open_view)

    def _find_readable(self, groups: frozenset[str] | None) -> np.ndarray | None:
        if groups is None or ALLOWED not in self._values:
            return None
        wanted = groups | {EVERYBODY}
        is_open = [isinstance(value, list) and not wanted.isdisjoint(value) for value in self._values[ALLOWED]]
        mask = self._look_up(ALLOWED, np.array(is_open, bool), without=True)
        return None if mask.all() else mask

    def _list_fields(self, groups: frozenset[str] | None) -> dict[str, list[Kind]]:
        readable, found = self.find_readable(groups), {}
        for place, name in enumerate(self._values):
            numbers = self._numbers[place] if readable is None else self._numbers[place][readable]
            used = np.unique(numbers)
            kinds = {reading.kind for number in used[used != NONE] for reading in self._readings[name][number]}
            if kinds and name != ALLOWED:
                found[name] = sorted(kinds)
        return found

    def _open_view(self, scope: Scope) -> View:
        readable = self.find_readable(scope.groups)
        condition = parse_filter(scope.where)
        if condition is None:
            return View(readable, readable)
        found = compute_mask(condition, self._find)
        return View(readable, found if readable is None else found & readable)

    def require_fields(self, scope: Scope) -> None:
        """Raises InvalidRequest for a filter that names a field or a kind of value that the caller's documents lack."""
        require_fields(scope, self.list_fields(scope.groups))

    def _find(self, comparison: Comparison) -> np.ndarray:
        if comparison.field not in self._values or comparison.field == ALLOWED:
            return np.zeros(self._count, bool)
        return self._look_up(comparison.field, match_values(comparison, self._readings[comparison.field]))

    def _look_up(self, name: str, holds: np.ndarray, *, without: bool = False) -> np.ndarray:
        """What holds for the value of each passage; `without` for one that has none."""
        mask: np.ndarray = np.append(holds, without)[self._numbers[[*self._values].index(name)]]  # NONE is the last
        return mask

    @cached_property
    def _readings(self) -> dict[str, list[list[Reading]]]:
        return {name: [list_readings(value) for value in values] for name, values in self._values.items()}


def require_fields(scope: Scope, known: Mapping[str, Collection[Kind]]) -> None:
    """Raises InvalidRequest for a filter that does not fit the `known` fields."""
    if condition := parse_filter(scope.where):
        check_filter(condition, known)


def remember(kept: dict[Key, Made], key: Key, make: Callable[[Key], Made]) -> Made:
    """What was made for a key, or is made now. No `lru_cache`: of a bound method it would keep a generation in memory
    that nobody searches any more."""
    try:
        return kept[key]
    except KeyError:
        made = make(key)
    if len(kept) >= KEPT:
        kept.clear()
    kept[key] = made
    return made
