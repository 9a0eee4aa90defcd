"""Names come back as they were written: a text of word pieces gets its spelling from the texts that it was made from.

Word pieces are lower case, without accents, and leave out white space; a word that the vocabulary lacks is one piece,
[UNK], whatever it is. What a model writes is mostly copied, so each longest run of its words that stands in a source is
written as there: case, accents, scripts, spaces and marks, by the offsets of the tokenizer. Words that stand in no
source are written in lower case, with a capital where a sentence begins; between them, marks stand as in English and in
plans. A placeholder is written as it is, and so is the operation that a plan ends in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

CONTINUES = "##"
CLOSING = frozenset(",.?!;:)]}%’”»…")  # no space before
OPENING = frozenset("([{“«¿¡#$£€@")  # no space after
JOINING = frozenset("'-/_–\\")  # no space on either side
OPERATORS = frozenset("*+")  # of plans: a sentence begins after one
ENDING = "=>"  # of plans: the name of an operation follows
QUOTES = frozenset(('"', '\\"'))  # opening and closing look alike
MARKS = OPENING | CLOSING | QUOTES | OPERATORS
# In titles, too, most write these small.
SMALL = frozenset(("a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"))
QUERY_WORDS = frozenset(("and", "or", "not", "(", ")"))  # what stands between the terms of a logical query
QUESTION = "question"  # the key of JSON whose value is a sentence


@dataclass(frozen=True)
class Word:
    """What the tokenizer splits no text inside of; `pieces` are its tokens. One of a source stands at `start` to `end`
    of source number `source`."""

    pieces: tuple[int, ...]
    text: str
    source: int = -1
    start: int = 0
    end: int = 0


def restore_spelling(pieces: Sequence[int], sources: Sequence[str], tokenizer: Any) -> str:
    """The text of word pieces, as `sources` spell what it has of them. Special tokens are no text.

    An unknown word is the one that stands in a source where the words beside it do; where the sources have no unknown
    word it is left out.
    """
    written = list(_join_words(pieces, tokenizer))
    sources = [unicodedata.normalize("NFC", source) for source in sources]
    known = [word for number, source in enumerate(sources) for word in _read_source_words(number, source, tokenizer)]
    lower = {word.text for word in known if word.text in read_function_words()}  # function words that are no names here

    def spell(words: list[Word], begins: bool) -> str:
        return _Writer(tokenizer.unk_token, lower, begins).write(_find_runs(words, known), sources)

    parts = _split_query(written)
    if parts is None:
        return spell(written, True)
    text = ""
    for before, part in zip(["(", *parts], parts, strict=False):
        text += "" if before == "(" or part == ")" else " "
        text += part if isinstance(part, str) else f'"{spell(part, False)}"'
    return text


def _split_query(written: list[Word]) -> list[list[Word] | str] | None:
    """The words of each term of a logical query, and its operators and parentheses between them as the language spells
    them; None for any other text: one with other words outside quotations."""
    parts: list[list[Word] | str] = []
    term: list[Word] | None = None
    for word in written:
        if word.text == '"':
            parts += [term] if term is not None else []
            term = [] if term is None else None
        elif term is not None:
            term.append(word)
        elif word.text in QUERY_WORDS:
            parts.append(word.text.upper())
        else:
            return None
    return parts if term is None and any(isinstance(part, list) for part in parts) else None


def read_sources(prompt: str) -> list[str]:
    """Question, steps and documents of a prompt: what follows the names of its lines. The first is the instruction."""
    return [text for line in prompt.splitlines()[1:] if (text := line.partition(": ")[2])]


def _join_words(pieces: Sequence[int], tokenizer: Any) -> Iterator[Word]:
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    waiting: list[tuple[int, str]] = []
    for piece in pieces:
        if piece in special:
            continue
        text = tokenizer.convert_ids_to_tokens(piece)
        joined = waiting[-1][1] + text if waiting else ""
        is_one = joined in ('\\"', ENDING)  # a quote inside JSON, and what an operation stands behind, are one word
        if waiting and not is_one and not text.startswith(CONTINUES):
            yield _join(waiting)
            waiting = []
        waiting.append((piece, text.removeprefix(CONTINUES) if waiting else text))
    if waiting:
        yield _join(waiting)


def _join(pieces: list[tuple[int, str]]) -> Word:
    return Word(tuple(piece for piece, _ in pieces), "".join(text for _, text in pieces))


def _read_source_words(number: int, source: str, tokenizer: Any) -> Iterator[Word]:
    read = tokenizer(source, add_special_tokens=False, return_offsets_mapping=True)
    tokens = zip(read["input_ids"], read["offset_mapping"], read.word_ids(), strict=True)
    for _, group in groupby(tokens, key=lambda token: token[2]):
        own = list(group)
        start, end = own[0][1][0], own[-1][1][1]
        while end < len(source) and unicodedata.combining(source[end]):
            end += 1
        yield Word(tuple(piece for piece, _, _ in own), source[start:end], number, start, end)


Run = tuple[list[Word], list[Word]]  # written words, and the words of a source that they are, if they are any


def _find_runs(written: list[Word], known: list[Word]) -> Iterator[Run]:
    """The written words in order: longest runs that stand in a source, placeholders, operations, and single words."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, word in enumerate(known):
        places.setdefault(word.pieces, []).append(place)
    at, after = 0, 0  # `after`: the place behind the run before
    used: set[int] = set()
    while at < len(written):
        length = 2 if written[at].text == ENDING else _measure_placeholder(written, at)
        if length:
            yield written[at : at + length], []
            at += length
            continue
        found = (
            []
            if _is_key(written, at)
            else [
                (
                    _count_shared(written, at, known, place),
                    place == after,
                    known[place].text.islower(),
                    place not in used,
                    -place,
                )
                for place in places.get(written[at].pieces, [])
                if _may_begin(known, place)
            ]
        )
        length, *_, place = max(found, default=(0, 0))
        if length and not all(word.text in MARKS for word in written[at : at + length]):
            after = length - place
            used.update(range(-place, after))
            yield written[at : at + length], known[-place:after]
        else:
            length = 1
            yield written[at : at + 1], []
        at += length


