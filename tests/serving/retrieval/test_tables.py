"""Tables of every kind of document: their rows, whole, under what names them."""

from __future__ import annotations

import csv
import html
from collections.abc import Sequence
from io import BytesIO, StringIO
from pathlib import Path

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import OxmlElement
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.trace import Passage
from serving.retrieval.corpora import read_corpus
from serving.retrieval.cutting import pack, split_markdown
from serving.retrieval.markup import convert_fragment
from serving.retrieval.table_layout import Cell, escape, write_table

Rows = Sequence[Sequence[str]]
RELEASES = [
    ["Version", "Release lead", "Supported until"],
    ["4.2", "Ana Lorne", "3 May 2027"],
    ["4.1", "Bo Dahl", "1 May 2026"],
]
AS_READ = [
    "Version: 4.2; Release lead: Ana Lorne; Supported until: 3 May 2027",
    "Version: 4.1; Release lead: Bo Dahl; Supported until: 1 May 2026",
]
names = st.text("aé_*#|<&`[]\\-.1 ", min_size=1, max_size=8).map(str.strip).filter(lambda name: name.strip("_:"))
values = st.text("aé_*#|<&`[]\\-.:;1 ", max_size=12).map(lambda text: " ".join(text.split()))


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    """A header of two to five names, and rows of which none is empty."""
    width = draw(st.integers(2, 5))
    row = st.lists(values, min_size=width, max_size=width).filter(any)
    return [draw(st.lists(names, min_size=width, max_size=width)), *draw(st.lists(row, min_size=1, max_size=6))]


def write_markdown(rows: Rows) -> str:
    first, *rest = [f"| {' | '.join(map(escape, row))} |" for row in rows]
    return "\n".join([first, "|---" * len(rows[0]) + "|", *rest])


def write_html(rows: Rows) -> str:
    first, *rest = rows
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in first)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rest)
    return f"<table><tr>{head}</tr>{body}</table>"


def write_csv(rows: Rows) -> str:
    file = StringIO()
    csv.writer(file).writerows(rows)
    return file.getvalue()


def write_docx(rows: Rows) -> bytes:
    document, file = docx.Document(), BytesIO()
    table = document.add_table(len(rows), len(rows[0]))
    table.rows[0]._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))  # the mark of a header
    for row, own in zip(table.rows, rows, strict=True):
        for cell, text in zip(row.cells, own, strict=True):
            cell.text = text
    document.save(file)
    return file.getvalue()


def write_workbook(rows: Rows) -> bytes:
    book, file = openpyxl.Workbook(), BytesIO()
    for row in rows:
        book.worksheets[0].append(row)
    book.save(file)
    return file.getvalue()


def read(path: Path, content: str | bytes) -> list[Passage]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return [passage for _, passage, _ in read_corpus(path)]


