"""Documents of every kind, made by the libraries that people make them with, and what is read of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path
from typing import Any

import openpyxl
import pptx
import pytest
from docx import Document
from fpdf import FPDF
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from revelator.errors import DataError
from revelator.trace import Passage
from serving.retrieval.documents import read_document
from serving.retrieval.markup import convert_page
from tests.chromium import CHROMIUM

SITE = """<html><head><title>Leave | Yard</title></head><body>
<div class="banner" id="cookies"><p>We use cookies to make this site better for you.</p><button>Accept</button></div>
<header><a href="/">Yard</a></header><nav><ul><li><a href="/a">Home</a></li><li><a href="/b">Prices</a></li></ul></nav>
{main}
<div id="footer"><p>Copyright Yard. All rights reserved. Imprint.</p></div></body></html>"""
TEXT = """<h1>Leave</h1><p>Everybody has thirty days of leave each year, and takes them by the end of March.</p>
<h2>Granted by Bo Dahl</h2><details><summary>Who signs?</summary>The foreman signs.</details>
<table><tr><th>Grade</th><th>Days</th><th>Since</th></tr><tr><td>A</td><td><a href="/30">30</a></td><td>1990</td></tr>
</table><dl><dt>Office</dt><dd>Room 3</dd></dl>"""
SENTENCE = "The quay was built of oak, and then of stone, because the ice of three winters had broken it. "


def read(path: Path) -> list[Passage]:
    return list(read_document(path, path.name))


@pytest.mark.parametrize("frame", ["<main>{}</main>", "<div id='wrap'><div>{}</div></div>", "{}"])
def test_a_page_is_read_without_what_is_around_its_text(tmp_path: Path, frame: str) -> None:
    path = tmp_path / "leave.html"
    path.write_text(SITE.format(main=frame.format(TEXT)))
    first, second = read(path)
    assert (first.title, first.text.count("thirty days")) == ("Leave", 1)
    assert second.title == "Leave: Granted by Bo Dahl"
    assert second.text == "Who signs?\nThe foreman signs.\nGrade: A; Days: 30; Since: 1990\nOffice: Room 3"


def count_calls(page: bytes) -> int:
    """How often a function is entered, or a generator, while a page is converted."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        convert_page(page)
    finally:
        sys.setprofile(before)
    return count


def test_the_text_of_a_page_is_found_without_counting_it_for_each_element_around_it() -> None:
    depth = lines = 1_500
    convert_page(b"<p>imports</p>")
    deep, long, both = (
        count_calls(f"{'<div>' * around}{'line of text<br>' * within}".encode())
        for around, within in ((depth, 1), (1, lines), (depth, lines))
    )
    assert both < 1.5 * (deep + long)


def test_a_page_of_links_alone_is_read_whole() -> None:
    links = "".join(f"<li><a href='/{name}'>{name} Berg</a></li>" for name in ("Ana", "Bo", "Cy"))
    assert convert_page(f"<h1>Crew</h1><ul>{links}</ul>".encode()).split() == [
        "#",
        "Crew",
        "*",
        "Ana",
        "Berg",
        "*",
        "Bo",
        "Berg",
        "*",
        "Cy",
        "Berg",
    ]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text("ab<&*_#[]`|\\-.1 ", min_size=1, max_size=20), min_size=1, max_size=5))
def test_what_stands_in_main_is_read_as_it_is(texts: list[str]) -> None:
    from html import escape

    from serving.retrieval.cutting import split_markdown

    page = f"<nav>No</nav><main>{''.join(f'<p>{escape(text)}</p>' for text in texts)}</main>"
    read = [paragraph.text for paragraph in split_markdown(convert_page(page.encode()), html=False)]
    assert [" ".join(text.split()) for text in read] == [" ".join(text.split()) for text in texts if text.strip()]


