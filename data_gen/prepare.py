"""The part of a build that looks at one row alone: read → place in a split → validate → records.

It keeps nothing from one row to the next, so any number of processes may run it, on any machine. Afterwards
`data_gen.build` checks, in the order of the rows, what concerns the whole set: that no question comes twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from data_gen.annotate.validation import find_fault
from data_gen.augment.noise import add_typing_errors
from data_gen.augment.rewording import reword
from data_gen.augment.substitution import load_names, substitute_names
from data_gen.config import AugmentConfig, SetConfig, SourceConfig
from data_gen.leakage import find_held_out, load_held_out, make_question_key, make_text_key
from data_gen.questions import AnnotatedQuestion, DroppedError
from data_gen.read_examples import READ
from data_gen.reading_rows import read_reading_rows
from data_gen.records import hash_fraction, make_records, make_sub_questions
from data_gen.sources.formats import READERS
from data_gen.sources.logic_questions import read_logic
from data_gen.sources.rows import ReadResult, RefusedRow, SkippedRow
from revelator.errors import DataError
from revelator.fingerprints import fingerprint
from revelator.rows import Row

CHUNK = 100  # rows that travel together: about 1,000 records, 0.1-0.3 s of work

SUB_QUESTION = "sub-question: "
COPY = "renamed copy: "


@dataclass(frozen=True)
class Chunk:
    """Rows that follow each other in a source. `number` counts a build's chunks from 0, `source_number` its sources."""

    number: int
    source_number: int
    outcomes: tuple[ReadResult, ...]


@dataclass(frozen=True)
class Candidate:
    """A question that goes into the set with its rows unless it has a fault, or its id or its text is there already.

    `reason_prefix` begins the reasons under which it is counted if it does not. `others` are the questions made from
    it: they go in only if it does. `taught` are the fingerprints of the questions that its rows may teach a model, none
    of a renamed copy, whose original is in the set too, and none of a question that does not train.
    """

    reason_prefix: str
    id_key: int
    question_key: int
    fault: str | None
    split: str
    source: str
    rows: tuple[Row, ...]
    taught: tuple[int, ...] = ()
    others: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class PreparedChunk:
    """What became of the `read` rows of a chunk."""

    chunk: int
    source_number: int
    read: int
    candidates: tuple[Candidate, ...]
    refused: tuple[RefusedRow, ...]
    skipped: tuple[str, ...]


def read_chunks(config: SetConfig, start: int = 0) -> Iterator[Chunk]:
    """The rows of all sources, in order, from chunk number `start` on; those before are read and passed over.

    Raises DataError for a source that cannot be read or has none.
    """
    number = 0
    for place, source in enumerate(config.sources):
        rows, first = islice(_read_source(source, config), source.limit), number
        while outcomes := tuple(islice(rows, CHUNK)):
            if number >= start:
                yield Chunk(number, place, outcomes)
            number += 1
        if number == first:
            raise DataError("the source has no rows", where=source.path)


def _read_source(source: SourceConfig, config: SetConfig) -> Iterator[ReadResult]:
    if source.format == "logic":
        return read_logic(Path(source.path), source.size, config.seed, config.split)
    if source.format == "reading":
        return read_reading_rows(source.path, config)
    return READERS[source.format](source.path)


class Preparer:
    """Prepares chunks of one configuration: a function that can be sent to another process."""

    def __init__(self, config: SetConfig) -> None:
        self.config = config
        self.held_out = load_held_out(Path(config.held_out)) if config.held_out else {}
        self.names = load_names(Path(config.augment.names)) if config.augment else []

    def __call__(self, chunk: Chunk) -> PreparedChunk:
        source = self.config.sources[chunk.source_number]
        questions = [outcome for outcome in chunk.outcomes if isinstance(outcome, AnnotatedQuestion)]
        return PreparedChunk(
            chunk=chunk.number,
            source_number=chunk.source_number,
            read=len(chunk.outcomes),
            candidates=tuple(self._prepare_question(self._place_in_split(q, source), source) for q in questions),
            refused=tuple(outcome for outcome in chunk.outcomes if isinstance(outcome, RefusedRow)),
            skipped=tuple(outcome.reason for outcome in chunk.outcomes if isinstance(outcome, SkippedRow)),
        )

    def _place_in_split(self, question: AnnotatedQuestion, source: SourceConfig) -> AnnotatedQuestion:
        question = replace(question, source=source.name or question.source, licence=source.licence or question.licence)
        if question.split:
            return question
        place = hash_fraction(f"split:{self.config.seed}:{question.id}")
        return replace(question, split=self.config.split.choose(place))

    def _prepare_question(self, question: AnnotatedQuestion, source: SourceConfig) -> Candidate:
        """A question, its renamed copies, and its steps as single questions, each with copies of its own."""
        candidate = self._prepare_with_copies(question, source, question.id, "")
        if candidate.fault:
            return candidate
        singles = make_sub_questions(question, source.sub_questions, self.config.seed)
        others = [self._prepare_with_copies(single, source, question.id, SUB_QUESTION) for single in singles]
        return replace(candidate, others=(*candidate.others, *others))

    def _prepare_with_copies(
        self, question: AnnotatedQuestion, source: SourceConfig, group: str, reason_prefix: str
    ) -> Candidate:
        augment, tasks = self.config.augment, self.config.list_tasks(source)
        candidate = self._make_candidate(question, tasks, group, reason_prefix)
        if candidate.fault or augment is None:
            return candidate
        tasks = tuple(task for task in tasks if task in augment.tasks)
        count = augment.copies if source.copies is None else source.copies
        copies = self._make_copies(question, augment, count)
        return replace(candidate, others=tuple(self._make_candidate(copy, tasks, group, COPY) for copy in copies))

    def _make_copies(
        self, question: AnnotatedQuestion, augment: AugmentConfig, count: int
    ) -> Iterable[AnnotatedQuestion]:
        """Training questions under other names, some of them in other words, some typed carelessly."""
        rng = random.Random(f"{self.config.seed}:{question.id}")
        for number in range(count if question.split == "train" else 0):
            copy = substitute_names(question, self.names, rng)
            if copy is None:
                return
            copy = replace(copy, id=f"{question.id}/names{number}")
            changes = ((reword, "words", augment.reworded), (add_typing_errors, "noise", augment.noise))
            for change, name, share in changes:
                place = f"{name}:{self.config.seed}:{copy.id}"
                copy = change(copy, random.Random(place)) if hash_fraction(place) < share else copy
            yield copy

    def _make_candidate(
        self, question: AnnotatedQuestion, tasks: Iterable[str], group: str, reason_prefix: str
    ) -> Candidate:
        fault = find_held_out(self.held_out, question, self.config.keep_back)
        fault = fault or find_fault(question, self.config.entity_coverage)
        rows: tuple[Row, ...] = ()
        try:
            rows = () if fault else tuple(make_records(question, self.config, group, tasks))
        except DroppedError as reason:
            fault = reason.message
        trains = question.split == "train" and rows and reason_prefix != COPY
        return Candidate(
            reason_prefix=reason_prefix,
            id_key=make_text_key(question.id),
            question_key=make_question_key(_write_asked(question)),
            fault=fault,
            split=question.split,
            source=question.source,
            rows=rows,
            taught=tuple(sorted(set(map(fingerprint, question.list_taught())))) if trains else (),
        )


def _write_asked(question: AnnotatedQuestion) -> str:
    """What makes a question the same as another: its text and, where it is only read, the passage that it is put to."""
    passage = question.passages[0].text if question.tasks == (READ.name,) else ""
    return f"{question.question} {passage}"
