"""The configuration of an instruction set: a YAML file, checked field by field.

Paths may use environment variables; `${REVELATOR_DATA}` falls back to `../shared/data`. A relative path is relative to
the current folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from revelator.config import FilePath, Share, Strict, read_config
from revelator.tasks import TASKS

Published = Literal[
    "2wiki",
    "break",
    "commonsenseqa",
    "executed",
    "hotpotqa",
    "metaqa",
    "musique",
    "nq",
    "pairs",
    "qdmr",
    "qed",
    "qrecc",
    "squad",
    "strategyqa",
    "triviaqa",
    "webquestions",
    "world",
]
Format = Literal[Published, "logic", "reading"]
NAMED_TASKS = ("read",)  # that a source gives records for only where its `tasks` name them


class SourceSettings(Strict):
    """What to read."""

    path: FilePath  # a file, an address, or a Hub id: `hf://datasets/OWNER/NAME?split=train&subset=…`, or with `/FILE`
    name: str = ""  # what records carry as their source; the format's own name if empty
    licence: str = ""  # likewise
    limit: Annotated[int, Field(ge=1, le=sys.maxsize)] | None = None  # questions read, for a trial


class QuestionSource(SourceSettings):
    """Questions to read. `pairs` is the format of `question, answer` rows of one's own."""

    format: Published


class SourceConfig(SourceSettings):
    """Questions of a set. `sub_questions` is how many steps of a complex question also become single questions.

    `pairs` is the format of `question, answer` rows of one's own, `reading` that of rows for reading. `logic` makes
    logical questions over a corpus of `title, text` rows, or over the folder of a world.
    """

    format: Format
    sub_questions: Annotated[int, Field(ge=0)] = 1
    tasks: tuple[str, ...] = ()  # the tasks that it gives records for; all but `read` if empty
    size: Annotated[int, Field(ge=1)] = 10_000  # questions to make; `logic` alone
    copies: Annotated[int, Field(ge=0)] | None = None  # in place of those of `augment`: a few rows may count for many


class SplitConfig(Strict):
    """Shares of questions by hash of their id; a source with splits of its own keeps them."""

    dev: Share = 0.08
    test: Share = 0.0

    def choose(self, place: float) -> str:
        """The split at a place in [0, 1)."""
        return "test" if place < self.test else "dev" if place < self.test + self.dev else "train"

    @model_validator(mode="after")
    def _leaves_training_questions(self) -> SplitConfig:
        if self.dev + self.test >= 1:
            raise ValueError("dev and test together must leave a share for train")
        return self


class TaskConfig(Strict):
    """`per_question` bounds the records of one question, `share` is the part of records kept (by hash)."""

    per_question: Annotated[int, Field(ge=1)] = 4
    share: Share = 1.0


class AugmentConfig(Strict):
    """Copies of training questions under other names, so that structure and not names is learnt; `reworded` is the
    part of those with several hops that are also asked in other words (data_gen.augment.rewording), `noise` the part
    that is typed carelessly (data_gen.augment.noise)."""

    copies: Annotated[int, Field(ge=1)] = 1
    names: FilePath  # one name a line, or JSON lines with a `title`; either may be gzipped
    reworded: Share = 0.0
    noise: Share = 0.0
    tasks: tuple[str, ...] = ("route", "decompose", "refine", "rewrite", "translate_bnf", "translate_art")


class SetConfig(Strict):
    """One instruction set. `keep_back` is the share of the questions, by hash of their text, that no row may teach:
    `revelator eval run --unseen` asks them."""

    name: str
    seed: int = 13
    sources: tuple[SourceConfig, ...] = Field(min_length=1)
    split: SplitConfig = SplitConfig()
    tasks: dict[str, TaskConfig] = Field(default_factory=dict)
    held_out: FilePath | None = None
    keep_back: Share = 0.0
    entity_coverage: Share = 0.5  # part of a question's names that its plan must contain
    augment: AugmentConfig | None = None

    @model_validator(mode="after")
    def _knows_its_tasks(self) -> SetConfig:
        named = set(self.tasks) | set(self.augment.tasks if self.augment else ())
        named |= {task for source in self.sources for task in source.tasks}
        if unknown := sorted(named - set(TASKS)):
            raise ValueError(f"unknown task {', '.join(unknown)}; there are {', '.join(TASKS)}")
        return self

    def list_tasks(self, source: SourceConfig) -> tuple[str, ...]:
        """The tasks that a source gives records for."""
        return source.tasks or tuple(task for task in TASKS if task not in NAMED_TASKS)

    def task(self, name: str) -> TaskConfig:
        return self.tasks.get(name, TaskConfig())


def load_config(path: Path) -> SetConfig:
    """Reads the configuration of a set. Raises ConfigError that names field, value and reason."""
    return read_config(path, SetConfig)
