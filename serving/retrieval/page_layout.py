"""A page of a PDF without tags, read by where its lines stand.

Paragraphs are pdfminer's. A table stands between ruled lines, which pdfplumber finds, or is text in aligned columns.
All are read column by column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pdfminer.layout import LTContainer, LTTextBox
from pdfplumber.page import Page
from pdfplumber.table import Table

from serving.retrieval.table_layout import Cell

SHORT, LONG = 20, 35  # characters of a line, on average: a table has a column of at most 20, and at most one over 35
NEAR = 4  # points between a line and the one that it continues, at most
Object = dict[str, Any]  # of pdfplumber: `x0`, `x1`, `top`, `bottom` in points from the upper left, `text`


@dataclass(frozen=True)
class Text:
    """`level` is that of a heading, 0 of other text, and None where `size` (points) tells which it is."""

    text: str
    level: int | None = 0
    size: float = 0.0
    bullet: str = ""


@dataclass
class Grid:
    rows: list[list[Cell]]
    head: int = 0  # rows of the header
    caption: str = ""


Block = Text | Grid
_Area = tuple[float, float, float, float]  # left, top, right and bottom
_Unit = tuple[_Area, Block]


def read_layout(page: Page) -> list[Block]:
    """The blocks of a page without tags, in the order in which they are read."""
    boxes = [[page.process_object(line) for line in box] for box in _find_boxes(page.layout)]
    boxes = [[line for line in box if any(map(str.isalnum, line["text"]))] for box in boxes]  # without bullets
    units: list[_Unit] = []
    within: set[int] = set()  # lines of tables, by their ids
    for table in page.find_tables():
        if len(table.rows) > 1 and len(table.columns) > 1:
            within |= {id(line) for box in boxes for line in box if _is_within(line, table.bbox)}
            units.append((table.bbox, _read_ruled(table)))
    for run, grid in _find_aligned([line for box in boxes for line in box if id(line) not in within]):
        within |= set(map(id, run))
        units.append((_surround(run), grid))
    for box in boxes:
        for is_within, part in groupby(box, lambda line: id(line) in within):
            if not is_within:
                lines = list(part)
                text = " ".join(" ".join(line["text"] for line in lines).split())
                size = min(line["bottom"] - line["top"] for line in lines)
                units.append((_surround(lines), Text(text, None, size)))
    return [block for _, block in _order(units)]


def _surround(lines: Sequence[Object]) -> _Area:
    x0, top = (min(line[edge] for line in lines) for edge in ("x0", "top"))
    x1, bottom = (max(line[edge] for line in lines) for edge in ("x1", "bottom"))
    return x0, top, x1, bottom


def _order(units: Sequence[_Unit]) -> list[_Unit]:
    """Columns one after the other where nothing crosses the gap between them, else from the top: bands that have such
    a gap together are read as columns (a recursive XY cut: Nagy, Seth and Viswanathan 1992)."""
    columns, bands = _split(units, 0), _split(units, 1)
    if len(columns) > 1:
        return [unit for column in columns for unit in _order(column)]
    if len(bands) < 2:
        return sorted(units, key=lambda unit: unit[0][1])
    parts: list[list[_Unit]] = []
    for band in bands:
        if parts and len(_split([*parts[-1], *band], 0)) > 1:
            parts[-1] += band
        else:
            parts.append(list(band))
    return [unit for part in parts for unit in _order(part)]


def _split(units: Sequence[_Unit], axis: int) -> list[list[_Unit]]:
    """Groups with a gap between them on an axis, 0 for the width and 1 for the height."""
    groups: list[list[_Unit]] = []
    end = 0.0
    for unit in sorted(units, key=lambda unit: unit[0][axis]):
        if groups and unit[0][axis] < end:
            groups[-1].append(unit)
        else:
            groups.append([unit])
        end = max(end, unit[0][axis + 2])
    return groups


def _find_boxes(container: LTContainer) -> Iterator[LTTextBox]:
    for item in container:
        if isinstance(item, LTTextBox):
            yield item
        elif isinstance(item, LTContainer):
            yield from _find_boxes(item)


def _is_within(line: Object, box: _Area) -> bool:
    x, y = (line["x0"] + line["x1"]) / 2, (line["top"] + line["bottom"]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _read_ruled(table: Table) -> Grid:
    """The rows of a table between lines. A cell that pdfplumber has none for belongs to the one that covers it."""
    lefts = sorted({cell[0] for cell in table.cells})
    found: dict[tuple[float, ...], Cell] = {}
    for row, texts in zip(table.rows, table.extract(), strict=True):
        found |= {box: Cell(text or "") for box, text in zip(row.cells, texts, strict=True) if box}

    def find(box: tuple[float, ...] | None, left: float, top: float) -> Cell:
        if box:
            return found[box]
        covering = (c for (x0, y0, x1, y1), c in found.items() if x0 - 1 < left < x1 - 1 and y0 - 1 < top < y1 - 1)
        return next(covering, Cell())

    return Grid([[find(b, x, row.bbox[1]) for b, x in zip(row.cells, lefts, strict=True)] for row in table.rows])


def _find_aligned(lines: Sequence[Object]) -> Iterator[tuple[list[Object], Grid]]:
    """Tables without ruled lines: lines side by side, at least twice one below the other, in columns that no line
    crosses. A line alone below a cell continues it."""
    run: list[list[Object]] = []
    for row in [*_group_rows(lines), []]:
        longer = [*run, row]
        if row and _fit_columns(longer) and (len(row) > 1 or (run and row[0]["top"] - _find_bottom(run[-1]) < NEAR)):
            run = longer
            continue
        if len([row for row in run if len(row) > 1]) > 1 and (grid := _make_grid(run)):
            yield [line for row in run for line in row], grid
        run = [row] if len(row) > 1 else []


def _group_rows(lines: Sequence[Object]) -> Iterator[list[Object]]:
    """Lines side by side, from the top, each row from the left."""
    row: list[Object] = []
    for line in sorted(lines, key=lambda line: line["top"]):
        if row and (line["top"] + line["bottom"]) / 2 > _find_bottom(row):
            yield sorted(row, key=lambda line: line["x0"])
            row = []
        row.append(line)
    if row:
        yield sorted(row, key=lambda line: line["x0"])


def _find_bottom(row: Sequence[Object]) -> float:
    return min(line["bottom"] for line in row)


def _find_columns(rows: Sequence[Sequence[Object]]) -> list[tuple[float, float]]:
    """Where each column begins and ends: parts of the width that lines cover, with gaps between them."""
    columns: list[tuple[float, float]] = []
    for line in sorted((line for row in rows for line in row), key=lambda line: line["x0"]):
        if columns and line["x0"] < columns[-1][1]:
            columns[-1] = columns[-1][0], max(columns[-1][1], line["x1"])
        else:
            columns.append((line["x0"], line["x1"]))
    return columns


def _place(line: Object, columns: Iterable[tuple[float, float]]) -> int:
    return next(number for number, (start, end) in enumerate(columns) if start <= line["x0"] <= end)


def _fit_columns(rows: Sequence[Sequence[Object]]) -> bool:
    """Whether no two lines of a row stand in one column."""
    columns = _find_columns(rows)
    return all(len({_place(line, columns) for line in row}) == len(row) for row in rows)


def _make_grid(rows: Sequence[Sequence[Object]]) -> Grid | None:
    """None where the columns are of prose."""
    columns = _find_columns(rows)
    texts: list[list[str]] = []
    held = defaultdict[int, list[str]](list)
    for row in rows:
        if len(row) > 1:
            texts.append([""] * len(columns))
        for line in row:
            number, text = _place(line, columns), line["text"].strip()
            texts[-1][number] = f"{texts[-1][number]} {text}".strip()
            held[number].append(text)
    lengths = sorted(sum(map(len, own)) / len(own) for own in held.values())
    if lengths[0] > SHORT or lengths[-2] > LONG:
        return None
    return Grid([[Cell(text) for text in row] for row in texts])
