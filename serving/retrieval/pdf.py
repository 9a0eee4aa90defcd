"""PDF as Markdown, each page after a form feed, in the order in which it is read.

Most word processors and browsers write *tagged* PDF, which names its headings, paragraphs, lists and tables: that is
what is read of it (ISO 32000-1, section 14.8). Of a page without tags the layout is read: paragraphs (pdfminer's
analysis) column by column, tables between ruled lines (pdfplumber's) and in aligned columns without lines, and as
headings what is set larger than most of the text.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import groupby, pairwise
from typing import Any
from unicodedata import normalize

import pdfplumber
from pdfminer.layout import LTContainer, LTTextBox
from pdfplumber.page import Page
from pdfplumber.table import Table
from pdfplumber.utils import extract_text

from revelator.errors import DataError
from serving.retrieval.table_layout import Cell, escape, spread_cells, write_table

logging.getLogger("pdfminer").setLevel(logging.CRITICAL)

HEADINGS = {"Title": 1, "H": 2} | {f"H{level}": level for level in range(1, 7)}
BLOCKS = {
    *HEADINGS,
    "P",
    "L",
    "LI",
    "LBody",
    "Table",
    "Sect",
    "Div",
    "Art",
    "Part",
    "BlockQuote",
    "Caption",
    "TOC",
    "TOCI",
}
TAGGED = 0.8  # of the characters of a page, at least, for its tags to be trusted; the rest are heads, feet and numbers
LARGER = 1.15  # times the size of most of the text is a heading,
LONGEST_HEADING = 150  # in characters
LIGATURES = re.compile("[\ufb00-\ufb06]")
SHORT = 20  # characters of a line, on average in one column at least: prose in columns has longer ones
Object = dict[str, Any]  # of pdfplumber: `x0`, `x1`, `top`, `bottom` in points from the upper left, `text`


@dataclass(frozen=True)
class _Text:
    """`level` is that of a heading, 0 of other text, and None where `size` (points) tells which it is."""

    text: str
    level: int | None = 0
    size: float = 0.0
    bullet: str = ""


@dataclass
class _Grid:
    rows: list[list[Cell]]
    head: int = 0  # rows of the header
    caption: str = ""


_Block = _Text | _Grid
_Area = tuple[float, float, float, float]  # left, top, right and bottom
_Unit = tuple[_Area, _Block]


def convert_pdf(data: bytes) -> str:
    """The Markdown of a PDF. Raises DataError where no page holds text."""
    pages: list[list[_Block]] = []
    analysis = {"all_texts": True}  # also within drawings
    with pdfplumber.open(BytesIO(data)) as tagged, pdfplumber.open(BytesIO(data), laparams=analysis) as laid_out:
        for page, same in zip(tagged.pages, laid_out.pages, strict=True):
            pages.append(_read_tags(page) or _read_layout(same))
            page.close()  # frees its objects
            same.close()
    if not any(pages):
        raise DataError("a scan: no page holds text, so it was not read", hint="recognise its text first (OCR)")
    for before, after in pairwise(pages):
        _continue_table(before, after)
    sizes = Counter[int]()
    for block in (block for page in pages for block in page if isinstance(block, _Text) and block.level is None):
        sizes[round(block.size)] += len(block.text)
    usual = max(sizes, key=sizes.__getitem__, default=0)
    larger = sorted((size for size in sizes if size > LARGER * usual), reverse=True)
    written = ("\f\n\n" + "".join(f"{_write(block, larger)}\n\n" for block in page) for page in pages)
    return LIGATURES.sub(lambda match: normalize("NFKC", match[0]), "".join(written))


def _write(block: _Block, larger: Sequence[int]) -> str:
    """`larger` are the sizes of headings, the largest first."""
    if isinstance(block, _Grid):
        return write_table(block.rows[: block.head], block.rows[block.head :], block.caption)
    level = block.level or 0
    if block.level is None and round(block.size) in larger and len(block.text) <= LONGEST_HEADING:
        level = 1 + larger.index(round(block.size))
    return f"{'#' * min(level, 6)} {escape(block.text)}" if level else f"{block.bullet}{escape(block.text)}"


def _continue_table(before: list[_Block], after: list[_Block]) -> None:
    """Gives a table that goes on from the page before the header that it has there. A foot and a head may be between
    the two."""
    last = next((block for block in before[-2:][::-1] if isinstance(block, _Grid)), None)
    first = next((block for block in after[:2] if isinstance(block, _Grid)), None)
    width = len(last.rows[0]) if last else 0
    if last and first and not first.head and len(first.rows[0]) == width and (last.head or width > 2):
        head = last.rows[: last.head or 1]
        if first.rows[: len(head)] != head:
            first.rows = [*head, *first.rows]
        first.head = last.head


def _read_tags(page: Page) -> list[_Block]:
    """The blocks of a tagged page; none where it has no tags, or too few."""
    try:
        tree = page.structure_tree
    except MemoryError:
        raise
    except Exception:  # pdfplumber asserts what some writers do not keep to; the layout is there in any case
        return []
    marked = defaultdict[int | None, list[Object]](list)
    mark = None
    for char in page.chars:  # in the order of the file; pdfplumber knows no mark after a tag within it has ended
        mark = mark if char.get("mcid") is None and char.get("tag") != "Artifact" else char.get("mcid")
        marked[mark].append(char)
    named = {mark for node in tree for mark in _list_marks(node)}
    if not page.chars or sum(len(marked[mark]) for mark in named) < TAGGED * len(page.chars):
        return []
    return [block for node in tree for block in _TagReader(marked).read(node)]


def _list_marks(node: Object) -> list[int]:
    """The marks of the content of an element and of all within it; they are numbered in the order of the page."""
    inner = (mark for child in node.get("children", ()) for mark in _list_marks(child))
    return sorted([*node.get("mcids", ()), *inner])


def _is_block(node: Object) -> bool:
    return node["type"] in BLOCKS or any(map(_is_block, node.get("children", ())))


def _find_rows(node: Object) -> Iterator[tuple[Object, bool]]:
    """The rows of a table, and whether each is of its header."""
    for child in node.get("children", ()):
        if child["type"] == "TR":
            cells = [cell["type"] for cell in child.get("children", ())]
            yield child, node["type"] == "THead" or set(cells) == {"TH"}
        else:
            yield from _find_rows(child)


@dataclass(frozen=True)
class _TagReader:
    """Reads the elements of a page's tree, whose text is the characters of their marks."""

    marked: dict[int | None, list[Object]]

    def read(self, node: Object) -> Iterator[_Block]:
        kind, children = node["type"], [child for child in node.get("children", ()) if child["type"] != "Lbl"]
        if kind == "Table":
            yield self._read_table(node)
            return
        if kind in HEADINGS or not any(map(_is_block, children)):
            blocks = list(self._read_text({**node, "children": children}, HEADINGS.get(kind, 0)))
        else:
            blocks = list(self._read_text({"mcids": node.get("mcids", ())}))
            for is_block, part in groupby(children, _is_block):
                own = list(part)
                inner = map(self.read, own) if is_block else [self._read_text({"children": own})]
                blocks += [block for each in inner for block in each]
        if kind == "LI" and blocks and isinstance(blocks[0], _Text):
            blocks[0] = replace(blocks[0], bullet="- ")
        yield from blocks

    def _read_text(self, node: Object, level: int = 0) -> Iterator[_Block]:
        if text := self._find_text(node) or node.get("alt_text", ""):
            yield _Text(text, level)

    def _find_text(self, node: Object) -> str:
        chars = [char for mark in _list_marks(node) for char in self.marked.get(mark, ())]
        return " ".join(extract_text(chars, use_text_flow=True).split()) if chars else ""

    def _read_table(self, table: Object) -> _Block:
        rows, heads = [], []
        for row, is_head in _find_rows(table):
            rows.append([self._read_cell(cell) for cell in row.get("children", ())])
            heads.append(is_head)
        head = heads.index(False) if False in heads else min(len(heads), 1)
        captions = [self._find_text(child) for child in table.get("children", ()) if child["type"] == "Caption"]
        return _Grid(spread_cells(rows), head, " ".join(captions))

    def _read_cell(self, cell: Object) -> tuple[Cell, int, int]:
        spans = cell.get("attributes", {})
        return Cell(self._find_text(cell)), int(spans.get("RowSpan", 1)), int(spans.get("ColSpan", 1))


def _read_layout(page: Page) -> list[_Block]:
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
                units.append((_surround(lines), _Text(text, None, size)))
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


def _read_ruled(table: Table) -> _Grid:
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

    return _Grid([[find(b, x, row.bbox[1]) for b, x in zip(row.cells, lefts, strict=True)] for row in table.rows])


def _find_aligned(lines: Sequence[Object]) -> Iterator[tuple[list[Object], _Grid]]:
    """Tables without ruled lines: lines side by side, at least twice one below the other, in columns that no line
    crosses. A line alone below a cell continues it."""
    run: list[list[Object]] = []
    for row in [*_group_rows(lines), []]:
        longer = [*run, row]
        if row and _fit_columns(longer) and (len(row) > 1 or (run and row[0]["top"] - _find_bottom(run[-1]) < 4)):
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


def _make_grid(rows: Sequence[Sequence[Object]]) -> _Grid | None:
    """None where every column is of prose, or one of bullets alone."""
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
    lengths = [sum(map(len, own)) / len(own) for own in held.values()]
    if min(lengths) > SHORT or not all(any(map(str.isalnum, "".join(own))) for own in held.values()):
        return None
    return _Grid([[Cell(text) for text in row] for row in texts])
