"""Documents as passages: Markdown, plain text, HTML, PDF and DOCX, cut at headings and paragraphs.

Each document is read as Markdown (MarkItDown converts what is none). A passage is a run of paragraphs, items and rows
under one heading, of at most `size` tokens of MiniLM's vocabulary; the last `overlap` tokens of a passage begin the
next one. Its title is the headings above it, or the document's, and its id names its place: the path, and where it
begins and ends in characters of the document's Markdown, `handbook/leave.md#120-980`.

A small file may unfold to very much: a DOCX is a zip archive, a PDF holds compressed streams, and each element of XML
or HTML becomes an object of 1 kB. So a DOCX unfolds to `UNFOLDED` bytes at most, and the conversion of a file may take
`MEMORY` bytes.
"""

from __future__ import annotations

import logging
import re
import resource
from bisect import bisect_left
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from tokenizers import Tokenizer

from revelator.errors import DataError
from revelator.minilm import TOKENIZER, fetch_minilm
from revelator.tables import find_subject, write_row_as_text
from revelator.trace import Passage

MARKDOWN = (".md", ".markdown")
DOCUMENTS = (*MARKDOWN, ".txt", ".text", ".html", ".htm", ".pdf", ".docx")
BINARY = (".pdf", ".docx")
LARGEST = 100_000_000  # bytes of a file
UNFOLDED = 200_000_000  # bytes of all parts of a DOCX: text, styles, pictures
PARTS = 10_000  # of a DOCX
MEMORY = 2_000_000_000  # bytes that a conversion may take: a DOCX of 100,000 paragraphs takes 250 MB
CHARACTERS = 20  # of a token, at most: MiniLM counts a word of any length that it does not know as one
SIZE, OVERLAP = 200, 40
SENTENCE_END = re.compile(r"[.!?。！？]\s|\n")
PARSER = MarkdownIt("commonmark").enable("table")
FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n---[ \t]*\n", re.DOTALL)  # settings of a site, no text


@dataclass(frozen=True)
class Paragraph:
    """What is never joined with its neighbours in one line: a paragraph, an item of a list, a row of a table."""

    headings: tuple[str, ...]
    text: str
    start: int
    end: int


def read_document(path: Path, name: str, *, size: int = SIZE, overlap: int = OVERLAP) -> Iterator[Passage]:
    """The passages of a document, whose ids begin with `name`.

    Raises DataError where the file cannot be read, is no document of its kind, or holds no text."""
    try:
        with _limit_memory(MEMORY):
            text = convert_document(path)
            paragraphs = split_text(text) if path.suffix.lower() in (".txt", ".text") else split_markdown(text)
    except MemoryError as error:
        reason = f"to convert it takes more than {MEMORY:,} bytes of memory"
        raise DataError(reason, where=str(path), hint="split it, or save it as text") from error
    if not paragraphs:
        raise DataError("no text in it", where=str(path), hint="a scanned page needs text recognition (OCR) first")
    title = next((paragraph.headings[0] for paragraph in paragraphs if paragraph.headings), path.stem)
    places: Counter[str] = Counter()
    for run in pack(paragraphs, size, overlap):
        place = f"{name}#{run[0].start}-{run[-1].end}"
        places[place] += 1
        identity = place if places[place] == 1 else f"{place}/{places[place]}"  # the parts of one long paragraph
        headings = run[0].headings or (title,)
        text = "\n".join(paragraph.text for paragraph in run)
        yield Passage(id=identity, title=": ".join(headings), text=text)


def convert_document(path: Path) -> str:
    """A document's text as Markdown."""
    kind = path.suffix.lower()
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > LARGEST:
        raise DataError(f"larger than {LARGEST:,} bytes", where=str(path), hint="split it")
    if kind not in BINARY:
        if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            data = data.decode("utf-16", "replace").encode()
        if b"\0" in data:
            raise DataError("not text: it holds zero bytes", where=str(path))
    if kind in MARKDOWN:
        return data.decode("utf-8-sig", "replace")
    convert = _open_converter(kind)
    try:
        return convert(BytesIO(_unfold_docx(data) if kind == ".docx" else data))
    except DataError as error:
        raise DataError(error.message, where=str(path), hint=error.hint) from error
    except MemoryError:
        raise
    except Exception as error:  # a converter's libraries raise whatever they like about a damaged file
        reason = f"not a {kind[1:].upper()} file that can be read: damaged, protected, or of another kind"
        raise DataError(reason, where=str(path)) from error


def _unfold_docx(data: bytes) -> bytes:
    """The same archive without compression. Each part is read no further than the bound, whatever size its directory
    names; parts may also share their bytes. Raises DataError for what is larger."""
    if data.count(b"PK\1\2") > PARTS:  # each part has an entry that begins so, which becomes an object when it is read
        raise DataError(f"more than {PARTS:,} parts", hint="save it again, or split it")
    too_large = DataError(f"it unfolds to more than {UNFOLDED:,} bytes", hint="split it, or save it as text")
    unfolded, left = BytesIO(), UNFOLDED
    with ZipFile(BytesIO(data)) as packed, ZipFile(unfolded, "w") as plain:
        parts = {part.filename: part for part in packed.infolist()}
        if sum(part.file_size for part in parts.values()) > UNFOLDED:
            raise too_large
        for name, part in parts.items():
            if part.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # others are unpacked without a bound
                raise DataError("compressed in a way that DOCX does not know", hint="save it again")
            place = part.header_offset + 30
            size = int.from_bytes(data[place - 4 : place - 2], "little")
            spelled = data[place : place + size].decode("utf-8" if part.flag_bits & 0x800 else "cp437")
            if spelled.lower() == part.orig_filename.lower():
                part.orig_filename = spelled  # some writers spell a name twice: zipfile would refuse the part
            with packed.open(part) as file:
                content = file.read(left + 1)
            left -= len(content)
            if left < 0:
                raise too_large
            plain.writestr(name, content)
    return unfolded.getvalue()


