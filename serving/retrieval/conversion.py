"""Files of every kind that is read → Markdown: by MarkItDown where it keeps what matters, else by the libraries below.

Read are of DOCX text, headings, tables and footnotes; of XLSX the values that were calculated last; of PPTX slides and
notes; of e-mails the head and the text, without attachments; of notebooks text and code, without outputs. AsciiDoc has
no parser in Python: headings, lists, listings and simple tables are read, other marks stay in the text. What a file
refers to is never read.
"""

from __future__ import annotations

import re
import warnings
from bisect import bisect_left, bisect_right
from datetime import datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from io import BytesIO
from itertools import pairwise, product
from typing import Any

from markitdown import StreamInfo, converters

from serving.retrieval.cutting import write_fact
from serving.retrieval.documents import PartlyRead
from serving.retrieval.markup import convert_fragment, convert_page
from serving.retrieval.table_layout import Cell, escape, spread_cells, write_table

HEAD = ("From", "To", "Cc", "Date")  # of an e-mail; its subject is the title
STYLES = "p[style-name='Title'] => h1:fresh\n" + "\n".join(
    f"p[style-name='Heading {level}'] => h{level + 1}:fresh" for level in range(1, 6)
)
ADOC_TABLE = re.compile(r"^(?P<above>(?:[.\[][^\n]*\n){0,4})\|={3,}\n(?P<rows>.*?)^\|={3,}$", re.MULTILINE | re.DOTALL)
ADOC_HEADER = re.compile(r"\A(?P<title>= \S.*\n)?(?P<rest>(?:[^\n=\[|.].*\n)*)")
ADOC_NAMES = {"revdate": "Revision date", "revnumber": "Revision", "revremark": "Remark", "orgname": "Organization"}
ADOC_AUTHOR = re.compile(r"[^\W\d_][^\s,:]*(?: [^\s,:<]+){0,2}(?: <\S+>)?(?<![.!?])")
ADOC_REVISION = re.compile(r"v?\d[\w.]*(?:, .*)?")
ADOC_SETTINGS = re.compile(
    r"toc.*|.*(?:dir|highlighter|highlight|font|fonts|style|stylesheet|caption|label|prefix|separator|suffix|css|theme)"
    r"|doctype|icons.*|sect.*|id\w*|lang|experimental|encoding|backend|compat-mode|pdf-.*|page-.*|url-.*|uri-.*|.*-url"
)
NO_VALUE = re.compile(  # of a formula in a sheet's XML; the value of type `str` may be an empty string
    rb"<c\b(?![^>]*\bt=[\"']str[\"'])[^>]*>\s*<f\b[^>]*(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>"
)
RST_SETTINGS = {
    "file_insertion_enabled": False,
    "raw_enabled": False,
    "_disable_config": True,
    "embed_stylesheet": False,
    "syntax_highlight": "none",
    "report_level": 3,  # of a directive that it does not know, docutils quotes the text in its message
    "halt_level": 5,
    "warning_stream": False,
}


def convert(data: bytes, kind: str, stem: str) -> str:
    """The Markdown of a file of a `kind` (".docx") whose name without ending is `stem`. Its libraries raise whatever
    they like where the file is damaged."""
    match kind:
        case ".html" | ".htm":
            return convert_page(data)
        case ".pdf":
            from serving.retrieval.pdf import convert_pdf  # half a second to import

            return convert_pdf(data)
        case ".docx":
            return _convert_docx(data)
        case ".xlsx":
            return _convert_workbook(data, stem)
        case ".pptx":
            return _convert_slides(data)
        case ".eml":
            return _convert_email(data)
        case ".ipynb":
            return converters.IpynbConverter().convert(BytesIO(data), StreamInfo()).markdown
    text = converters.PlainTextConverter().convert(BytesIO(data), StreamInfo()).markdown
    if kind == ".rst":
        return _convert_rst(text)
    return _convert_asciidoc(text) if kind in (".adoc", ".asciidoc") else text


def _convert_docx(data: bytes) -> str:
    import mammoth
    from markitdown.converter_utils.docx.pre_process import pre_process_docx  # equations as LaTeX

    without_pictures = mammoth.images.img_element(lambda _: {})
    file = pre_process_docx(BytesIO(data))
    return convert_fragment(mammoth.convert_to_html(file, style_map=STYLES, convert_image=without_pictures).value)


