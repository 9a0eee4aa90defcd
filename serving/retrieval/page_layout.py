"""A page of a PDF without tags, read by where its lines stand.

A table stands between ruled lines, which pdfplumber finds, or is text in aligned columns. Other lines lie in pdfminer's
boxes, which are read column by column. A line continues the one above it where that is full: the next word would not
have fitted. pdfminer may put each line of a paragraph into a box of its own, or a heading and text into one.
"""

from __future__ import annotations

import re
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
INDENT = 3  # heights of a line: how far the lines of a paragraph may begin from each other
SPACING = 1.3  # heights of a line, at most, between two lines of a paragraph
SAME_SIZE = 1.1  # times the height of a line, at most, is one of the same paragraph
BULLET = re.compile(r"[•◦▪‣·●○■\uf0b7]\s*")
MARK = re.compile(r"(?:[-–—*]|\d{1,3}[.)]|\(?[a-z]\))\s")  # begins an item, or is within a sentence
SENTENCE_END = re.compile(r"[.!?:;。！？][\"'”’»)\]]*$")
HYPHEN = re.compile(r"(?<=[^\W\d_])(?:\u00ad|[-\u2010])$")
Object = dict[str, Any]  # of pdfplumber: `x0`, `x1`, `top`, `bottom` in points from the upper left, `text`


@dataclass(frozen=True)
class Text:
    """`level` is that of a heading, 0 of other text, and None where `size` (points) tells which it is. `place` is the
    middle as a share of the page's height."""

    text: str
    level: int | None = 0
    size: float = 0.0
    bullet: str = ""
    place: float = 0.5


@dataclass
class Grid:
    rows: list[list[Cell]]
    head: int = 0  # rows of the header
    caption: str = ""


Block = Text | Grid
_Area = tuple[float, float, float, float]  # left, top, right and bottom
_Unit = tuple[_Area, Grid | list[Object]]  # the lines of a box, or of a part of one


def read_layout(page: Page) -> list[Block]:
    """The blocks of a page without tags, in the order in which they are read."""
    boxes = [[_read_line(page, line) for line in box] for box in _find_boxes(page.layout)]
    marks = [line for box in boxes for line in box if not any(map(str.isalnum, line["text"]))]
    boxes = [[line for line in box if any(map(str.isalnum, line["text"]))] for box in boxes]
    for line in (line for box in boxes for line in box):
        line["bullet"] = any(_is_before(mark, line) for mark in marks)
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
                units.append((_surround(lines), lines))
    blocks: list[Block] = []
    for is_grid, own in groupby((content for _, content in _order(units)), lambda content: isinstance(content, Grid)):
        if is_grid:
            blocks += [grid for grid in own if isinstance(grid, Grid)]
        else:
            blocks += _write_paragraphs([lines for lines in own if isinstance(lines, list)], float(page.height))
    return blocks


def _read_line(page: Page, line: Any) -> Object:
    """A line of pdfminer as an object of pdfplumber; `bold` says whether all of it is."""
    fonts = [char.fontname for char in line if hasattr(char, "fontname") and char.get_text().strip()]
    return {**page.process_object(line), "bold": bool(fonts) and all("bold" in font.lower() for font in fonts)}


def _is_before(mark: Object, line: Object) -> bool:
    """Whether a mark without letters is the bullet of a line."""
    middle, height = (mark["top"] + mark["bottom"]) / 2, line["bottom"] - line["top"]
    is_beside = line["top"] <= middle <= line["bottom"] and mark["x1"] - 1 <= line["x0"] < mark["x1"] + INDENT * height
    return is_beside and bool(BULLET.match(mark["text"]) or mark["text"].strip() in ("-", "–", "*"))


def _write_paragraphs(boxes: Sequence[Sequence[Object]], height: float) -> Iterator[Text]:
    """The paragraphs, items and headings of boxes that are read one after the other, on a page of this `height`."""
    for run in _find_runs(boxes):
        right = max(line["x1"] for line in run)
        paragraph: list[Object] = []
        for line in run:
            if paragraph and not _continues(paragraph[-1], line, right):
                yield _write_paragraph(paragraph, height)
                paragraph = []
            paragraph.append(line)
        yield _write_paragraph(paragraph, height)


def _find_runs(boxes: Sequence[Sequence[Object]]) -> Iterator[list[Object]]:
    """Lines of one size below each other, so near that they may be one paragraph."""
    run: list[Object] = []
    for box in boxes:
        for number, line in enumerate(box):
            if run and not (_is_alike(run[-1], line) and (number or _is_below(run[-1], line))):
                yield run
                run = []
            run.append({**line, "first": number == 0})
    if run:
        yield run


def _is_alike(before: Object, line: Object) -> bool:
    sizes = sorted(each["bottom"] - each["top"] for each in (before, line))
    return sizes[1] <= SAME_SIZE * sizes[0]


def _is_below(before: Object, line: Object) -> bool:
    size = before["bottom"] - before["top"]
    gap, shift = line["top"] - before["bottom"], line["x0"] - before["x0"]
    return -size / 2 < gap < SPACING * size and abs(shift) < INDENT * size


def _continues(before: Object, line: Object, right: float) -> bool:
    """Whether a line goes on with the sentence or paragraph of the one `before`; lines end at `right`, if full."""
    text, last = line["text"].strip(), before["text"].strip()
    is_end = bool(SENTENCE_END.search(last))
    word = text.split(maxsplit=1)[0]
    width = (line["x1"] - line["x0"]) * (len(word) + 1) / (len(text) + 1)
    is_full = before["x1"] + width >= right
    if line["bullet"] or BULLET.match(text) or (MARK.match(text) and (is_end or not is_full)):
        return False
    if last.endswith(",") or (text[0].islower() and not is_end):
        return True
    return is_full and before["bold"] == line["bold"] and not (is_end and line["first"])


def _write_paragraph(lines: Sequence[Object], height: float) -> Text:
    text = join_lines(line["text"] for line in lines)
    mark = BULLET.match(text) or re.match(r"[-–*]\s+", text)
    size = min(line["bottom"] - line["top"] for line in lines)
    place = (lines[0]["top"] + lines[-1]["bottom"]) / 2 / height
    return Text(text[mark.end() :] if mark else text, None, size, "- " if mark or lines[0]["bullet"] else "", place)


def join_lines(lines: Iterable[str]) -> str:
    """The lines of a paragraph as one. A word that was divided at the end of a line is whole again."""
    text = ""
    for line in (" ".join(line.split()) for line in lines):
        if text and line and (hyphen := HYPHEN.search(text)):
            text = text[: hyphen.start()] + line if line[0].islower() else text + line
        else:
            text = f"{text} {line}".strip()
    return text.replace("\u00ad", "")


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
