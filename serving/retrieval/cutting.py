"""Markdown and plain text → paragraphs under their headings → runs of them that are passages.

A row of a table is a paragraph, one line of `Column: value` pairs (`revelator.tables`). A short paragraph above a
table, unless it is a sentence, is its title: a heading of its rows. So the rows of one table lie together, and each
passage of a long table says again what table it is of. A long row is a section of its own with its key as heading, and
a line for each of its pairs.

A heading with nothing below it is a paragraph: what it says would be found nowhere else. Of the front matter the title
is the heading of all, and each other plain value a paragraph.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest

import yaml
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode
from tokenizers import Tokenizer

from revelator.minilm import TOKENIZER, fetch_minilm
from revelator.tables import write_pairs

CHARACTERS = 20  # of a token, at most: MiniLM counts a word of any length that it does not know as one
TITLE = 120  # characters of a paragraph above a table that is its title, and of a key that is a heading
PIECE = 100_000  # characters of a paragraph whose tokens are counted at a time: a token takes 200 bytes
LONG_ROW = 600  # characters, some 130 tokens: two of them fill a passage
STOPS = ".!?。！？"
SENTENCE_END = re.compile(rf"[{STOPS}]\s|\n")
FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?\n)(?:---|\.\.\.)[ \t]*\r?(?:\n|\Z)", re.DOTALL)
LONGEST_VALUE = 200  # characters of a value of the front matter, or of an attribute
SITE = re.compile(
    r"layout|template|theme|permalink|slug|url|alias(es)?|redirect.*|weight|nav_.*|sidebar.*|toc|id|css|js", re.I
)
READERS = "allowed"  # who may read it (`serving.retrieval.fields`) is no text of the document
SWITCHES = ("", "true", "false", "null", "~")  # values that say nothing


@dataclass(frozen=True)
class Paragraph:
    """What is never joined with its neighbours in one line: a paragraph, an item of a list, a row of a table. The last
    `of_table` headings are a table's."""

    headings: tuple[str, ...]
    text: str
    start: int
    end: int
    of_table: int = 0


def split_text(text: str) -> list[Paragraph]:
    """Plain text at its empty lines."""
    found = re.finditer(r"\S(?:[^\n]++|\n(?!\s*\n))*+", text)  # possessive: else a character takes 140 bytes
    return [Paragraph((), " ".join(match[0].split()), match.start(), match.end()) for match in found]


def split_markdown(text: str, *, html: bool = True) -> list[Paragraph]:
    """The paragraphs of a Markdown text without its marks. Unless it may hold `html`, `<b>` is text."""
    walk = _Walk(text, MarkdownIt("commonmark", {"html": html}).enable("table"))
    if matter := FRONT_MATTER.match(text):
        facts = _read_front_matter(matter[1])
        if facts is not None:
            walk.open_document(facts, matter.end())
        body = matter[1] if facts is None else "\n" * matter[1].count("\n")
        text = f"\n{body}\n{text[matter.end() :]}"
    walk.read(text)
    return walk.paragraphs


