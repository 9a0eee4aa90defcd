"""Rows of tables as lines: what an index holds of a table, and what a reader is trained to read.

A row names each column and its value, the key first: "Version: 4.2; Release lead: Ana Lorne". A row of a form, which is
a table of two columns whose header is missing or that of any form (`Field | Value`), is `key: value`, as in "Editor:
Jon Abel".
"""

from __future__ import annotations

from collections.abc import Sequence

FORM = frozenset(("field", "key", "item", "name", "property", "attribute", "parameter", "value", "entry", "content"))


def write_pairs(columns: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Writes `Column: value` for each cell that is not empty, in the order of the columns; the value alone where the
    column has no name. Of a form it writes `key: value`."""
    values = [" ".join(cell.split()) for cell in cells]
    names = [_clean_name(name) for name in columns]
    if _is_form(names):
        if all(values):
            return [f"{_clean_name(values[0])}: {values[1]}"]
        names = ["", ""]
    named = zip(names, values, strict=True)
    return [f"{name}: {value}" if name else value for name, value in named if value]


def write_row(columns: Sequence[str], cells: Sequence[str]) -> str:
    """Writes a row in one line; "" for an empty row."""
    return "; ".join(write_pairs(columns, cells))


def read_row(line: str) -> list[tuple[str, str]]:
    """The columns and values of a line that `write_row` wrote; [] for a line of fewer than two, and for any other."""
    pairs = [pair.partition(": ") for pair in line.split("; ")]
    is_row = len(pairs) > 1 and all(name and value for name, _, value in pairs)
    return [(name, value) for name, _, value in pairs] if is_row else []


def say_row(pairs: Sequence[tuple[str, str]]) -> str:
    """Writes a row in sentences about its key, for a reader that was trained on sentences."""
    (_, key), *others = pairs
    return " ".join(f"For {key}, the {name} is {value}." for name, value in others)


def _is_form(names: Sequence[str]) -> bool:
    return len(names) == 2 and (not all(names) or all(name.lower() in FORM for name in names))


def _clean_name(name: str) -> str:
    return " ".join(name.replace("_", " ").split()).rstrip(": ")