def _measure_placeholder(written: list[Word], at: int) -> int:
    """How many words the placeholder has that begins here; 0 if none does."""
    if written[at].text != "{":
        return 0
    end = next((i for i in range(at, min(at + 12, len(written))) if written[i].text == "}"), at - 1)
    return end + 1 - at if all(w.text.isalnum() or w.text in "_-.'*" for w in written[at + 1 : end]) else 0


def _may_begin(known: list[Word], place: int) -> bool:
    """May a run begin here? An operator of plans looks like the first character of a word ("+1"), not a later one."""
    word, before, after = known[place], known[place - 1 : place], known[place + 1 : place + 2]
    is_first = not before or before[0].source != word.source or before[0].end < word.start
    is_joined = bool(after) and after[0].source == word.source and after[0].start == word.end
    return word.text not in OPERATORS or (is_first and is_joined)


def _is_key(written: list[Word], at: int) -> bool:
    """Is the word a key of a JSON object?"""
    around = [written[place].text if 0 <= place < len(written) else "" for place in (at - 2, at - 1, at + 1, at + 2)]
    return around[0] in ("{", ",") and around[1:] == ['"', '"', ":"]


def _count_shared(written: list[Word], at: int, known: list[Word], place: int) -> int:
    length = 0
    for own, other in zip(written[at:], known[place:], strict=False):
        if own.pieces != other.pieces or other.source != known[place].source:
            break
        length += 1
    return length