def test_office_files_keep_titles_sheets_slides_and_values(tmp_path: Path) -> None:
    document = Document()
    document.add_heading("Rules", 0)
    document.add_heading("Leave", 1)
    document.add_paragraph("Thirty days of List<Day>.")
    document.save(str(tmp_path / "rules.docx"))
    book = openpyxl.Workbook()
    book.worksheets[0].append(["Part", "Price", "Since", "Share"])
    book.worksheets[0].append(["shaft", 9.5, None, 0.25])
    book.worksheets[0]["C2"] = datetime(2027, 5, 3)
    book.worksheets[0]["D2"].number_format = "0 %"
    book.worksheets[0].append([])
    book.worksheets[0].append(["Editor", "Jon Abel"])
    book.create_sheet("Crew").append(["Ana Berg"])
    book.save(tmp_path / "parts.xlsx")
    slides = pptx.Presentation()
    for title, text in (("Plans", "Sell it.\nBuy two."), ("Costs", "Nine crowns.")):
        slide = slides.slides.add_slide(slides.slide_layouts[1])
        slide.shapes.title.text, slide.placeholders[1].text = title, text
    slide.shapes.add_table(2, 3, 0, 0, 9_000_000, 900_000)
    for number, text in enumerate(["Part", "Maker", "Price", "gear", "Ro", "7"]):
        slide.shapes[-1].table.cell(number // 3, number % 3).text = text
    slides.save(str(tmp_path / "plans.pptx"))
    assert [(each.title, each.text) for each in read(tmp_path / "rules.docx")] == [
        ("Rules: Leave", "Thirty days of List<Day>.")
    ]
    assert [(each.title, each.text) for each in read(tmp_path / "parts.xlsx")] == [
        ("parts: Sheet", "Part: shaft; Price: 9.5; Since: 2027-05-03; Share: 25 %\nEditor: Jon Abel"),
        ("parts: Crew", "Ana Berg"),
    ]
    assert [(each.title, each.id.partition("&")[0], each.text) for each in read(tmp_path / "plans.pptx")] == [
        ("plans: Plans", "plans.pptx#page=1", "Sell it.\nBuy two."),
        ("plans: Costs", "plans.pptx#page=2", "Part: gear; Maker: Ro; Price: 7\nNine crowns."),
    ]


def test_a_cell_in_the_last_corner_of_a_sheet_is_read_with_the_others(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["Crew", "Ship", "Town"])
    book.active.append(["Per Dal", "Lomvi", "Holm"])
    book.active["XFD1048576"] = "The barn is green."
    book.save(tmp_path / "far.xlsx")
    texts = [passage.text for passage in read_document(tmp_path / "far.xlsx", "far.xlsx")]
    assert texts == ["Crew: Per Dal; Ship: Lomvi; Town: Holm\nThe barn is green."]


def test_an_email_says_who_wrote_it_when_and_what_was_not_read(tmp_path: Path) -> None:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "The new quay", "Ana <ana@yard.example>", "bo@yard.example"
    message["Date"] = "Mon, 03 May 2027 10:00:00 +0200"
    message.set_content("It opens on Friday.\n\n# 1 is closed.\n")
    message.add_alternative("<p>It opens on <b>Friday</b>.</p>", subtype="html")
    message.add_attachment(b"x", maintype="application", subtype="pdf", filename="plan.pdf")
    (tmp_path / "quay.eml").write_bytes(bytes(message))
    [passage] = read(tmp_path / "quay.eml")
    assert passage.title == "The new quay"
    assert passage.text.split("\n") == [
        "From: Ana <ana@yard.example>",
        "To: bo@yard.example",
        "Date: Mon, 03 May 2027 10:00:00 +0200",
        "Attachments (not read): plan.pdf",
        "It opens on Friday.",
        "# 1 is closed.",
    ]


def test_marked_up_text_is_read_with_its_headings_and_without_what_it_refers_to(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("The key is under the mat.")
    rst = "Quay\n====\n\n.. include:: secret.txt\n\nBuilt of *oak*.\n\nIce\n---\n\n.. versionadded:: 2\n   It broke.\n"
    (tmp_path / "quay.rst").write_text(rst)
    adoc = "= Quay\n:toc:\n\nBuilt of oak.\n\n== Ice\n\n.Winters\n* one\n** cold\n\n----\ninclude::secret.txt[]\n----\n"
    (tmp_path / "quay.adoc").write_text(adoc)
    cells = [("markdown", "# Quay"), ("markdown", "Built of oak."), ("markdown", "## Ice"), ("code", "print(3)")]
    notebook = {"cells": [{"cell_type": kind, "source": [text], "outputs": []} for kind, text in cells]}
    (tmp_path / "quay.ipynb").write_text(json.dumps(notebook))
    for kind, said in (("rst", "It broke."), ("adoc", "- cold"), ("ipynb", "print(3)")):
        first, second = read(tmp_path / f"quay.{kind}")
        assert (first.title, first.text, second.title) == ("Quay", "Built of oak.", "Quay: Ice"), kind
        assert said in second.text and "mat" not in second.text


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("adoc", "= Quay\n:author: Ana Berg\n:revdate: 3 May 2027\n:toc: left\n:icons: font\n\nBuilt of oak.\n"),
        ("adoc", "= Quay\nAna Berg\n:revision-date: 3 May 2027\n:imagesdir: img\n\nBuilt of oak.\n"),
        ("rst", "Quay\n====\n\n:Author: Ana Berg\n:Revision date: 3 May 2027\n\nBuilt of oak.\n"),
    ],
)
def test_what_the_head_of_a_marked_up_text_says_of_it_is_read_and_its_settings_are_not(
    tmp_path: Path, kind: str, content: str
) -> None:
    (tmp_path / f"quay.{kind}").write_text(content)
    [passage] = read(tmp_path / f"quay.{kind}")
    assert (passage.title, passage.text) == ("Quay", "Author: Ana Berg\nRevision date: 3 May 2027\nBuilt of oak.")


