"""Tables of any document as Markdown: merged cells filled, one header, titles and notes out of the rows.

A merged cell stands in each place that it covers. Several rows of a header become one ("Size" above "Width (mm)" is
"Size Width (mm)"). A cell that covers its whole row is no row but a title of the rows below, or a note: it becomes a
paragraph between two tables, of which each has the header. Where no header is marked, the first row is the header of
three columns and more; of two columns, which may be a form, it is a row. What stands alone above it is a title.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, takewhile

PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")  # of ASCII: what may be a mark of Markdown


class Cell(str):
    """The text of a cell. Of a merged cell, all its places hold one object."""

    __slots__ = ()


Rows = Sequence[Sequence[Cell]]


def escape(text: str) -> str:
    """Text on one line that Markdown reads as it is."""
    return PUNCTUATION.sub(r"\\\1", " ".join(text.split()))


def spread_cells(rows: Sequence[Sequence[tuple[Cell, int, int]]]) -> list[list[Cell]]:
    """Rows of one width from rows of cells, each with the number of rows and of columns that it covers; 0 rows are all
    that are left. Places that no cell covers are empty."""
    places: dict[tuple[int, int], Cell] = {}
    for top, row in enumerate(rows):
        left = 0
        for cell, down, right in row:
            while (top, left) in places:
                left += 1
            for y in range(top, min(top + (down or len(rows)), len(rows))):
                for x in range(left, left + right):
                    places.setdefault((y, x), cell)
            left += right
    width = 1 + max((x for _, x in places), default=-1)
    return [[places.get((y, x), Cell()) for x in range(width)] for y in range(len(rows))]


def write_table(head: Rows, body: Rows, caption: str = "") -> str:
    """Markdown of a table of rows of one width; `head` are the rows of its header, as far as it has one."""
    whole = [*head, *body]
    rows = [row for row in whole if not _is_one_cell(row)]
    columns = [x for x in range(max(map(len, whole), default=0)) if any(row[x].strip() for row in rows)]
    titles = [caption, *(row[0] for row in head if _is_one_cell(row))]
    names = [_join_names([row[x] for row in head if not _is_one_cell(row)]) for x in columns]
    rows = [row for row in body if any(map(str.strip, row))]
    if not any(names) and any(map(_is_filled, rows)):
        above = list(takewhile(lambda row: not _is_filled(row), rows))
        titles += [" ".join(dict.fromkeys(row)) for row in above]
        first, *rows = rows[len(above) :]
        if len(columns) > 2 and rows:
            names = [first[x] for x in columns]
        else:
            rows = [first, *rows]
    titles = [title for title in titles if title.strip()]
    pieces = [] if rows and _is_one_cell(rows[0]) else [_write_title(titles)]
    for is_title, section in groupby(rows, _is_one_cell):
        own = list(section)
        pieces += [_write_title([*titles, row[0]]) for row in own] if is_title else [_write_rows(names, own, columns)]
    if not rows and any(names):
        pieces.append(_write_rows(names, (), columns))
    return "\n\n".join(filter(None, pieces))


def _write_title(titles: Sequence[str]) -> str:
    return escape(": ".join(titles))


def _is_filled(row: Sequence[Cell]) -> bool:
    """Whether a row says more than one thing."""
    return sum(bool(cell.strip()) for cell in row) > 1 and not _is_one_cell(row)


def _is_one_cell(row: Sequence[Cell]) -> bool:
    return len(row) > 1 and all(cell is row[0] for cell in row)


def _join_names(names: Sequence[Cell]) -> str:
    """The name of a column whose header has these cells, from the top."""
    return " ".join(dict.fromkeys(name.strip() for name in names if name.strip()))


def _write_rows(names: Sequence[str], rows: Rows, columns: Sequence[int]) -> str:
    cells = ([escape(row[x]) for x in columns] for row in rows)
    lines = [list(map(escape, names)), ["---"] * len(names), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