def _convert_workbook(data: bytes, stem: str) -> str:
    """Each sheet is a section, and rows between empty ones are a table. `data` is not compressed."""
    from openpyxl import load_workbook

    if count := len(NO_VALUE.findall(data)):
        advice = "open and save the file in a spreadsheet program"
        warnings.warn(f"formula cells without a stored value: {count:,} ({advice})", PartlyRead, stacklevel=2)
    sections = []
    for sheet in load_workbook(BytesIO(data), data_only=True).worksheets:
        if tables := _find_tables(sheet):
            sections += [f"## {escape(sheet.title)}", *(write_table([], table) for table in tables)]
    return "\n\n".join([f"# {escape(stem)}", *sections]) if sections else ""


def _find_tables(sheet: Any) -> list[list[list[Cell]]]:
    """The rows between empty ones, without the columns of the sheet in which nothing stands. Only cells that the file
    holds are looked at: a single one in the last corner of a sheet would make 17 billion."""
    cells = {place: Cell(text) for place, cell in sheet._cells.items() if (text := _write_value(cell))}
    merged = [area for area in sheet.merged_cells.ranges if (area.min_row, area.min_col) in cells]
    rows = sorted({y for y, _ in cells})
    columns = sorted({x for _, x in cells} | {x for area in merged for x in (area.min_col, area.max_col)})
    for area in merged:
        below = rows[bisect_left(rows, area.min_row) : bisect_right(rows, area.max_row)]
        beside = columns[bisect_left(columns, area.min_col) : bisect_right(columns, area.max_col)]
        cells |= dict.fromkeys(product(below, beside), cells[area.min_row, area.min_col])
    tables: list[list[list[Cell]]] = []
    for before, y in pairwise([-1, *rows]):
        if y > before + 1:
            tables.append([])
        tables[-1].append([cells.get((y, x), Cell()) for x in columns])
    return tables


def _write_value(cell: Any) -> str:
    """A value as its sheet shows it, as far as that is not a matter of layout: dates, percentages, 15 digits."""
    value = cell.value
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == datetime.min.time() else value.isoformat(" ")
    if isinstance(value, float):
        return f"{value * 100:.15g} %" if cell.number_format.endswith("%") else f"{value:.15g}"
    return "" if value is None else str(value)


class _SlideConverter(converters.PptxConverter):
    """Knows which tables have a header, and fills merged cells."""

    def _convert_table_to_markdown(self, table: Any, **_: object) -> str:
        cells = [[self._read_cell(cell) for cell in row.cells if not cell.is_spanned] for row in table.rows]
        rows = spread_cells(cells)
        head = int(table.first_row)
        return f"{write_table(rows[:head], rows[head:])}\n"

    def _read_cell(self, cell: Any) -> tuple[Cell, int, int]:
        return Cell(cell.text), cell.span_height, cell.span_width


def _convert_slides(data: bytes) -> str:
    """Each slide is a page under its title, wherever that stands on it, and each of its lines a paragraph."""
    text = _SlideConverter().convert(BytesIO(data), StreamInfo()).markdown.replace("\v", " ")
    slides = re.split(r"<!-- Slide number: (\d+) -->", text)[1:]
    pieces = []
    for number, slide in zip(slides[::2], slides[1::2], strict=True):
        title = re.search(r"^# .+", slide, re.MULTILINE)
        rest = slide.replace(title[0], "", 1) if title else slide
        lines = re.sub(r"\n+(?!\|)|(?<=[^|\n])\n+(?=\|)", "\n\n", rest)
        pieces.append(f"\f\n\n{title[0] if title else f'# Slide {number}'}\n\n{lines}")
    return "\n\n".join(pieces)


def _convert_email(data: bytes) -> str:
    message = message_from_bytes(data, _class=EmailMessage, policy=default)
    facts = [(name, str(message[name])) for name in HEAD if message[name]]
    if names := [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]:
        facts.append(("Attachments (not read)", ", ".join(names)))
    pieces = [f"# {escape(message['Subject'])}"] if message["Subject"] else []
    pieces.append(write_table([], [[Cell(name), Cell(value)] for name, value in facts]))
    if body := message.get_body(("plain", "html")):
        text = body.get_content()
        is_html = body.get_content_subtype() == "html"
        pieces += [convert_fragment(text)] if is_html else map(escape, re.split(r"\n\s*\n", text))
    return "\n\n".join(filter(None, pieces))