def _read_front_matter(text: str) -> dict[str, str] | None:
    """The plain values by their names, as they are written, without settings of a site; None where the text is no YAML
    of names and values."""
    try:
        values = yaml.load(text, Loader=yaml.BaseLoader)  # it makes strings, lists and dictionaries alone
    except (yaml.YAMLError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    facts = {}
    for name, value in values.items():
        own = value if isinstance(value, list) else [value]
        is_text = all(isinstance(each, str) for each in (name, *own))
        if is_text and not SITE.fullmatch(name) and name.strip().lower() != READERS:
            facts[name] = ", ".join(each.strip() for each in own)
    return facts


def write_fact(name: str, value: str) -> str:
    """A line of what is known about a document: "Last review: 3 May". "" for what is long, or says nothing."""
    value = " ".join(value.split())
    words = " ".join(re.sub("[-_]", " ", name).split())
    is_said = words and value.lower() not in SWITCHES and len(value) <= LONGEST_VALUE
    return f"{words[0].upper()}{words[1:]}: {value}" if is_said else ""


class _Walk:
    """One pass over the blocks of a text; `paragraphs` are those so far."""

    def __init__(self, text: str, parser: MarkdownIt) -> None:
        self.paragraphs: list[Paragraph] = []
        self._parser = parser
        self._lines = [0, *(match.end() for match in re.finditer("\n", text)), len(text)]
        self._headings: list[tuple[int, str]] = []  # level and text of those above
        self._bare: Paragraph | None = None  # the last heading, while nothing is below it

    def read(self, text: str) -> None:
        self._visit(SyntaxTreeNode(self._parser.parse(text)), "", None)
        self._close_heading()

    def open_document(self, facts: dict[str, str], end: int) -> None:
        """Begins with what the front matter, which ends at `end`, says; its title is above all headings."""
        title = next((" ".join(value.split()) for name, value in facts.items() if name.lower() == "title"), "")
        if title:
            self._headings = [(0, title)]
        for name, value in facts.items():
            if name.lower() != "title":
                self._add(write_fact(name, value), (0, end))

    def _visit(self, parent: SyntaxTreeNode, bullet: str, place: tuple[int, int] | None) -> None:
        """`place` are the lines of a block of HTML, for all that is within it."""
        table: tuple[str, ...] = ()  # the title of the table that is next
        for node, after in zip_longest(parent.children, parent.children[1:]):
            first, last = place or node.map or (0, 0)
            span = self._lines[first], self._lines[last]
            if node.type == "heading":
                self._open_heading(int(node.tag[1:]), render(node).strip(), span)
            elif node.type in ("paragraph", "fence", "code_block"):
                words = render(node).strip()
                table = (words,) if node.type == "paragraph" and _is_title(words, after) else ()
                if not table:
                    self._add(f"{bullet}{words}" if words else "", span)
            elif node.type == "table":
                count = len(self.paragraphs)
                self._read_table(node, table, place)
                if len(self.paragraphs) == count:  # no row is there for the title to stand above
                    self._add("".join(table), span)
                table = ()
            elif node.type == "html_block":
                if not node.content.lstrip().startswith("<!--"):
                    self._visit(SyntaxTreeNode(self._parser.parse(_convert_html(node.content))), bullet, (first, last))
            else:
                self._visit(node, "- " if node.type == "list_item" else bullet, place)

    def _open_heading(self, level: int, words: str, span: tuple[int, int]) -> None:
        if self._headings[:1] == [(0, words)]:  # the title of the front matter, said again
            self._close_heading()
            del self._headings[1:]
            return
        inner = self._headings and self._headings[-1][0] < level
        if not inner:
            self._close_heading()
        self._headings = [each for each in self._headings if each[0] < level]
        self._bare = Paragraph(self._above(), words, *span) if words else None
        if words:
            self._headings.append((level, words))

    def _close_heading(self) -> None:
        if self._bare:
            self.paragraphs.append(self._bare)
        self._bare = None

    def _above(self) -> tuple[str, ...]:
        return tuple(words for _, words in self._headings)

    def _add(self, words: str, span: tuple[int, int], section: tuple[str, ...] = ()) -> None:
        if words:
            self._bare = None
            self.paragraphs.append(Paragraph((*self._above(), *section), words, *span, len(section)))

    def _read_table(self, table: SyntaxTreeNode, title: tuple[str, ...], place: tuple[int, int] | None) -> None:
        rows = [node for node in table.walk(include_self=False) if node.type == "tr"]
        cells = [[render(cell).strip() for cell in row.children] for row in rows]
        for number, (row, own) in enumerate(zip(rows, cells, strict=True)):
            first, last = place or row.map or (0, 0)
            span = self._lines[first], self._lines[last]
            for section, words in write_sections(cells[0], own, is_header=number == 0, is_alone=len(rows) == 1):
                self._add(words, span, (*title, *section))


def _is_title(words: str, after: SyntaxTreeNode | None) -> bool:
    """Whether a paragraph before the block `after` is the title of a table."""
    return after is not None and after.type == "table" and 0 < len(words) <= TITLE and words[-1] not in STOPS


def write_sections(
    columns: list[str], cells: list[str], *, is_header: bool = False, is_alone: bool = False
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paragraphs of a row, each with the headings that the table adds. The header is a row of a table that has no
    other one."""
    if is_header and not is_alone:
        return
    pairs = write_pairs([""] * len(cells) if is_header else columns, cells)
    words = "; ".join(pairs)
    if len(words) <= LONG_ROW:
        yield (), words
        return
    key = " ".join(cells[0].split())
    for pair in pairs:
        yield (key,) if 0 < len(key) <= TITLE else (), pair


def _convert_html(html: str) -> str:
    from serving.retrieval.markup import convert_fragment  # half a second to import

    return convert_fragment(html)


def render(node: SyntaxTreeNode) -> str:
    """The text of a node without marks, links and raw HTML; of a picture its description."""
    if node.type in ("softbreak", "hardbreak"):
        return " "
    if node.type == "html_inline":
        return ""
    return "".join(map(render, node.children)) if node.children else node.content


def pack(paragraphs: Iterable[Paragraph], size: int, overlap: int) -> Iterator[list[Paragraph]]:
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
    for part in (part for piece in _split_pieces(paragraph.text) for part in _cut_text(piece, size)):
        yield from (replace(paragraph, text=part[at : at + longest]) for at in range(0, len(part), longest))


def _split_pieces(text: str) -> Iterator[str]:
    """A text in pieces of at most `PIECE` characters, which end between two words where they can."""
    first = 0
    while len(text) - first > PIECE:
        end = text.rfind(" ", first, first + PIECE) + 1 or first + PIECE
        yield text[first:end]
        first = end
    yield text[first:]


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
