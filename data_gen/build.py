"""The way from sources to a set: read → gate against repeats and held-out questions → validate → records → files.

Every question that does not arrive is counted under its reason.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion
from data_gen.builder import fraction, records, sub_questions
from data_gen.config import SetConfig, SourceConfig
from data_gen.instruction_set import SPLITS, SetWriter, check_place, read_manifest, writing
from data_gen.leakage import Gate, load_held_out
from data_gen.sources import READERS, Refused, Skipped
from data_gen.sources.rows import Outcome
from data_gen.substitution import load_names, substitute_names
from data_gen.validators import first_fault
from revelator.artifact import grammar_hash
from revelator.durable import sha256_file
from revelator.errors import DataError

REFUSED_LISTED = 100  # rows named in the manifest; all are counted

Progress = Callable[[str, int], None]


@dataclass
class Build:
    """One build under way: what it may let through, and what it has counted."""

    config: SetConfig
    gate: Gate
    names: Sequence[str]
    writer: SetWriter
    questions: dict[str, Counter[str]] = field(default_factory=lambda: {split: Counter() for split in SPLITS})
    dropped: Counter[str] = field(default_factory=Counter)
    refused: list[Refused] = field(default_factory=list)

    def take(self, outcome: Outcome, source: SourceConfig) -> None:
        """One row of a source: its question, and the single questions that its steps are."""
        if isinstance(outcome, Refused):
            self.dropped["malformed row"] += 1
            self.refused.append(outcome)
        elif isinstance(outcome, Skipped):
            self.dropped[outcome.reason] += 1
        else:
            question = self._placed(outcome, source)
            if self._admitted(question):
                self._write(question, group=question.id)
                for single in sub_questions(question, source.sub_questions, self.config.seed):
                    if self._admitted(single, "sub-question: "):
                        self._write(single, group=question.id)

    def _placed(self, question: AnnotatedQuestion, source: SourceConfig) -> AnnotatedQuestion:
        question = replace(question, source=source.name or question.source, licence=source.licence or question.licence)
        if question.split:
            return question
        place, split = fraction(f"split:{self.config.seed}:{question.id}"), self.config.split
        name = "test" if place < split.test else "dev" if place < split.test + split.dev else "train"
        return replace(question, split=name)

    def _admitted(self, question: AnnotatedQuestion, kind: str = "") -> bool:
        texts = [question.question, *question.parts, *(step.question for step in question.steps)]
        held = self.gate.leaks(*texts)
        reason = f"held out ({held})" if held else first_fault(question, self.config.entity_coverage)
        reason = reason or self.gate.admit(question.id, question.question)
        if reason:
            self.dropped[kind + reason] += 1
        return reason is None

    def _write(self, question: AnnotatedQuestion, group: str) -> None:
        self.questions[question.split][question.source] += 1
        for record in records(question, self.config, group):
            self.writer.add(record)
        for copy in self._copies(question):
            for record in records(copy, self.config, group):
                if self.config.augment and record.task in self.config.augment.tasks:
                    self.writer.add(record)

    def _copies(self, question: AnnotatedQuestion) -> Iterator[AnnotatedQuestion]:
        """Training questions under other names; a copy that meets a known or held-out question is left out."""
        if self.config.augment is None or question.split != "train":
            return
        rng = random.Random(f"{self.config.seed}:{question.id}")
        for number in range(self.config.augment.copies):
            copy = substitute_names(question, self.names, rng)
            if copy is None:
                return
            copy = replace(copy, id=f"{question.id}/names{number}")
            if self._admitted(copy, "renamed copy: "):
                yield copy


def build(
    config: SetConfig,
    target: Path,
    progress: Progress = lambda source, questions: None,
    teaching: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Builds the set at `target` and returns its manifest. `teaching` says for its card how a teacher made its rows.

    Raises DataError for a source that cannot be read or used at all, ConfigError for a target that holds something
    other than a set; then `target` is as it was before.
    """
    check_place(target)
    gate = Gate(load_held_out(Path(config.held_out)) if config.held_out else {})
    names = load_names(Path(config.augment.names)) if config.augment else []
    about: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "grammar_hash": grammar_hash(),
        "inputs": _inputs(config),
        "teaching": teaching or {},
    }
    with writing(target, about) as writer:
        run = Build(config, gate, names, writer)
        for source in config.sources:
            taken = 0
            for taken, outcome in enumerate(islice(_read(source), source.limit), start=1):
                run.take(outcome, source)
                progress(source.path, taken)
            if taken == 0:
                raise DataError("the source has no rows", where=source.path)
        about["questions"] = {split: dict(sorted(counts.items())) for split, counts in run.questions.items()}
        about["dropped"] = dict(sorted(run.dropped.items()))
        about["refused_rows"] = [vars(row) for row in run.refused[:REFUSED_LISTED]]
    return read_manifest(target)


def _read(source: SourceConfig) -> Iterator[Outcome]:
    return READERS[source.format](source.path)


def _inputs(config: SetConfig) -> dict[str, str]:
    """Digest of each input file; a missing one is reported when it is read."""
    paths = [Path(source.path) for source in config.sources]
    paths = [path / "questions.jsonl" if path.is_dir() else path for path in paths]
    paths += [Path(name) for name in (config.held_out, config.augment and config.augment.names) if name]
    return {str(path): sha256_file(path) for path in paths if path.is_file()}
