"""A folder of documents, and documents that are made without a library."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import pytest

GUIDE = """---
layout: page
---
# The *Lomvi*

The **captain** of the [Lomvi](lomvi.md) is Ana Berg.
She was born in Holm. <!-- to be checked -->

## Engine

* gearbox by `Ro & Sons`
* shaft

| part | maker |
|---|---|
| propeller | Holm Works |
"""
HTML = "<title>x</title><h1>Crew</h1><script>alert('no')</script><p>The cook is <b>Per Dal</b>.</p>"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "ships").mkdir(parents=True)
    (folder / "ships" / "lomvi.md").write_text(GUIDE)
    (folder / "crew.html").write_text(HTML)
    (folder / "log.txt").write_text("On Monday the ship left Holm.\n\nOn Friday it came to Port Biro.\n")
    (folder / "leave.docx").write_bytes(make_docx("Everybody has thirty days of leave."))
    (folder / "report.pdf").write_bytes(make_pdf("The yard employs ninety people."))
    (folder / "rows.csv").write_text('title,text\nPort Biro,"A town, with a harbour."\n')
    return folder


def make_docx(text: str) -> bytes:
    office = "http://schemas.openxmlformats.org"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{office}/package/2006/content-types">'
        '<Default Extension="xml" ContentType='
        '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{office}/package/2006/relationships"><Relationship Id="r" Type='
        f'"{office}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{office}/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>{text}'
        "</w:t></w:r></w:p></w:body></w:document>",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


def make_pdf(text: str, more: bytes = b"") -> bytes:
    stream = zlib.compress(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET ".encode() + more)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d/Filter/FlateDecode>>\nstream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    data, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 6\n0000000000 65535 f \n" + table
    return data + head + b"trailer <</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % len(data)