def read_lines(path: Path, content: str | bytes) -> list[str]:
    """The lines of one passage that holds all."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    [(_, passage, _)] = read_corpus(path, chunk=5000)
    return passage.text.split("\n")


@settings(max_examples=20, deadline=None)
@given(tables())
def test_a_table_has_the_same_rows_in_markdown_html_and_csv(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows
) -> None:
    path = tmp_path_factory.mktemp("tables") / "table"
    lines = read_lines(path.with_suffix(".md"), write_markdown(rows))
    assert lines == read_lines(path.with_suffix(".html"), write_html(rows))
    assert lines == read_lines(path.with_suffix(".csv"), write_csv(rows))
    assert len(lines) == len(rows) - 1


@pytest.mark.parametrize(
    ("kind", "write"),
    [
        ("md", write_markdown),
        ("html", write_html),
        ("csv", write_csv),
        ("tsv", lambda rows: "".join("\t".join(row) + "\n" for row in rows)),
        ("docx", write_docx),
        ("xlsx", write_workbook),
        ("rst", lambda rows: ".. csv-table::\n   :header-rows: 1\n\n   " + write_csv(rows).replace("\r\n", "\n   ")),
        ("adoc", lambda rows: "|===\n" + "\n".join("|" + " |".join(row) for row in rows) + "\n|==="),
    ],
)
def test_a_row_says_its_columns_and_values_whatever_file_it_is_in(tmp_path: Path, kind: str, write) -> None:  # type: ignore[no-untyped-def]
    assert read_lines(tmp_path / f"releases.{kind}", write(RELEASES)) == AS_READ


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(1, 40), st.integers(16, 90), st.data())
def test_every_cell_is_in_exactly_the_passages_of_its_row(
    width: int, height: int, size: int, data: st.DataObject
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=width * height, max_size=width * height))
    cells = [f"w{number}" if flag else "" for number, flag in enumerate(flags)]
    rows = [cells[at : at + width] for at in range(0, len(cells), width)]
    table = write_table([[Cell(f"n{x}") for x in range(width)]], [[Cell(cell) for cell in row] for row in rows])
    runs = list(pack(split_markdown(table), size * 2, size))
    passages = [set("\n".join(part.text for part in run).replace(":", " ").replace(";", " ").split()) for run in runs]
    for own in ({cell for cell in row if cell} for row in rows):
        held = [own & passage for passage in passages]
        assert not own or own in held
        assert all(part in (set(), own) for part in held)


def test_rows_lie_together_below_what_names_their_table(tmp_path: Path) -> None:
    text = f"# Handbook\n\n## Releases\n\nSupport dates\n\n{write_markdown(RELEASES)}\n\nThat is all.\n"
    table, rest = read(tmp_path / "handbook.md", text)
    assert table.title == "Handbook: Releases: Support dates"
    assert table.text.split("\n") == AS_READ
    assert (rest.title, rest.text) == ("Handbook: Releases", "That is all.")


def test_each_passage_of_a_long_table_says_what_table_it_is_of(tmp_path: Path) -> None:
    rows = [["Country", "Capital"], *([f"Land {n}", f"Town {n}"] for n in range(200))]
    passages = read(tmp_path / "capitals.csv", write_csv(rows))
    assert len(passages) > 5
    assert {passage.title for passage in passages} == {"capitals"}
    assert "Country: Land 199; Capital: Town 199" in passages[-1].text and passages[-1].id.endswith("-201")


def test_a_form_is_facts_about_its_document(tmp_path: Path) -> None:
    form = "# Imprint\n\n| Field | Value |\n|---|---|\n| Editor: | Jon Abel |\n| Phone | |\n"
    [passage] = read(tmp_path / "imprint.md", form)
    assert (passage.title, passage.text) == ("Imprint", "Editor: Jon Abel\nPhone")
    [passage] = read(
        tmp_path / "imprint.html", "<h1>Imprint</h1><table><tr><td>Editor</td><td>Jon Abel</td></tr></table>"
    )
    assert (passage.title, passage.text) == ("Imprint", "Editor: Jon Abel")


ALLOWANCES = [["Country", "Allowance (euros)"], ["Norway", "58"], ["Spain", "31"]]


def write_slide(rows: Rows, *, has_header: bool = True) -> bytes:
    slides, file = pptx.Presentation(), BytesIO()
    slide = slides.slides.add_slide(slides.slide_layouts[5])
    slide.shapes.title.text = "Allowances"
    table = slide.shapes.add_table(len(rows), len(rows[0]), 0, 0, 9_000_000, 900_000).table
    table.first_row = has_header
    for number, row in enumerate(rows):
        for cell, text in zip(table.rows[number].cells, row, strict=True):
            cell.text = text
    slides.save(file)
    return file.getvalue()


ADOC = '[%header,cols="1,2"]\n|===\n|Country\n|Allowance (euros)\n|Norway\n|58\n|Spain |31\n|==='
RST_ROWS = "\n".join(f"   * - {key}\n     - {value}" for key, value in ALLOWANCES)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("md", f"Rates by country\n\n{write_markdown(ALLOWANCES)}"),
        ("html", f"<p>Rates by country</p>{write_html(ALLOWANCES)}"),
        ("adoc", ".Rates by country\n|===\n|Country |Allowance (euros)\n\n|Norway |58\n\n|Spain\n|31\n|==="),
        ("adoc", ".Rates by country\n" + ADOC),
        ("rst", f".. list-table:: Rates by country\n   :header-rows: 1\n\n{RST_ROWS}\n"),
        ("csv", write_csv(ALLOWANCES)),
        ("docx", write_docx(ALLOWANCES)),
        ("pptx", write_slide(ALLOWANCES)),
    ],
)
def test_the_header_of_a_table_of_two_columns_is_in_its_rows_and_its_caption_in_the_title(
    tmp_path: Path, kind: str, content: str | bytes
) -> None:
    [passage] = read(tmp_path / f"rates.{kind}", content)
    assert passage.text == "Country: Norway; Allowance (euros): 58\nCountry: Spain; Allowance (euros): 31"
    title = {"csv": "rates", "docx": "rates", "pptx": "Allowances"}.get(kind, "rates: Rates by country")
    assert passage.title == title


def test_the_caption_of_a_table_is_not_the_title_of_its_document(tmp_path: Path) -> None:
    text, _ = read(tmp_path / "rates.md", f"We travel.\n\nRates by country\n\n{write_markdown(ALLOWANCES)}")
    assert (text.title, text.text) == ("rates", "We travel.")


def test_a_table_without_a_marked_header_begins_with_a_fact(tmp_path: Path) -> None:
    form = [["Editor", "Jon Abel"], ["Phone", "0123"]]
    for kind, content in (("xlsx", write_workbook(form)), ("pptx", write_slide(form, has_header=False))):
        [passage] = read(tmp_path / f"form.{kind}", content)
        assert passage.text == "Editor: Jon Abel\nPhone: 0123", kind
    adoc = "[%noheader]\n|===\n|Editor |Jon Abel\n\n|Phone |0123\n|==="
    assert read_lines(tmp_path / "form.adoc", adoc) == ["Editor: Jon Abel", "Phone: 0123"]


def test_a_caption_is_a_passage_only_if_its_table_has_no_row(tmp_path: Path) -> None:
    [table] = read(tmp_path / "a.md", f"# Rules\n\nEmergency numbers\n\n{write_markdown(ALLOWANCES[:2])}")
    assert table.text == "Country: Norway; Allowance (euros): 58"
    [caption] = read(tmp_path / "b.md", "# Rules\n\nEmergency numbers\n\n| | |\n|---|---|\n| | |\n")
    assert (caption.title, caption.text) == ("Rules", "Emergency numbers")


def test_a_long_row_is_a_section_of_its_own_with_its_key_as_heading(tmp_path: Path) -> None:
    rows = [["Part", "Maker", "Notes"], ["shaft", "Holm", "It turns. " * 90], ["gear", "Ro", ""]]
    *long, short = read(tmp_path / "parts.csv", write_csv(rows))
    assert {passage.title for passage in long} == {"parts: shaft"} and len(long) > 1
    assert long[0].text == "Part: shaft\nMaker: Holm" and "Notes: It turns." in long[1].text
    assert (short.title, short.text) == ("parts", "Part: gear; Maker: Ro")


MERGED = """<table><caption>Sizes</caption>
<tfoot><tr><td>all</td><td>9</td><td>9</td></tr><tr><td colspan="3">All sizes are rough.</td></tr></tfoot>
<thead><tr><th rowspan="2">Part</th><th colspan="2">Size</th></tr>
<tr><th>Width (mm)</th><th>Height<br>(mm)</th></tr></thead>
<tr><td colspan="3">Engine</td></tr>
<tr><td rowspan="2">shaft</td><td>1</td><td>2<sup>nd</sup></td></tr>
<tr><td><ul><li>3</li><li>4</li></ul></td></tr></table>"""


def test_merged_cells_headers_of_two_rows_titles_and_footers_keep_their_meaning() -> None:
    said = [(paragraph.headings, paragraph.text) for paragraph in split_markdown(convert_fragment(MERGED), html=False)]
    assert said == [
        (("Sizes: Engine",), "Part: shaft; Size Width (mm): 1; Size Height (mm): 2nd"),
        (("Sizes: Engine",), "Part: shaft; Size Width (mm): 3, 4"),
        (("Sizes: Engine",), "Part: all; Size Width (mm): 9; Size Height (mm): 9"),
        ((), "Sizes: All sizes are rough."),
    ]


def test_merged_cells_of_office_files_are_filled(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(3, 3)
    for row, own in zip(table.rows, [RELEASES[0], ["4", "Ana", "May"], ["", "Bo", "June"]], strict=True):
        for cell, text in zip(row.cells, own, strict=True):
            cell.text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    document.save(str(tmp_path / "a.docx"))
    book = openpyxl.Workbook()
    for own in [["Releases of 2027"], RELEASES[0], ["4", "Ana", "May"], ["", "Bo", "June"]]:
        book.worksheets[0].append(own)
    book.worksheets[0].merge_cells("A1:C1")
    book.worksheets[0].merge_cells("A3:A4")
    book.save(tmp_path / "a.xlsx")
    rows = [
        "Version: 4; Release lead: Ana; Supported until: May",
        "Version: 4; Release lead: Bo; Supported until: June",
    ]
    [word], [sheet] = ([each for _, each, _ in read_corpus(tmp_path / name)] for name in ("a.docx", "a.xlsx"))
    assert word.text.split("\n") == rows
    assert sheet.text.split("\n") == rows
    assert sheet.title == "a: Sheet: Releases of 2027"
