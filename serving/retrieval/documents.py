"""Documents as passages, cut at headings, paragraphs and rows of tables.

Each document is read as Markdown (`serving.retrieval.conversion` converts what is none). A passage is a run of
paragraphs, items and rows under the same headings, of at most `size` tokens of MiniLM's vocabulary; the last `overlap`
tokens of a passage begin the next one. Its title is the document's and the headings above it, and its id names its
place: the path, the page if there are pages, and where it begins and ends in characters of the document's Markdown,
`leave.md#120-980` or `report.pdf#page=3&4120-4980`.

A small file may unfold to very much: a DOCX is a zip archive, a PDF holds compressed streams, and each element of XML
or HTML becomes an object of 1 kB. So an archive unfolds to `UNFOLDED` bytes at most, and the conversion of a file may
take `MEMORY` bytes and `SECONDS`.
"""

from __future__ import annotations

import re
import resource
import signal
import threading
from bisect import bisect_left
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from revelator.errors import DataError
from revelator.trace import Passage
from serving.retrieval.cutting import Paragraph, pack, split_markdown, split_text

MARKDOWN = (".md", ".markdown")
TEXT = (".txt", ".text")
ARCHIVES = (".docx", ".xlsx", ".pptx")
BINARY = (".pdf", *ARCHIVES)
DOCUMENTS = (*MARKDOWN, *TEXT, ".html", ".htm", ".rst", ".adoc", ".asciidoc", ".ipynb", ".eml", *BINARY)
LARGEST = 100_000_000  # bytes of a file
UNFOLDED = 200_000_000  # bytes of all parts of an archive: text, styles, pictures
PARTS = 10_000  # of an archive
MEMORY = 2_000_000_000  # bytes that a conversion may take: a DOCX of 100,000 paragraphs takes 250 MB
SECONDS = 300.0  # that it may take: a plain PDF takes one for eight pages
SIZE, OVERLAP = 200, 40
PAGE = "\f"  # what begins each page in the Markdown of a document that has pages


class PartlyRead(UserWarning):
    """What of a document cannot be read; the rest can."""


def read_document(path: Path, name: str, *, size: int = SIZE, overlap: int = OVERLAP) -> Iterator[Passage]:
    """The passages of a document, whose ids begin with `name`.

    Raises DataError where the file cannot be read, is no document of its kind, or holds no text. Warns with PartlyRead
    where a part of it cannot be read."""
    with limit_reading(path):
        text = convert_document(path)
        paragraphs = _split(text, path.suffix.lower())
    if not paragraphs:
        raise DataError("no text in it", where=str(path))
    first = {each.headings[0] for each in paragraphs if len(each.headings) > each.of_table}
    title = first.pop() if len(first) == 1 else path.stem  # the heading that all others are below, or the file's name
    yield from make_passages(pack(paragraphs, size, overlap), name, title, text)


@contextmanager
def limit_reading(path: Path) -> Iterator[None]:
    """Around the reading of a document. Raises DataError where it takes more than `MEMORY` or `SECONDS`."""
    hint = "split it, or save it as text"
    try:
        with _limit_memory(MEMORY), _limit_time(SECONDS):
            yield
    except MemoryError as error:
        reason = f"to convert it takes more than {MEMORY:,} bytes of memory"
        raise DataError(reason, where=str(path), hint=hint) from error
    except _TooLong as error:
        reason = f"to convert it takes more than {SECONDS:,.0f} s"
        raise DataError(reason, where=str(path), hint=hint) from error


def make_passages(runs: Iterable[list[Paragraph]], name: str, title: str, text: str = "") -> Iterator[Passage]:
    """Passages of the document `name` from runs of its paragraphs, whose places are counted in `text`."""
    last, times = "", 0
    pages = [match.start() for match in re.finditer(PAGE, text)] if text.startswith(PAGE) else []
    for run in runs:
        page = f"page={bisect_left(pages, run[0].start)}&" if pages else ""
        place = f"{name}#{page}{run[0].start}-{run[-1].end}"
        times = times + 1 if place == last else 1
        last = place
        identity = place if times == 1 else f"{place}/{times}"  # the parts of one long paragraph
        headings = run[0].headings if run[0].headings[:1] == (title,) else (title, *run[0].headings)
        yield Passage(id=identity, title=": ".join(headings), text="\n".join(paragraph.text for paragraph in run))


def _split(text: str, kind: str) -> list[Paragraph]:
    if kind in TEXT:
        return split_text(text)
    return split_markdown(text, html=kind in (*MARKDOWN, ".ipynb"))  # that of other kinds is ours: `<` is text


def convert_document(path: Path) -> str:
    """A document's text as Markdown. Raises DataError where the file cannot be read, or is no document of its kind."""
    kind, data = path.suffix.lower(), read_bytes(path)
    if kind in MARKDOWN:
        return data.decode("utf-8-sig", "replace")
    from serving.retrieval import conversion  # a second to import, which no other command should wait for

    try:
        text = conversion.convert(unfold(data, kind) if kind in ARCHIVES else data, kind, path.stem)
        return text.encode(errors="replace").decode()  # JSON and RST spell halves of a surrogate pair
    except DataError as error:
        raise DataError(error.message, where=str(path), hint=error.hint) from error
    except MemoryError:
        raise
    except Exception as error:  # a converter's libraries raise whatever they like about a damaged file
        reason = f"it cannot be read as {kind[1:].upper()}: damaged, protected, or of another kind"
        raise DataError(reason, where=str(path)) from error


def read_bytes(path: Path) -> bytes:
    """The bytes of a document; of text in UTF-8. Raises DataError where it cannot be read, is too large, or where text
    holds zero bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > LARGEST:
        raise DataError(f"larger than {LARGEST:,} bytes", where=str(path), hint="split it")
    if path.suffix.lower() not in BINARY:
        if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            data = data.decode("utf-16", "replace").encode()
        if b"\0" in data:
            raise DataError("not text: it holds zero bytes", where=str(path))
    return data


def unfold(data: bytes, kind: str) -> bytes:
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
                raise DataError(f"compressed in a way that {kind[1:].upper()} does not know", hint="save it again")
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


class _TooLong(BaseException):
    """No Exception: a converter's libraries catch those, and read on."""


@contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    """Ends the block with _TooLong after so long, and again each second: what is raised within a finaliser is lost.
    Only the main thread of a process can be interrupted; in another one the block takes as long as it does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