def _convert_rst(text: str) -> str:
    from bs4 import BeautifulSoup
    from docutils.core import publish_parts

    html = publish_parts(text, writer="html5", settings_overrides=RST_SETTINGS)["html_body"]
    soup = BeautifulSoup(html, "html.parser")
    for subtitle in soup.select("p.subtitle"):  # docutils takes the only section of a document for one
        subtitle.name = "h2"
    for message in soup.select(".system-messages, .system-message"):
        message.replace_with(*message.find_all("pre"))
    return convert_fragment(str(soup))


def _convert_asciidoc(text: str) -> str:
    text = ADOC_HEADER.sub(_convert_asciidoc_header, text, count=1)
    text = ADOC_TABLE.sub(_convert_asciidoc_table, text)
    text = re.sub(r"^(={1,6})(?= \S)", lambda match: "#" * len(match[1]), text, flags=re.MULTILINE)
    text = re.sub(r"^([*.]{1,5})(?= \S)", lambda match: "  " * (len(match[1]) - 1) + "*", text, flags=re.MULTILINE)
    text = re.sub(r"^\.(?=[^\s.])(.*)$", r"\n\1\n", text, flags=re.MULTILINE)  # the title of a block
    text = re.sub(r"^(?:-{4,}|\.{4,})$", "```", text, flags=re.MULTILINE)  # a listing
    return re.sub(r"^(?:\[.*\]|:[\w!-]+:.*|//.*|\+|={4,}|\*{4,}|_{4,}|-{2})$", "", text, flags=re.MULTILINE)


def _convert_asciidoc_header(header: re.Match[str]) -> str:
    """The title, then a paragraph for each attribute that says something about the document. Lines below a title may
    name the author and the revision. What is no header stays as it is."""
    facts = []
    for line in header["rest"].splitlines():
        if attribute := re.match(r":([\w-]+):[ \t]+(.*)", line):
            if not ADOC_SETTINGS.fullmatch(attribute[1]):
                facts.append(write_fact(ADOC_NAMES.get(attribute[1], attribute[1]), attribute[2]))
        elif header["title"] and (ADOC_AUTHOR.fullmatch(line) or ADOC_REVISION.fullmatch(line)):
            facts.append(write_fact("Author" if ADOC_AUTHOR.fullmatch(line) else "Revision", line))
        elif not line.startswith((":", "//")):
            return header[0]
    return (
        "\n\n".join([(header["title"] or "").rstrip(), *map(escape, filter(None, facts)), ""]) if facts else header[0]
    )


def _convert_asciidoc_table(block: re.Match[str]) -> str:
    """The first line has as many cells as there are columns, unless `cols` says how many. It is the header if the
    options say so, or if an empty line follows it."""
    above = block["above"].splitlines()
    title = next((line[1:] for line in above if line.startswith(".")), "")
    options = "".join(line for line in above if line.startswith("["))
    first, _, rest = block["rows"].lstrip("\n").partition("\n")
    width = _count_columns(options) or len(re.findall(r"(?:^|\s)\|", first))
    cells = [Cell(text) for text in re.split(r"(?:^|(?<=\s))\|", block["rows"])[1:]]
    rows = [cells[at : at + width] for at in range(0, len(cells) - width + 1, width or 1)]
    is_header = bool(re.search(r"\bheader\b", options)) or (rest.startswith("\n") and "noheader" not in options)
    return f"\n{write_table(rows[:is_header], rows[is_header:], title)}\n"


def _count_columns(options: str) -> int:
    """The columns of an AsciiDoc table, as in `cols="1,3"` or `cols="2*"`; 0 if the options do not say."""
    found = re.search(r"cols=(?:\"([^\"]*)\"|([^,\]]*))", options)
    columns = (found[1] or found[2]).split(",") if found else []
    return sum(int(times[1]) if (times := re.match(r"\s*(\d+)\*", each)) else 1 for each in columns)
