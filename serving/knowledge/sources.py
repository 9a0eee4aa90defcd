"""Several sources at once: who is asked, for how long, and what became of each.

A source that fails or is late is left out and named in the reports, which the trace keeps. As soon as every graph that
was asked has ended and one has the answer, or has decided that there is none, the searches by words are not waited
for: a typed answer needs no passages. Which of two sources is faster never changes an answer. A call that met a source
that is down is retried while its time lasts, and a source that stays down is left alone for a while (`serving.guard`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

from revelator.errors import DeadlineExceeded, RevelatorError
from revelator.trace import Passage
from serving.guard import Guard, Patience
from serving.knowledge.labels import fold_label
from serving.knowledge.operators import Found, Query, Source, SourceKind
from serving.protocols import Retriever

AT_ONCE = 8  # searches by words that one query puts to a source side by side

log = logging.getLogger(__name__)

Outcome = Literal["answered", "passages", "nothing", "failed", "late", "not needed"]


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one source: `ms` until it ended or was left out; `note` from the graph; `error`, why it failed."""

    source: str
    outcome: Outcome
    ms: float = 0.0
    passages: int = 0
    searches: int = 0
    retries: int = 0
    note: str = ""
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", 0)}


@dataclass(frozen=True, slots=True)
class Gathered:
    """What all sources gave: `typed`, what the first graph in order knows that has answers or decided that there are
    none (`ids` by source), `passages` for each text of the query, those of one source after those of another."""

    typed: Found | None = None
    ids: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    by: str = ""
    passages: tuple[tuple[Passage, ...], ...] = ()
    reports: tuple[Report, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def answers(self) -> tuple[str, ...]:
        return self.typed.answers if self.typed else ()


class Sources:
    """The configured sources. Their list is fixed when it is made: nothing that is read later adds to it.

    `score` gives each kind of source points for a query; sources with 1 or more are asked, all of them if none has.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        score: Callable[[Query], Mapping[str, float]] | None = None,
        patience: Patience | None = None,
    ) -> None:
        names = [source.name for source in sources]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"one source or more, each with a name of its own, not {names}")
        self.all = tuple(sources)
        self._score = score or score_by_rules
        self._guards = {source.name: Guard(source.name, patience) for source in sources}

    async def gather(self, query: Query, k: int) -> Gathered:
        """Asks the selected sources, all at once."""
        points = self._score(query)
        scores = {source.name: points.get(source.kind, 0.0) for source in self.all}
        chosen = [source for source in self.all if scores[source.name] >= 1.0] or list(self.all)
        tasks = {
            source.name: asyncio.create_task(_ask(source, self._guards[source.name], query, k)) for source in chosen
        }
        try:
            await self._until_enough(chosen, tasks)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        ended = [(source, _read_outcome(source, tasks[source.name], query)) for source in chosen]
        return _combine(ended, query, scores)

    async def close(self) -> None:
        for source in self.all:
            await source.close()

    @staticmethod
    async def _until_enough(chosen: Sequence[Source], tasks: Mapping[str, asyncio.Task[tuple[Found, Report]]]) -> None:
        graphs = [tasks[source.name] for source in chosen if source.kind == "graph"]
        if graphs:
            await asyncio.wait(graphs)
            if any(_settles(task.result()[0]) for task in graphs):
                return
        await asyncio.wait(tasks.values())


async def _ask(source: Source, guard: Guard, query: Query, k: int) -> tuple[Found, Report]:
    started = time.perf_counter()
    ends = asyncio.get_running_loop().time() + source.timeout
    found, error, attempts = Found(), "", 0
    outcome: Outcome = "nothing"

    async def attempt() -> Found:
        nonlocal attempts
        attempts += 1
        try:
            async with asyncio.timeout_at(ends):
                return await _find(source, query, k)
        except TimeoutError as late:
            raise DeadlineExceeded(f"left out after {source.timeout:g} s") from late

    try:
        found = await guard.call(attempt)
    except DeadlineExceeded as failure:
        outcome, error = "late", str(failure)
    except RevelatorError as failure:
        outcome, error = "failed", str(failure)
    except Exception as failure:  # a source is left out whatever befalls it
        log.exception("source %s", source.name)
        outcome, error = "failed", f"{type(failure).__name__}: {failure}"
    count = sum(map(len, found.passages))
    if _settles(found) or count:
        outcome = "answered" if _settles(found) else "passages"
    ms = (time.perf_counter() - started) * 1000
    return found, Report(
        source.name,
        outcome,
        round(ms, 2),
        count,
        attempts * _count_searches(source, query),
        max(0, attempts - 1),
        found.note,
        error,
    )


async def _find(source: Source, query: Query, k: int) -> Found:
    """Makes searches by words a few at a time; asks a graph once for all of them."""
    if source.kind == "graph" or len(query.texts) <= AT_ONCE:
        return await source.find(query, k)
    passages: list[tuple[Passage, ...]] = []
    for first in range(0, len(query.texts), AT_ONCE):
        found = await source.find(replace(query, texts=query.texts[first : first + AT_ONCE]), k)
        passages += found.passages
    return Found(tuple(passages))


def _settles(found: Found) -> bool:
    return bool(found.answers) or found.decided


def _read_outcome(source: Source, task: asyncio.Task[tuple[Found, Report]], query: Query) -> tuple[Found, Report]:
    if task.cancelled():
        return Found(), Report(source.name, "not needed", searches=_count_searches(source, query))
    return task.result()


def _count_searches(source: Source, query: Query) -> int:
    return int(query.call is not None) if source.kind == "graph" else len(query.texts)


def _combine(
    ended: Sequence[tuple[Source, tuple[Found, Report]]], query: Query, scores: Mapping[str, float]
) -> Gathered:
    passages: list[list[Passage]] = [[] for _ in query.texts]
    for _, (found, _) in ended:
        for place, some in zip(passages, found.passages, strict=False):
            place += some
    settled = [(source.name, found) for source, (found, _) in ended if _settles(found)][:1]
    return Gathered(
        typed=settled[0][1] if settled else None,
        ids={name: found.ids for name, found in settled if found.ids},
        by=settled[0][0] if settled else "",
        passages=tuple(map(tuple, passages)),
        reports=tuple(report for _, (_, report) in ended),
        scores=scores,
    )


def score_by_rules(query: Query) -> Mapping[str, float]:
    """Points by kind of source, for the sub-question as the plan has it and for its operator. What a document says is
    no part of it, nor an answer that repeats a document."""
    rules, asked = _load_rules(), f" {fold_label(query.template)} "
    points = Counter(rules["operators"][type(query.call).__name__ if query.call else "direct"])
    for cue in rules["cues"]:
        if any(f" {fold_label(word)} " in asked for word in cue["words"]):
            points.update(cue["points"])
    return points


@cache
def _load_rules() -> dict[str, Any]:
    return yaml.safe_load(files("serving.knowledge").joinpath("selection.yaml").read_text(encoding="utf-8"))


class TextSource:
    kind: SourceKind = "text"

    def __init__(self, retriever: Retriever, name: str = "text", *, timeout: float = 10.0) -> None:
        self.retriever = retriever
        self.name = name
        self.timeout = timeout

    async def find(self, query: Query, k: int) -> Found:
        found = await asyncio.gather(*(self.retriever.search(text, k) for text in query.texts))
        return Found(passages=tuple(map(tuple, found)))

    async def close(self) -> None:
        """The retriever belongs to whoever made it."""
