"""Which questions models have seen in training, by the fingerprints of what they were trained on.

A model has seen a question if it was trained on its text, or on that of a part or a step of its gold solution. It has
seen an article if it learned to read from one with the title of a gold passage. A question in other words is not
recognised. Endpoints, running servers, encoders and models without fingerprints are unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from data_gen.questions import AnnotatedQuestion
from revelator.artifact import EMBEDDED_READER, find_base, read_adapter_fingerprints, split_revision
from revelator.errors import ConfigError
from revelator.fingerprints import Fingerprints
from revelator.plans import list_placeholders
from revelator.reading import READER

T = TypeVar("T")
Seen = Mapping[str, str]  # of one question: what a model has seen (`question` or `article`), by the model's name
READER_NAME = "embedded reader"


@dataclass(frozen=True)
class TrainedModel:
    """A model that a run uses, and what it was trained on."""

    name: str
    fingerprints: Fingerprints

    @classmethod
    def read_revelator(cls, adapter: Path | None, base_name: str) -> TrainedModel:
        """Of an adapter over its base, or of the base alone. Raises ArtifactError for a file that has changed, and for
        a base that is not there."""
        name = adapter.resolve().name if adapter else Path(split_revision(base_name)[0]).name
        return cls(name, read_adapter_fingerprints(adapter, find_base(base_name)))

    @classmethod
    def read_reader(cls, folder: Path | None = None) -> TrainedModel:
        """Of the embedded reader, or of that in `folder`. Raises ArtifactError for a file that has changed."""
        name = folder.resolve().name if folder else READER_NAME
        return cls(name, Fingerprints.read(folder or EMBEDDED_READER, READER, name))

    @classmethod
    def make_unknown(cls, name: str) -> TrainedModel:
        return cls(name, Fingerprints(unknown=(name,)))

    def find(self, texts: Iterable[str], titles: Iterable[str] = ()) -> str:
        """What it has seen: "question", "article", or "" for neither."""
        if any(map(self.fingerprints.has_question, texts)):
            return "question"
        return "article" if any(map(self.fingerprints.has_title, titles)) else ""


def merge_models(models: Iterable[TrainedModel]) -> list[TrainedModel]:
    """The models of several runs, each once."""
    merged: dict[str, TrainedModel] = {}
    for model in models:
        known = merged.get(model.name, model)
        merged[model.name] = replace(model, fingerprints=model.fingerprints | known.fingerprints)
    return [*merged.values()]


def find_seen(models: Iterable[TrainedModel], texts: Sequence[str], titles: Sequence[str] = ()) -> dict[str, str]:
    """What each model has seen of a question that is asked by any of `texts` and answered from passages of `titles`."""
    return {model.name: what for model in models if (what := model.find(texts, titles))}


def find_seen_question(models: Iterable[TrainedModel], gold: AnnotatedQuestion) -> dict[str, str]:
    """What each model has seen of a question, its parts and steps, and the articles of its gold passages. A leaf of the
    gold plan that waits for an earlier answer is left out: "Where was {director} born?" is part of many questions."""
    texts = [gold.question, *(text for text in gold.list_taught() if not list_placeholders(text))]
    titles = [*(step.title for step in gold.steps if step.title), *(p.title for p in gold.passages if p.relevant)]
    return find_seen(models, [*dict.fromkeys(texts)], [*dict.fromkeys(titles)])


@dataclass(frozen=True)
class SeenCount:
    """Of `n` questions `count` were seen in training by at least one model, `by_model` by each. `unknown` names models
    of which it is not known. Without a record, as in runs of earlier releases, n is 0."""

    count: int = 0
    n: int = 0
    by_model: dict[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @classmethod
    def of(cls, seen: Iterable[Seen | None], unknown: Iterable[str] = ()) -> SeenCount:
        known = [each for each in seen if each is not None]
        by_model = Counter(name for each in known for name in each)
        return cls(sum(map(bool, known)), len(known), dict(by_model), tuple(sorted({*unknown})))

    def __add__(self, other: SeenCount) -> SeenCount:
        """Of other questions."""
        by_model = Counter(self.by_model) + Counter(other.by_model)
        unknown = tuple(sorted({*self.unknown, *other.unknown}))
        return SeenCount(self.count + other.count, self.n + other.n, dict(by_model), unknown)

    def __str__(self) -> str:
        """`seen: 3 of 100; unknown: mini`"""
        return self.format_count() + (f"; unknown: {', '.join(self.unknown)}" if self.unknown and self.n else "")

    def format_count(self) -> str:
        return f"seen: {self.count:,} of {self.n:,}" if self.n else "seen: unknown"

    def list_models(self) -> str:
        """`embedded reader 2, mini 1`"""
        return ", ".join(f"{name} {count:,}" for name, count in sorted(self.by_model.items()))

    def to_json(self) -> dict[str, Any]:
        return {
            "seen": {"count": self.count, "n": self.n, "by_model": self.by_model},
            "unknown": [*self.unknown] if self.n else ["no record"],
        }


def warn_of_seen(systems: Mapping[str, SeenCount]) -> str:
    """One sentence that names each system that has seen questions, and how many; "" if none has."""
    found = [f"{name} {own.count:,} of {own.n:,} ({own.list_models()})" for name, own in systems.items() if own.count]
    return f"Warning: questions were seen in training, which flatters: {'; '.join(found)}." if found else ""


def list_unknown(models: Iterable[TrainedModel]) -> tuple[str, ...]:
    return tuple(sorted({name for model in models for name in model.fingerprints.unknown}))


def leave_out_seen(
    questions: Sequence[T], seen: Sequence[Seen], models: Iterable[TrainedModel]
) -> tuple[list[T], SeenCount]:
    """The questions that no model has seen, and the count of the others. Raises ConfigError if none is left."""
    count = SeenCount.of(seen, list_unknown(models))
    left = [question for question, own in zip(questions, seen, strict=True) if not own]
    if questions and not left:
        raise ConfigError(
            f"no question is left to ask: models have seen all {count.n:,} in training ({count.list_models()})",
            where="unseen",
            hint="give other questions, or leave out --unseen, and `unseen` of the benchmark",
        )
    return left, count
