"""HTML as Markdown: the text of a page without what every page of its site has, and tables with their structure.

The text of a page is its `<main>`. Without one it is the deepest element that holds nearly all of what trafilatura
takes for the text; inside of it nothing is lost. Where that is less than half of the page, as in a list of links, the
whole page counts. Navigation, footers and dialogues are marked as such, and always left out.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from bs4 import BeautifulSoup, NavigableString, Tag
from bs4.exceptions import ParserRejectedMarkup
from markdownify import ATX, MarkdownConverter

from serving.retrieval.table_layout import Cell, escape, spread_cells, write_table

MARKED = "nav, footer, dialog, template, noscript, script, style, " + ", ".join(
    f"[role={role}]" for role in ("navigation", "banner", "contentinfo", "search", "dialog", "alertdialog")
)
BOXES = ("div", "section", "article", "aside", "header", "form", "ul")
MOST, HALF = 0.9, 0.5
LARGEST_PAGE = 2_000_000  # characters of a page in which the text is looked for: it takes seconds
BLOCKS = ("p", "div", "li", "br", "dt", "dd", "tr", "pre", "blockquote", "h1", "h2", "h3", "h4", "h5", "h6")
SPANNED = 1000  # columns of a cell, at most, as in HTML's standard


def convert_page(data: bytes) -> str:
    """The Markdown of a page; its title is the first heading where its text has none of the first level."""
    try:
        soup = BeautifulSoup(data, "html.parser", from_encoding="utf-8")
    except ParserRejectedMarkup:
        soup = _parse(data.decode("utf-8-sig", "replace"))
    heading = soup.h1 or soup.title
    title = escape(heading.get_text(" ")) if heading else ""
    main = _find_main(soup)
    text = _write(main)
    return text if main.h1 or not title else f"# {title}\n\n{text}"


def convert_fragment(html: str) -> str:
    """The Markdown of HTML that is text alone."""
    return _write(_parse(html))


def _parse(html: str) -> BeautifulSoup:
    try:
        return BeautifulSoup(html, "html.parser")
    except ParserRejectedMarkup:  # a section that it does not know, `<![x[`: it is text
        return BeautifulSoup(html.replace("<![", "&lt;!["), "html.parser")


def _find_main(soup: BeautifulSoup) -> Tag:
    body = soup.body or soup
    for tag in body.select(MARKED):
        tag.extract()
    mains = body.select("main, [role=main]")
    if len(mains) == 1:
        return mains[0]
    html = str(body)
    if len(html) > LARGEST_PAGE:
        return body
    said = _fold(_extract_text(html))
    total, kept = Counter[int](), Counter[int]()  # letters of each element, by its id
    for node in reversed(list(body.descendants)):  # what is within an element before the element
        if type(node) is NavigableString:
            letters = _fold(node)
            total[id(node)], kept[id(node)] = len(letters), len(letters) if letters in said else 0
        total[id(node.parent)] += total[id(node)]
        kept[id(node.parent)] += kept[id(node)]
    main, wanted = body, MOST * kept[id(body)]
    while inner := next((tag for tag in main.find_all(BOXES, recursive=False) if kept[id(tag)] > wanted), None):
        main = inner
    others = [tag for tag in main.find_all(BOXES, recursive=False) if kept[id(tag)] < HALF * total[id(tag)]]
    if total[id(main)] - sum(total[id(tag)] for tag in others) < HALF * total[id(body)]:
        return body
    for tag in others:
        tag.extract()
    return main


def _extract_text(html: str) -> str:
    import trafilatura  # a second to import
    from trafilatura.settings import use_config

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    settings = use_config()
    settings["DEFAULT"]["MIN_EXTRACTED_SIZE"] = "1"  # characters: a short page has a text, too
    return trafilatura.extract(html, favor_recall=True, config=settings) or ""


def _fold(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


class _Converter(MarkdownConverter):
    """Writes text that Markdown reads as it is, links and pictures as their texts, and tables by `table_layout`."""

    class Options:
        heading_style = ATX
        escape_misc = True

    convert_main = convert_header = convert_aside = MarkdownConverter.convert_div  # type: ignore[attr-defined]
    convert_figure = convert_details = convert_summary = convert_address = convert_main

    def convert_a(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return text

    def convert_img(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return escape(str(el.get("alt") or ""))

    def convert_dt(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"\n\n{text.strip().rstrip(':')}: "

    def convert_dd(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"{text.strip()}\n\n"

    def convert_table(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"\n\n{_write_table(el)}\n\n"


def _write(tag: Tag) -> str:
    for table in tag.find_all("table"):
        if table.table or len(table.find_all(("td", "th"))) == 1:  # it lays out a page, or draws a box
            for part in table.find_all(("thead", "tbody", "tfoot", "tr", "td", "th", "caption")):
                if part.find_parent("table") is table:
                    part.name = "div"
            table.name = "div"
    try:
        return str(_Converter().convert_soup(tag)).strip("\n")
    except RecursionError:  # deeper than some 300 elements
        return "\n\n".join(escape(text) for text in tag.stripped_strings)


def _write_table(table: Tag) -> str:
    parts = {"thead": 0, "tfoot": 2}
    lines = sorted(table.find_all("tr"), key=lambda line: parts.get(_name_parent(line), 1))
    rows = spread_cells([[_read_cell(cell) for cell in line.find_all(("td", "th"), recursive=False)] for line in lines])
    marked = [_name_parent(line) == "thead" or _is_header(line) for line in lines]
    head = marked.index(False) if False in marked else min(len(marked), 1)
    return write_table(rows[:head], rows[head:], table.caption.get_text(" ") if table.caption else "")


def _name_parent(line: Tag) -> str:
    return line.parent.name if line.parent else ""


def _is_header(line: Tag) -> bool:
    return {cell.name for cell in line.find_all(True, recursive=False)} == {"th"}


def _read_cell(tag: Tag) -> tuple[Cell, int, int]:
    """The text of a cell, and the rows and columns that it covers. Commas separate its blocks and lines, except in a
    header, whose lines are broken for width."""
    for picture in tag.find_all("img"):
        picture.replace_with(str(picture.get("alt") or ""))
    for block in tag.find_all(BLOCKS):
        block.insert_before("\0")
        block.insert_after("\0")
    lines = [" ".join(line.split()) for line in tag.get_text().split("\0")]
    text = ""
    for line in filter(None, lines):
        text += f"{', ' if tag.name == 'td' and text[-1].isalnum() else ' '}{line}" if text else line
    return Cell(text), _read_span(tag, "rowspan"), min(_read_span(tag, "colspan") or 1, SPANNED)


def _read_span(tag: Tag, name: str) -> int:
    value: Any = tag.get(name, "1")
    return int(value) if str(value).isdecimal() else 1