def test_text_right_below_the_title_of_an_asciidoc_is_text(tmp_path: Path) -> None:
    (tmp_path / "quay.adoc").write_text("= Quay\nIt was built of oak.\n\n== Ice\n\nIt broke.\n")
    assert [passage.text for passage in read(tmp_path / "quay.adoc")] == ["It was built of oak.", "It broke."]


def make_pdf(write: Callable[[FPDF], None]) -> bytes:
    pdf = FPDF()
    pdf.set_font("helvetica", size=10)
    pdf.add_page()
    write(pdf)
    return bytes(pdf.output())


def add_heading(pdf: FPDF, text: str, size: int) -> None:
    pdf.set_font("helvetica", size=size)
    pdf.multi_cell(0, text=text, new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("helvetica", size=10)
    pdf.ln(4)


def test_a_pdf_has_headings_pages_and_columns_that_are_read_one_after_the_other(tmp_path: Path) -> None:
    def write(pdf: FPDF) -> None:
        add_heading(pdf, "The quay", 22)
        with pdf.text_columns(ncols=2, gutter=10, text_align="J") as columns:
            columns.write("Left. " + SENTENCE * 14)
            columns.new_column()
            columns.write("Right. " + SENTENCE * 6)
        pdf.add_page()
        add_heading(pdf, "Ice", 16)
        pdf.multi_cell(0, text="It broke it.")

    (tmp_path / "quay.pdf").write_bytes(make_pdf(write))
    *first, last = read(tmp_path / "quay.pdf")
    text = "\n".join(passage.text for passage in first)
    assert text.index("Left.") < text.rindex("winters", 0, text.index("Right.")) < text.index("Right.")
    assert {passage.title for passage in first} == {"The quay"}
    assert all(passage.id.startswith("quay.pdf#page=1&") and passage.file == "quay.pdf" for passage in first)
    assert (last.title, last.text, last.id[:16]) == ("The quay: Ice", "It broke it.", "quay.pdf#page=2&")


@pytest.mark.parametrize("spacing", [1.0, 1.5, 2.0])
def test_a_sentence_of_a_pdf_is_whole_and_items_and_headings_have_lines_of_their_own(
    tmp_path: Path, spacing: float
) -> None:
    items = ["- oak, sawn in the winter of the year 1911", "- stone", "1. Count the piles.", "2. Paint them."]

    def write(pdf: FPDF) -> None:
        def add(text: str) -> None:
            pdf.multi_cell(90, 4 * spacing, text, new_x="LMARGIN", new_y="NEXT")

        add_heading(pdf, "The quay", 18)
        add(SENTENCE * 3)
        pdf.set_font(style="B")
        add("What it was built of")
        pdf.set_font(style="")
        add("\n".join(items))
        pdf.ln(6)
        add("It was finished by the foun-\ndation on June 8,\n2021.")

    (tmp_path / "quay.pdf").write_bytes(make_pdf(write))
    [passage] = read(tmp_path / "quay.pdf")
    assert passage.text.split("\n") == [
        (SENTENCE * 3).strip(),
        "What it was built of",
        *items,
        "It was finished by the foundation on June 8, 2021.",
    ]


class Report(FPDF):
    def header(self) -> None:
        self.set_font("helvetica", size=10)
        self.cell(0, 8, "Yard of Sund, internal", new_x="LMARGIN", new_y="NEXT")
        self.ln(8)

    def footer(self) -> None:
        self.set_y(-15)
        self.cell(0, 8, f"Report of the yard - page {self.page_no()} of 3")


def test_running_heads_and_feet_of_a_pdf_are_left_out_and_what_is_said_once_is_read(tmp_path: Path) -> None:
    pdf = Report()
    for number in range(3):
        pdf.add_page()
        add_heading(pdf, ["Piles", "Planks", "Costs"][number], 16)
        pdf.multi_cell(0, text="It cost nine crowns.", new_x="LMARGIN", new_y="NEXT")
    pdf.set_y(-25)
    pdf.cell(0, 8, "Printed in Sund")
    (tmp_path / "report.pdf").write_bytes(bytes(pdf.output()))
    assert [passage.text for passage in read(tmp_path / "report.pdf")] == [
        "It cost nine crowns.",
        "It cost nine crowns.",
        "It cost nine crowns.\nPrinted in Sund",
    ]


@pytest.mark.parametrize(
    ("title", "said"),
    [
        ("Report of the yard", "Report of the yard: The quay"),
        ("The quay", "The quay"),
        ("Document retention", "Document retention: The quay"),
        ("", "The quay"),
        ("untitled", "The quay"),
        ("Microsoft Word - quay_v3.docx", "The quay"),
        ("quay_v3.indd", "The quay"),
        ("C:\\files\\quay", "The quay"),
    ],
)
def test_a_pdf_has_the_title_of_its_metadata_unless_that_names_a_file(tmp_path: Path, title: str, said: str) -> None:
    def write(pdf: FPDF) -> None:
        pdf.set_title(title)
        add_heading(pdf, "The quay", 18)
        pdf.multi_cell(0, text="It broke it.")

    (tmp_path / "quay.pdf").write_bytes(make_pdf(write))
    [passage] = read(tmp_path / "quay.pdf")
    assert (passage.title, passage.text) == (said, "It broke it.")


@pytest.mark.parametrize("borders", ["ALL", "NONE"])
def test_a_table_of_a_pdf_goes_on_on_the_next_page_under_its_header(tmp_path: Path, borders: str) -> None:
    rows = [["Version", "Release lead", "Supported until"], *([f"4.{n}", f"Ana {n}", f"{n} May"] for n in range(1, 60))]

    def write(pdf: FPDF) -> None:
        with pdf.table(rows, borders_layout=borders, repeat_headings=0, first_row_as_headings=False):
            pass

    (tmp_path / "releases.pdf").write_bytes(make_pdf(write))
    lines = [(line, each.id) for each in read(tmp_path / "releases.pdf") for line in each.text.split("\n")]
    said = dict(lines)
    assert list(said) == [f"Version: 4.{n}; Release lead: Ana {n}; Supported until: {n} May" for n in range(1, 60)]
    assert said[lines[0][0]].startswith("releases.pdf#page=1&") and said[lines[-1][0]].startswith(
        "releases.pdf#page=2&"
    )


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium that prints PDF")
def test_a_tagged_pdf_has_the_rows_of_the_page_that_was_printed(tmp_path: Path) -> None:
    table = """<table><caption>Support</caption><tr><th>Version</th><th>Lead</th><th>Until</th></tr><tr>
    <td rowspan=2>4.2</td><td>Ana Lorne of the office</td><td>May</td></tr><tr><td>Bo</td><td>June</td></tr></table>"""
    page = f"<h1>Releases</h1>{table}<h2>Notes</h2><ul><li>An efficient one, see <a href=x>this</a> file</li></ul>"
    (tmp_path / "page.html").write_text(page)
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    subprocess.run([*command, "--print-to-pdf=page.pdf", "page.html"], cwd=tmp_path, check=True, capture_output=True)
    printed, written = read(tmp_path / "page.pdf"), read(tmp_path / "page.html")
    assert [(each.title, each.text) for each in printed] == [(each.title, each.text) for each in written]
    assert written[0].text.split("\n")[-1] == "Version: 4.2; Lead: Bo; Until: June"


def test_a_scan_is_named_as_not_read(tmp_path: Path) -> None:
    picture = BytesIO()
    Image.new("RGB", (80, 80), "white").save(picture, "png")
    (tmp_path / "scan.pdf").write_bytes(make_pdf(lambda pdf: pdf.image(picture)))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a scan: no page holds text") as refused:
        read(tmp_path / "scan.pdf")
    assert "OCR" in str(refused.value.hint)
