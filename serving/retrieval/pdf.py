"""PDF as Markdown, each page after a form feed, in the order in which it is read.

Most word processors and browsers write *tagged* PDF, which names its headings, paragraphs, lists and tables: that is
what is read of it (ISO 32000-1, section 14.8). Of a page without tags the layout is read
(`serving.retrieval.page_layout`), and as headings what is set larger than most of the text.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import groupby, pairwise
from unicodedata import normalize

import pdfplumber
from pdfplumber.page import Page
from pdfplumber.utils import extract_text

from revelator.errors import DataError
from serving.retrieval.filters import Value
from serving.retrieval.page_layout import Block, Grid, Object, Text, join_lines, read_layout
from serving.retrieval.table_layout import Cell, escape, spread_cells, write_table

logging.getLogger("pdfminer").setLevel(logging.CRITICAL)

HEADINGS = {"Title": 1, "H": 2} | {f"H{level}": level for level in range(1, 7)}
BLOCKS = HEADINGS.keys() | {"P", "LI", "Table", "BlockQuote", "Caption", "TOCI", "Div", "Sect", "Art", "Part"}
TAGGED = 0.8  # of the characters of a page, at least, for its tags to be trusted; the rest are heads, feet and numbers
LARGER = 1.15  # times the size of most of the text is a heading,
LONGEST_HEADING = 150  # in characters
EDGE = 0.12  # of the height of a page, at its top and bottom, where running heads and feet stand
NO_TITLE = re.compile(
    r"untitled.*|microsoft (word|powerpoint|excel)\b.*|(powerpoint )?presentation|(document|slide|print) ?\d*"
    r"|([a-z]:|file:|https?:|/).*|\S+\.[a-z]\w{1,4}",
    re.IGNORECASE,
)
DATES = {"CreationDate": "created", "ModDate": "modified"}
DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})(\d{2})")  # ISO 32000-1, section 7.9.4
LONGEST_TITLE = 200  # in characters
LIGATURES = re.compile("[\ufb00-\ufb06]")


def convert_pdf(data: bytes) -> str:
    """The Markdown of a PDF. Raises DataError where no page holds text."""
    pages: list[list[Block]] = []
    analysis = {"all_texts": True}  # also within drawings
    with pdfplumber.open(BytesIO(data)) as tagged, pdfplumber.open(BytesIO(data), laparams=analysis) as laid_out:
        for page, same in zip(tagged.pages, laid_out.pages, strict=True):
            pages.append(_read_tags(page) or read_layout(same))
            page.close()  # frees its objects
            same.close()
        title = _read_title(tagged.metadata)
    if not any(pages):
        raise DataError("a scan: no page holds text, so it was not read", hint="recognise its text first (OCR)")
    for before, after in pairwise(pages):
        _continue_table(before, after)
    sizes = Counter[int]()
    for block in (block for page in pages for block in page if isinstance(block, Text) and block.level is None):
        sizes[round(block.size)] += len(block.text)
    usual = max(sizes, key=sizes.__getitem__, default=0)
    pages = _remove_running(pages, LARGER * usual)
    larger = sorted((size for size in sizes if size > LARGER * usual), reverse=True)
    written = ["\f\n\n" + "".join(f"{_write(block, larger, title)}\n\n" for block in page) for page in pages]
    if title and any(pages):
        written[0] = written[0].replace("\f\n\n", f"\f\n\n# {escape(title)}\n\n", 1)
    return LIGATURES.sub(lambda match: normalize("NFKC", match[0]), "".join(written))


def read_dates(data: bytes) -> dict[str, Value]:
    """When it was made and changed last, as far as the file says; nothing of one that cannot be read."""
    try:
        with pdfplumber.open(BytesIO(data)) as pdf:
            said = {name: pdf.metadata.get(key) for key, name in DATES.items()}
    except MemoryError:
        raise
    except Exception:  # whatever its library raises about a damaged file: who reads its text says so
        return {}
    found = {name: DATE.match(value) for name, value in said.items() if isinstance(value, str)}
    return {name: "-".join(match.groups()) for name, match in found.items() if match}


def _read_title(metadata: Object) -> str:
    title = metadata.get("Title")
    text = " ".join(title.split()) if isinstance(title, str) else ""
    says = any(map(str.isalpha, text)) and len(text) <= LONGEST_TITLE and not NO_TITLE.fullmatch(text)
    return text if says else ""


def _remove_running(pages: Sequence[list[Block]], largest: float) -> list[list[Block]]:
    """The pages without running heads and feet, which are no larger than text is."""

    def find(block: Block) -> tuple[str, int] | None:
        if not isinstance(block, Text) or EDGE < block.place < 1 - EDGE or block.size > largest:
            return None
        return re.sub(r"\d+", "0", block.text), round(block.place * 100)

    times = Counter(key for page in pages for key in set(map(find, page)) if key)
    return [[block for block in page if times[find(block) or ("", 0)] < 2] for page in pages]


def _write(block: Block, larger: Sequence[int], title: str) -> str:
    """`larger` are the sizes of headings, the largest first; they are below the document's `title`, if it has one."""
    if isinstance(block, Grid):
        return write_table(block.rows[: block.head], block.rows[block.head :], block.caption)
    level = block.level or 0
    if block.level is None and round(block.size) in larger and len(block.text) <= LONGEST_HEADING:
        level = 1 + larger.index(round(block.size))
    if level and title:
        if block.text.casefold() == title.casefold():
            return ""
        level += 1
    return f"{'#' * min(level, 6)} {escape(block.text)}" if level else f"{block.bullet}{escape(block.text)}"


