"""The configuration of an instruction set: a YAML file, checked field by field.

Paths may use environment variables; `${REVELATOR_DATA}` falls back to `../shared/data`. A relative path is relative to
the current folder.
"""

from __future__ import annotations

import os
import re
import reprlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from revelator.errors import ConfigError
from revelator.tasks import TASKS

DATA_VARIABLE = "REVELATOR_DATA"
DATA_DEFAULT = "../shared/data"
SHORT = reprlib.Repr()  # by aliases a short file may hold a value of any size
SHORT.maxlevel, SHORT.maxstring, SHORT.maxother = 2, 80, 80
VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def _expanded(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        fallback = DATA_DEFAULT if name == DATA_VARIABLE else None
        found = os.environ.get(name) or fallback
        if found is None:
            raise ValueError(f"environment variable {name} is not set")
        return found

    return VARIABLE.sub(value, text)


FilePath = Annotated[str, AfterValidator(_expanded)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Format = Literal[
    "2wiki",
    "break",
    "commonsenseqa",
    "fanoutqa",
    "hotpotqa",
    "logic",
    "musique",
    "nq",
    "pairs",
    "qed",
    "squad",
    "strategyqa",
    "triviaqa",
    "webquestions",
    "world",
]


class SourceConfig(_Strict):
    """What to read. `sub_questions` is how many steps of a complex question also become single questions.

    `path` is a file, its address (`https://…`, `hf://datasets/OWNER/NAME/FILE`), or a data set on the Hub
    (`hf://datasets/OWNER/NAME?split=train&subset=…`); `pairs` is the format of `question, answer` rows of one's own.
    `logic` makes logical questions over a corpus of `title, text` rows, or over the folder of a world.
    """

    format: Format
    path: FilePath
    name: str = ""  # what records carry as their source; the format's own name if empty
    licence: str = ""  # likewise
    sub_questions: Annotated[int, Field(ge=0)] = 1
    tasks: tuple[str, ...] = ()  # the tasks that it gives records for; all if empty
    size: Annotated[int, Field(ge=1)] = 10_000  # questions to make; `logic` alone
    limit: Annotated[int, Field(ge=1, le=sys.maxsize)] | None = None  # questions read, for a trial


class QuestionSource(SourceConfig):
    """A source whose questions stand in it already."""

    @model_validator(mode="after")
    def _has_questions(self) -> QuestionSource:
        if self.format == "logic":
            raise ValueError("format logic makes questions of its own: use it in the configuration of a set")
        return self


class SplitConfig(_Strict):
    """Shares of questions by hash of their id; a source with splits of its own keeps them."""

    dev: Share = 0.08
    test: Share = 0.0

    @model_validator(mode="after")
    def _leaves_training_questions(self) -> SplitConfig:
        if self.dev + self.test >= 1:
            raise ValueError("dev and test together must leave a share for train")
        return self


class TaskConfig(_Strict):
    """`per_question` bounds the records of one question, `share` is the part of records kept (by hash)."""

    per_question: Annotated[int, Field(ge=1)] = 4
    share: Share = 1.0


class AugmentConfig(_Strict):
    """Copies of training questions under other names, so that structure and not names is learnt; `reworded` is the
    part of those with several hops that are also asked in other words (data_gen.augment.rewording)."""

    copies: Annotated[int, Field(ge=1)] = 1
    names: FilePath  # one name a line, or JSON lines with a `title`; either may be gzipped
    reworded: Share = 0.0
    tasks: tuple[str, ...] = ("route", "decompose", "refine", "translate_bnf", "translate_art")


class SetConfig(_Strict):
    """One instruction set."""

    name: str
    seed: int = 13
    sources: tuple[SourceConfig, ...] = Field(min_length=1)
    split: SplitConfig = SplitConfig()
    tasks: dict[str, TaskConfig] = {}
    held_out: FilePath | None = None
    entity_coverage: Share = 0.5  # part of a question's names that its plan must contain
    augment: AugmentConfig | None = None

    @model_validator(mode="after")
    def _knows_its_tasks(self) -> SetConfig:
        named = set(self.tasks) | set(self.augment.tasks if self.augment else ())
        named |= {task for source in self.sources for task in source.tasks}
        if unknown := sorted(named - set(TASKS)):
            raise ValueError(f"unknown task {', '.join(unknown)}; there are {', '.join(TASKS)}")
        return self

    def task(self, name: str) -> TaskConfig:
        return self.tasks.get(name, TaskConfig())


Config = TypeVar("Config", bound=BaseModel)


def load_config(path: Path) -> SetConfig:
    """Reads the configuration of a set. Raises ConfigError that names field, value and reason."""
    return read_config(path, SetConfig)


def read_config(path: Path, kind: type[Config], examples: str = "data_gen/configs") -> Config:
    """Reads a configuration file. Raises ConfigError that names field, value and reason, and where there are
    `examples`."""
    try:
        value: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        hint = "give the path of a YAML file; a relative one starts at the current folder"
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        hint = f"mend it there; see {examples} for examples"
        raise ConfigError(f"not YAML: {error}", where=str(path), hint=hint) from error
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ConfigError("\n  ".join(_faults(error)), where=str(path), hint=f"see {examples} for examples") from error


def _faults(error: ValidationError) -> Iterator[str]:
    """Field, value and reason of each fault; a list is not called short for elements that have faults themselves."""
    found = error.errors()
    for fault in found:
        place = fault["loc"]
        within = any(other["loc"][: len(place)] == place != other["loc"] for other in found)
        if not (within and fault["type"] == "too_short"):
            reason = fault["msg"].removeprefix("Value error, ")
            yield f"{'.'.join(map(str, place)) or 'file'} = {SHORT.repr(fault['input']):.80}: {reason}"