@contextmanager
def _limit_memory(most: int) -> Iterator[None]:
    """Within the block the process, all its threads together, can take `most` more bytes, then it gets a MemoryError.
    Linux alone keeps the limit."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = int(pages.read_text().split()[0]) * resource.getpagesize() + most
    bounds = [bound for bound in (soft, wanted) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@cache
def _open_converter(kind: str) -> Callable[[BinaryIO], str]:
    from markitdown import StreamInfo, converters  # a second to import, which no other command should wait for

    logging.getLogger("pdfminer").setLevel(logging.CRITICAL)
    found = {".pdf": converters.PdfConverter, ".docx": converters.DocxConverter}
    found |= dict.fromkeys((".html", ".htm"), converters.HtmlConverter)
    converter = found.get(kind, converters.PlainTextConverter)()
    return lambda file: converter.convert(file, StreamInfo(extension=kind)).markdown


def split_text(text: str) -> list[Paragraph]:
    """Plain text at its empty lines."""
    found = re.finditer(r"\S(?:[^\n]|\n(?!\s*\n))*", text)
    return [Paragraph((), " ".join(match[0].split()), match.start(), match.end()) for match in found]


def split_markdown(text: str) -> list[Paragraph]:
    """The paragraphs of a Markdown text without its marks, each with the headings above it."""
    lines = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]
    headings: list[tuple[int, str]] = []
    paragraphs: list[Paragraph] = []

    def visit(node: SyntaxTreeNode, item: bool) -> None:
        columns: list[str] = []
        for child in node.walk(include_self=False) if node.type == "table" else node.children:
            words = subject = ""
            if child.type == "heading":
                level = int(child.tag[1:])
                headings[:] = [each for each in headings if each[0] < level] + [(level, render(child).strip())]
            elif child.type in ("paragraph", "fence", "code_block"):
                words = render(child).strip()
            elif child.type == "tr" and not columns:
                columns = [render(cell).strip() for cell in child.children]
            elif child.type == "tr":
                cells = [render(cell).strip() for cell in child.children]
                subject, words = find_subject(cells), write_row_as_text(columns, cells)
            elif node.type != "table" and child.type != "html_block":
                visit(child, item or child.type == "list_item")
            if words:
                first, last = child.map or (0, 0)
                above = (*(heading for _, heading in headings), *filter(None, [subject]))  # each row is a section
                paragraphs.append(Paragraph(above, f"- {words}" if item else words, lines[first], lines[last]))

    visit(SyntaxTreeNode(PARSER.parse(FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text))), False)
    return paragraphs


def render(node: SyntaxTreeNode) -> str:
    """The text of a node without marks, links and raw HTML; of a picture its description."""
    if node.type in ("softbreak", "hardbreak"):
        return " "
    if node.type == "html_inline":
        return ""
    return "".join(map(render, node.children)) if node.children else node.content


def pack(paragraphs: Sequence[Paragraph], size: int, overlap: int) -> Iterator[list[Paragraph]]:
    """Runs of paragraphs under the same headings, of at most `size` tokens; a run begins with those of the last one
    that fit into `overlap` tokens. A longer paragraph is cut, where it can be at the end of a sentence or word."""
    run: list[Paragraph] = []
    counts: list[int] = []
    for paragraph in (part for each in paragraphs for part in _cut(each, size)):
        count = len(_open_tokenizer().encode(paragraph.text, add_special_tokens=False).ids)
        count = max(count, len(paragraph.text) // CHARACTERS)
        is_new_section = bool(run) and run[0].headings != paragraph.headings
        if run and (is_new_section or sum(counts) + count > size):
            yield list(run)
            while run and (is_new_section or sum(counts) > overlap or sum(counts) + count > size):
                del run[0], counts[0]
        run.append(paragraph)
        counts.append(count)
    if run:
        yield run


def _cut(paragraph: Paragraph, size: int) -> Iterator[Paragraph]:
    """Parts of at most `size` tokens. Each keeps the place of the whole."""
    longest = size * CHARACTERS
    for part in _cut_text(paragraph.text, size):
        yield from (replace(paragraph, text=part[at : at + longest]) for at in range(0, len(part), longest))


def _cut_text(text: str, size: int) -> Iterator[str]:
    offsets = _open_tokenizer().encode(text, add_special_tokens=False).offsets
    starts = [start for start, _ in offsets]
    first = begin = 0
    while len(starts) - first > size:
        least, most = starts[first + size // 2], offsets[first + size - 1][1]
        ends = [match.end() for match in SENTENCE_END.finditer(text, least, most)]
        end = ends[-1] if ends else max(text.rfind(" ", least, most), least) if " " in text[least:most] else most
        yield text[begin:end].strip()
        first, begin = bisect_left(starts, end), end
    if rest := text[begin:].strip():
        yield rest


@cache
def _open_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(fetch_minilm() / TOKENIZER))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
