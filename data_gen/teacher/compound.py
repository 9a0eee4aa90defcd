"""Compound questions about the titles of a corpus (HANRAG, appendix B).

For each title simple questions are asked for that its documents answer: one of each document, or of a single document
several. Two to four of them are combined into one question. A title belongs to one split, by the hash of its name, so
no two splits ask about the same one; titles are taken in the order of their hash until a split has its size.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from data_gen.leakage import QuestionFilter
from data_gen.questions import (
    QUESTIONS,
    AnnotatedPassage,
    AnnotatedQuestion,
    AnnotatedStep,
    DroppedError,
    write_questions,
)
from data_gen.records import hash_fraction
from data_gen.teacher import replies
from data_gen.teacher.chats import Asker, Decision
from data_gen.teacher.config import CompoundConfig
from data_gen.teacher.replies import SimpleQuestion
from data_gen.teacher.work import Progress, Work, build_set, open_work
from revelator.cluster import Engine, work_here
from revelator.errors import DataError
from revelator.files import sha256_text
from revelator.fingerprints import normalise
from revelator.plans import Atomic, Sequence, render
from revelator.row_files import read_objects

PARTS = ((2, 3, 4), (6, 3, 1))  # how many questions are combined, and how often
CHARACTERS = 4000  # of a document that the teacher sees
SPARE = 3  # titles read for each question wanted: some give none


@dataclass(frozen=True)
class Topic:
    """A title, the split that it belongs to, and its documents."""

    title: str
    split: str
    documents: tuple[str, ...]


def write_compound(
    config: CompoundConfig, out: Path, progress: Progress, engine: Engine = work_here
) -> tuple[dict[str, Any], Work]:
    """Writes compound questions in the folder `out` and builds a set of them; its manifest. Raises as `teach` does."""
    with open_work(out, config, progress) as work:
        asyncio.run(_write(config, out, work))
        manifest = build_set(out, config, work, engine)
    return manifest, work


async def _write(config: CompoundConfig, out: Path, work: Work) -> None:
    writer = _Writer(config, work)
    question_filter = QuestionFilter(config.held_out)
    topics = _choose_topics(config)
    with write_questions(out / QUESTIONS) as write:
        for split, size in config.sizes:
            own = (topic for topic in topics if topic.split == split)
            async for question in work.make_each(own, writer.write, partial(work.count_missing, work.kept + size)):
                if question is not None and question_filter.admits(question, work.dropped):
                    write(question)
                    work.kept += 1
    await work.client.close()


def _choose_topics(config: CompoundConfig) -> list[Topic]:
    """The titles with the smallest hashes, with their documents. Two passes: memory holds the titles that are asked."""
    total = sum(size for _, size in config.sizes)
    place = partial(_hash_title, config.seed)
    chosen = set(heapq.nsmallest(total * SPARE, {title for title, _ in _read_documents(config)}, key=place))
    texts: dict[str, list[str]] = defaultdict(list)
    for title, text in _read_documents(config):
        if title in chosen and len(texts[title]) < config.documents:
            texts[title].append(text[:CHARACTERS])
    ordered = sorted(texts, key=place)
    return [Topic(title, _choose_split(config, title), tuple(texts[title])) for title in ordered]


def _hash_title(seed: int, title: str) -> str:
    return sha256_text(f"{seed}:title:{normalise(title)}")


def _choose_split(config: CompoundConfig, title: str) -> str:
    """By the hash of the name in the title ("Tin Comet" of "Tin Comet (film)"), in the proportions of the sizes."""
    place = hash_fraction(f"{config.seed}:split:{normalise(title.partition(' (')[0])}") * sum(
        size for _, size in config.sizes
    )
    for split, size in config.sizes:
        place -= size
        if place < 0:
            return split
    return "train"


def _read_documents(config: CompoundConfig) -> Iterator[tuple[str, str]]:
    for line, row in read_objects(config.corpus):
        try:
            title, text = " ".join(row["title"].split()), " ".join(row["text"].split())
        except (KeyError, AttributeError) as error:
            where = f"{config.corpus}, line {line}"
            raise DataError("expected the texts `title` and `text`", where=where) from error
        if normalise(title) and text:
            yield title, text


class _Writer:
    def __init__(self, config: CompoundConfig, work: Work) -> None:
        self.config = config
        self.asker = Asker(work.client, config.sampling)

    async def write(self, topic: Topic) -> AnnotatedQuestion:
        """Raises DroppedError with the reason why there is none."""
        rng = random.Random(f"{self.config.seed}:{topic.title}")
        [count] = rng.choices(*PARTS)
        simple = await self._ask_simple(topic, count)
        if len(simple) < 2:
            raise DroppedError("fewer than two simple questions")
        chosen = sorted(rng.sample(range(len(simple)), min(count, len(simple))))
        parts = [simple[i] for i in chosen]
        data = {"title": topic.title, "questions": [part.question for _, part in parts]}
        read = partial(replies.read_combined, topic.title, [part for _, part in parts])
        written = await self._ask("combine", data, read)
        return self._annotate(topic, written, parts)

    async def _ask_simple(self, topic: Topic, count: int) -> list[tuple[int, SimpleQuestion]]:
        """Simple questions, each with the number of its document; no two have the same answer."""
        most = max(4, count) if len(topic.documents) == 1 else 1
        found = await asyncio.gather(*(self._ask_of_document(topic, text, most) for text in topic.documents))
        numbered = [(number, simple) for number, own in enumerate(found) for simple in own]
        distinct = {normalise(simple.answer): (number, simple) for number, simple in reversed(numbered)}
        by_question = {normalise(simple.question): (number, simple) for number, simple in distinct.values()}
        return sorted(by_question.values(), key=lambda pair: numbered.index(pair))

    async def _ask_of_document(self, topic: Topic, text: str, most: int) -> list[SimpleQuestion]:
        data = {"title": topic.title, "text": text, "at_most": most}
        try:
            return (
                await self._ask("simple", data, partial(replies.read_simple_questions, topic.title, text, most))
            ).value
        except DroppedError:
            if len(topic.documents) == 1:
                raise
            return []

    async def _ask(self, prompt: str, data: dict[str, Any], read: Any) -> Decision:
        """Questions are worded freely: samples agree that are valid."""
        return await self.asker.ask(prompt, data, read, lambda _: "")

    def _annotate(self, topic: Topic, written: Decision, parts: list[tuple[int, SimpleQuestion]]) -> AnnotatedQuestion:
        used = {number for number, _ in parts}
        return AnnotatedQuestion(
            id=f"{self.config.name}:{sha256_text(topic.title)[:16]}",
            source=self.config.name,
            licence=self.config.licence,
            split=topic.split,
            question=written.value,
            route="compound",
            expression=render(Sequence(tuple(Atomic(part.question) for _, part in parts))),
            parts=tuple(part.question for _, part in parts),
            steps=tuple(AnnotatedStep(part.question, (part.answer,), topic.title) for _, part in parts),
            answers=tuple(part.answer for _, part in parts),
            passages=tuple(AnnotatedPassage(topic.title, topic.documents[number], True) for number in sorted(used)),
            entities=(topic.title.partition(" (")[0],),
            ending="both",
            teacher=f"endpoint:{self.config.endpoint.model}",
            agreement={"decompose": written.agreement},
        )