class _Writer:
    """The text so far, and what decides how it goes on; `lower` are function words that a source has in lower case."""

    def __init__(self, unknown: str, lower: set[str], begins: bool) -> None:
        self.unknown, self.lower = unknown, lower
        self.text = ""
        self.last = ""  # the last word
        self.begins = begins  # a sentence
        self.open = dict.fromkeys(QUOTES, False)
        self.brackets: list[str] = []  # of JSON, that are open
        self.quotation = 0  # where in the text the last one begins
        self.key = ""  # of JSON, whose value is written

    def write(self, runs: Iterator[Run], sources: Sequence[str]) -> str:
        for written, known in runs:
            word = written[0].text
            if known:
                self._copy(written, known, sources)
            elif word == ENDING:
                self._add(word, " ".join(each.text for each in written), written[-1].text)
            elif len(written) > 1:
                self._add("{", _spell_placeholder(written), "}")
            elif word in MARKS:
                self._mark(word)
            elif word != self.unknown:
                self._add(word, word[:1].upper() + word[1:] if self.begins else word, word)
        return self.text

    def _copy(self, written: list[Word], known: list[Word], sources: Sequence[str]) -> None:
        first, last = known[0], known[-1]
        source = sources[first.source]
        text = source[first.start : last.end]
        if all(word.text in self.lower or word.text in SMALL for word in written) and text.isascii():
            text = text.lower()
        if written[0].text in read_function_words():
            begun = first.start == 0 or source[: first.start].rstrip().endswith((".", "?", "!", ":"))
            if self.begins:
                text = text[:1].upper() + text[1:]
            elif begun and (len(known) == 1 or known[1].text[:1].islower()):
                text = text[:1].lower() + text[1:]  # a capital because a sentence began there
        begins_word = not source[first.start - 1 : first.start].strip()  # as its source has it
        ends_word = not source[last.end : last.end + 1].strip()
        self._add("" if begins_word else written[0].text, text, "" if ends_word else written[-1].text)
        for word in written:
            if word.text in QUOTES:
                self.open[word.text] = not self.open[word.text]

    def _mark(self, word: str) -> None:
        """A mark that stands in no source: what it does to a plan or to JSON."""
        begins = self.begins and word in OPENING
        inside = self.brackets[-1:]
        if word in QUOTES:
            opens = not self.open[word]
            if opens:
                is_question = self.last == ":" and self.key == QUESTION
                begins = inside == ["["] or is_question or (self.begins and not inside)
            self._add(word, word, word)
            self.open[word] = opens
            self.quotation = len(self.text) if opens else self.quotation
        else:
            if word in "[{" and not any(self.open.values()):
                self.brackets.append(word)
            elif word in "]}" and inside and not any(self.open.values()):
                self.brackets.pop()
            elif word == ":":
                self.key = self.text[self.quotation :].rstrip('"')
            self._add(word, word, word)
        self.begins = begins or word in OPERATORS

    def _add(self, first: str, text: str, last: str) -> None:
        """Adds a text that begins with the word `first` and ends with the word `last`; empty: with any letter."""
        self.text += (" " if self.text and self._is_apart(first) else "") + text
        self.begins, self.last = False, last

    def _is_apart(self, word: str) -> bool:
        """Whether a space stands before the word."""
        if self.last in OPENING or self.last in JOINING or word in CLOSING or word in JOINING:
            return False
        if (self.last in QUOTES and self.open[self.last]) or (word in QUOTES and self.open[word]):
            return False
        number = self.last in (".", ",", ":") and self.text[-2:-1].isdigit() and word[:1].isdigit()
        return not number


def _spell_placeholder(words: list[Word]) -> str:
    text = " ".join(word.text for word in words[1:-1])
    for mark in "_-.'":
        text = text.replace(f" {mark} ", mark)
    return f"{{{text.replace(' *', '*')}}}"


@cache
def read_function_words() -> frozenset[str]:
    """Reads `function_words.txt`: question words, prepositions, auxiliaries, nouns and verbs of common relations."""
    lines = files("revelator.prefix_lm").joinpath("function_words.txt").read_text(encoding="utf-8").splitlines()
    return _spellings(" ".join(line for line in lines if not line.startswith("#")))


def _spellings(text: str) -> frozenset[str]:
    return frozenset(
        form for word in re.findall(r"\w+", text) for form in (word, word.lower(), word[0].upper() + word[1:])
    )