def _continue_table(before: list[Block], after: list[Block]) -> None:
    """Gives a table that goes on from the page before the header that it has there. A foot and a head may be between
    the two."""
    last = next((block for block in before[-2:][::-1] if isinstance(block, Grid) and block.rows), None)
    first = next((block for block in after[:2] if isinstance(block, Grid) and block.rows), None)
    width = len(last.rows[0]) if last else 0
    if last and first and not first.head and len(first.rows[0]) == width and (last.head or width > 2):
        head = last.rows[: last.head or 1]
        if first.rows[: len(head)] != head:
            first.rows = [*head, *first.rows]
        first.head = last.head


def _read_tags(page: Page) -> list[Block]:
    """The blocks of a tagged page; none where it has no tags, or too few."""
    try:
        tree = page.structure_tree
        named = {mark for node in tree for mark in _list_marks(node)}
    except MemoryError:
        raise
    except Exception:  # pdfplumber asserts what some writers do not keep to; the layout is there in any case
        return []
    if not named:
        return []
    marked = defaultdict[int | None, list[Object]](list)
    mark = None
    for char in page.chars:  # in the order of the file; pdfplumber knows no mark after a tag within it has ended
        mark = mark if char.get("mcid") is None and char.get("tag") != "Artifact" else char.get("mcid")
        marked[mark].append(char)
    if sum(len(marked[mark]) for mark in named) < TAGGED * len(page.chars):
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

    def read(self, node: Object) -> Iterator[Block]:
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
        if kind == "LI" and blocks and isinstance(blocks[0], Text):
            blocks[0] = replace(blocks[0], bullet="- ")
        yield from blocks

    def _read_text(self, node: Object, level: int = 0) -> Iterator[Block]:
        if text := self._find_text(node) or node.get("alt_text", ""):
            yield Text(text, level)

    def _find_text(self, node: Object) -> str:
        chars = [char for mark in _list_marks(node) for char in self.marked.get(mark, ())]
        return join_lines(extract_text(chars, use_text_flow=True).splitlines()) if chars else ""

    def _read_table(self, table: Object) -> Block:
        rows, heads = [], []
        for row, is_head in _find_rows(table):
            rows.append([self._read_cell(cell) for cell in row.get("children", ())])
            heads.append(is_head)
        head = heads.index(False) if False in heads else min(len(heads), 1)
        captions = [self._find_text(child) for child in table.get("children", ()) if child["type"] == "Caption"]
        return Grid(spread_cells(rows), head, " ".join(captions))

    def _read_cell(self, cell: Object) -> tuple[Cell, int, int]:
        spans = cell.get("attributes", {})
        return Cell(self._find_text(cell)), int(spans.get("RowSpan", 1)), int(spans.get("ColSpan", 1))
