"""The embedded generator: the trained reader, which marks answers in passages, behind the generator protocol."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from revelator import reading
from revelator.artifact import EMBEDDED_READER
from revelator.reading import Reader
from revelator.sentences import find_ends
from revelator.tables import read_row, say_row
from revelator.trace import Passage
from serving.batching import Batcher
from serving.models.reader import load_reader
from serving.protocols import GenerateRequest, Reading
from serving.retrieval.snippets import choose_sentences

METHOD = "reader"
NO_LANGUAGE_MODEL = "no language model is configured"
NO_SPAN = "no words of the passages can be an answer"
REQUESTS = 8  # read together at most: with five passages of 200 tokens each, what one pass of the network takes
SURE = 0.5  # P(the passages answer), below which it is likelier that as wholes they do not
SPAN = 1_000  # characters of an answer: a longer one is a run of characters without a space, which is one token
SENTENCES = 8  # around the items of a list
ITEM = re.compile(r"(?:^|\n)- ")  # the mark of an item, as passages have it
LINE = re.compile(r"^(?:- )?(.+)$", re.MULTILINE)
REACH = 600  # characters before and after a span at which its sentence ends at the latest


class EmbeddedGenerator:
    """`serving.protocols.Generator` of a trained reader; without one, of the reader that comes with the package.

    Requests that come in one turn of the event loop, or while others are read, are read together, in a thread. The
    probability is reported as it is: whoever asks decides which answer is too unlikely. Questions without passages,
    steps to merge and prompts are a language model's work: they have no answer here, and the reading says why.

    Raises ArtifactError for a folder that holds no reader.
    """

    def __init__(self, reader: Reader | None = None) -> None:
        self._reader = reader or load_reader(EMBEDDED_READER)
        self._batcher: Batcher[str, GenerateRequest, Reading] = Batcher(self._answer_in_thread, REQUESTS)

    async def answer(self, request: GenerateRequest) -> Reading:
        return await self._batcher.submit(request.mode, request)

    async def _answer_in_thread(self, mode: str, requests: Sequence[GenerateRequest]) -> list[Reading]:
        return await asyncio.to_thread(self.answer_together, mode, requests)

    def answer_together(self, mode: str, requests: Sequence[GenerateRequest]) -> list[Reading]:
        """A reading of each request, all of one mode."""
        if mode != "read":
            return [Reading("", (), method=METHOD, reason=NO_LANGUAGE_MODEL)] * len(requests)
        return self._read_with_sentences(requests)

    def _read_with_sentences(self, requests: Sequence[GenerateRequest]) -> list[Reading]:
        """Reads the whole texts, and then the sentence of each that the question is most likely about. A sentence
        answers only where the wholes do not (P < `SURE`), and never in place of a list, of which it holds one item."""
        texts = [[text for passage in request.passages for text in cut_rows(passage)] for request in requests]
        asked = [replace(request, passages=tuple(own)) for request, own in zip(requests, texts, strict=True)]
        sentences = [_cut_to_sentences(request) for request in asked]
        read = [
            (request.question, [(p.title, join_items(p.text)) for p in own])
            for request, own in zip([*requests, *requests], [*texts, *sentences], strict=True)
        ]
        outcomes = self._reader.read_all(read)
        readings = []
        for n in range(len(requests)):
            whole, part = outcomes[n], outcomes[n + len(requests)]
            is_part = whole.kind != "list" and whole.probability < min(SURE, part.probability)
            readings.append(make_reading(part, sentences[n]) if is_part else make_reading(whole, texts[n]))
        return readings


@dataclass(frozen=True, slots=True)
class Row(Passage):
    """A row of a table in sentences; `line` is what its passage says."""

    line: str = ""


def cut_rows(passage: Passage) -> list[Passage]:
    """The rows of the passage's tables, each as a text of its own, and what is between them. A reader that was trained
    on sentences confuses the rows of one text, and reads sentences better than pairs: F1 of the questions of four
    organisations, plain, .280 -> .366 and .171 -> .209 (n = 64 each, the second not used to choose)."""
    texts: list[Passage] = []
    for pairs, lines in groupby(passage.text.split("\n"), lambda line: bool(read_row(line))):
        if pairs:
            texts += [Row(passage.id, passage.title, say_row(read_row(line)), line=line) for line in lines]
        elif text := "\n".join(lines).strip():
            texts.append(replace(passage, text=text))
    return texts if any(isinstance(text, Row) for text in texts) else [passage]


def _cut_to_sentences(request: GenerateRequest) -> list[Passage]:
    chosen = choose_sentences(request.question, request.passages)
    return [replace(p, text=sentence) for p, sentence in zip(request.passages, chosen, strict=True) if sentence]


def join_items(text: str) -> str:
    """The text with its items in one line, and commas between those that end without a mark: a reader that was trained
    on sentences takes the items of a list for one, or for the next line. Every character keeps its place."""

    def write(mark: re.Match[str]) -> str:
        comma = "," if text[max(0, mark.start() - 1) : mark.start()].isalnum() else ""
        return comma.ljust(len(mark[0]))

    return ITEM.sub(write, text)


def make_reading(outcome: reading.Reading, passages: Sequence[Passage]) -> Reading:
    """The answers with their passage, and the sentences in which they stand or which speak for them. A span over
    several lines is one answer a line."""
    found = [
        (passages[span.passage], span.start + line.start(1), span.start + line.end(1))
        for span in outcome.spans
        for line in LINE.finditer(passages[span.passage].text[span.start : span.end])
        if line.end(1) - line.start(1) <= SPAN
    ]
    if not found:
        return Reading("", (), method=METHOD, probability=0.0, reason=NO_SPAN)
    is_verdict = outcome.kind in ("yes", "no")
    sentences = dict.fromkeys(
        passage.line if isinstance(passage, Row) else quote_sentence(passage.text, start, end)
        for passage, start, end in found
    )
    said = dict.fromkeys(passage.text[start:end] for passage, start, end in found)
    return Reading(
        "\n".join(list(sentences)[:SENTENCES]),
        outcome.answers if is_verdict else tuple(said),
        method=METHOD,
        document=passages[outcome.spans[0].passage].id,  # where a list begins
        probability=outcome.probability,
        is_verdict=is_verdict,
    )


def quote_sentence(text: str, start: int, end: int) -> str:
    """The sentence of `text` around a span, or the sentences where the span reaches over an end."""
    first, last = max(0, start - REACH), min(len(text), end + REACH)
    ends = find_ends(text, first, last)
    begins = max((place for place in ends if place <= start), default=first)
    return text[begins : min((place for place in ends if place >= end), default=last)].strip()
