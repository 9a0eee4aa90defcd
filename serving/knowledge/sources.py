"""Several sources at once: who is asked, for how long, and what became of each.

A source that fails or is late is left out and named in the reports, which the trace keeps. Which of two sources is
faster never changes an answer. A call that met a source that is down is retried while its time lasts, and a source that
stays down is left alone for a while (`serving.circuit_breaker`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Literal

from revelator import spans
from revelator.errors import DataError, DeadlineExceeded, RevelatorError
from revelator.trace import Passage
from serving.circuit_breaker import CircuitBreaker, RetryPolicy
from serving.knowledge.attempts import Attempts
from serving.knowledge.operators import Query, Source, SourceResult
from serving.knowledge.selection import Selection, Selector, SourceSettings
from serving.knowledge.text_source import TextSource
from serving.protocols import PUBLIC, Dated, Generator, PassagePlace, Retriever, Revelator, Scope, Shelf
from serving.retrieval import LocalRetriever
from serving.retrieval.columns import require_fields
from serving.retrieval.filters import Kind

log = logging.getLogger(__name__)

SourceStatus = Literal["answered", "passages", "nothing", "failed", "late", "not needed"]


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What became of one source: `ms` until it ended or was left out; `note` from the graph; `version` of an index;
    `failure`, why it failed or was late."""

    source: str
    outcome: SourceStatus
    ms: float = 0.0
    passages: int = 0
    searches: int = 0
    retries: int = 0
    note: str = ""
    version: int = 0
    failure: Exception | None = None

    @property
    def error(self) -> str:
        """Why it failed, in one line, without the hint; "" where it did not."""
        if self.failure is None or isinstance(self.failure, RevelatorError):
            return str(self.failure or "").partition("\n")[0]
        return f"{type(self.failure).__name__}: {self.failure}"

    def to_json(self) -> dict[str, Any]:
        names = ("source", "outcome", "ms", "passages", "searches", "retries", "note", "version", "error")
        return {name: value for name in names if (value := getattr(self, name)) not in ("", 0)}


Asked = tuple[SourceResult, SourceReport]
NO_FIELDS = "it holds no documents whose fields a filter could compare"


@dataclass(frozen=True, slots=True)
class CombinedResult:
    """What all selected sources gave: `typed`, what the first graph in order knows that has answers or decided that
    there are none (`ids` by source, `by` its name, `triples` the ids of its passages), and `passages` for each text of
    the query: the best of each source, then the second best, and so on. Where several sources are configured, a
    passage's id begins with the name of its source. `scored`: how many passages of how many, by source, where a logical
    query scored not all."""

    selection: Selection
    typed: SourceResult | None = None
    ids: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    by: str = ""
    triples: frozenset[str] = frozenset()
    passages: tuple[tuple[Passage, ...], ...] = ()
    reports: tuple[SourceReport, ...] = ()
    respelled: Mapping[str, list[str]] = field(default_factory=dict)
    scored: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def answers(self) -> tuple[str, ...]:
        return self.typed.answers if self.typed else ()

    def describe_reports(self) -> str:
        """What became of each source, in one line."""
        return "; ".join(f"{report.source}: {report.error or report.note or report.outcome}" for report in self.reports)


class Sources:
    """The configured sources. Their list is fixed when it is made: nothing that is read later adds to it. What they
    give is of a scope, without `within` what everybody may read: searches, opened passages, descriptions, states.

    `writer`, `about` and `revelator` are for a model that selects (`serving.knowledge.selection`).
    """

    def __init__(
        self,
        sources: Sequence[Source],
        settings: SourceSettings | None = None,
        policy: RetryPolicy | None = None,
        *,
        writer: Generator | None = None,
        about: Mapping[str, str] | None = None,
        revelator: Revelator | None = None,
    ) -> None:
        names = [source.name for source in sources]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"one source or more, each with a name of its own, not {names}")
        self.all = tuple(sources)
        self.scope = PUBLIC
        self._passed_over: frozenset[str] = frozenset()
        self.settings = settings or SourceSettings()
        self._selector = Selector(sources, self.settings, writer, about, revelator)
        self._breakers = {source.name: CircuitBreaker(source.name, policy) for source in sources}

    @classmethod
    def of_index(cls, retriever: Retriever) -> Sources:
        """The one source of a deployment that names none; a search lasts as long as the question may."""
        return cls([TextSource(retriever, "retriever", timeout=None)])

    @property
    def is_index(self) -> bool:
        """Whether there is one source, which holds texts, so that there is nothing to select or to combine."""
        return [source.kind for source in self.all] == ["text"] and self._selector.way == "all"

    def within(self, scope: Scope) -> Sources:
        """The same sources, of which a scope is asked."""
        scoped = copy.copy(self)
        scoped.scope = scope
        return scoped

    def pass_over(self, names: Collection[str]) -> Sources | None:
        """The same sources, of which all but the named ones are asked, whoever selects; None where that is none. With a
        filter those that hold no documents are passed over, too."""
        others = copy.copy(self)
        unasked = [source.name for source in self.all if source.kind != "text"] if self.scope.where else []
        others._passed_over = self._passed_over.union(names, unasked)
        return None if self.is_index or others._passed_over.issuperset(s.name for s in self.all) else others

    async def require_fields(self) -> None:
        """Raises InvalidRequest for a filter that names a field, or a kind of value, that no source has among what the
        caller may read."""
        if self.scope.where:
            known: dict[str, set[Kind]] = defaultdict(set)
            for described in await asyncio.to_thread(self.describe):
                for name, kinds in described.get("fields", {}).items():
                    known[name].update(kinds)
            require_fields(self.scope, known)

    async def gather(self, query: Query, k: int) -> CombinedResult:
        """Asks the selected sources, all at once, for at most `k` passages a text each, or as the settings say. With a
        filter those that hold no documents are not asked."""
        k, query = self.settings.passages or k, replace(query, scope=self.scope)
        selection = await self._selector.choose(query, self._passed_over)
        without = [source for source in selection.sources if source.kind != "text"] if self.scope.where else []
        if without:
            texts = [source for source in selection.sources if source.kind == "text"]
            selection = replace(selection, sources=tuple(texts or [s for s in self.all if s.kind == "text"]))
        asked = [_ask(source, self._breakers[source.name], query, k) for source in selection.sources]
        # one is asked without the tasks that several need, which cost more than all else here
        ended = [await asked[0]] if len(asked) == 1 else await self._await_all(selection.sources, asked, query)
        if len(self.all) > 1:
            ended = [(_name_source(report.source, found), report) for found, report in ended]
        ended += [(SourceResult(), SourceReport(one.name, "not needed", note=NO_FIELDS)) for one in without]
        return _combine(ended, query, selection, self.settings.evidence == "first")

    def describe(self) -> list[dict[str, Any]]:
        """Each source by name and kind; of an index also what it holds that the caller may read."""

        def describe(source: Source) -> dict[str, Any]:
            shelf = source.retriever if isinstance(source, TextSource) else None
            about: dict[str, Any] = shelf.describe(self.scope) if isinstance(shelf, Shelf) else {}
            return {"name": source.name, "source": source.kind} | about

        return [*map(describe, self.all)]

    def can_open(self, id: str) -> bool:
        """Whether a passage of this id is from an index that `open_passage` asks."""
        return self._find_shelf(id) is not None

    async def open_passage(self, id: str) -> PassagePlace:
        """A passage as it was found, by its id, with its neighbours. Raises DataError for one that there is not, and in
        the same words for one that the caller may not read."""
        shelf, name = self._find_shelf(id) or (None, "")
        place = await shelf.open_passage(id.removeprefix(name), self.scope) if shelf else None
        if place is None:
            raise DataError(
                f"there is no passage {id[:200]!r}", hint="was its document removed, or the index built anew?"
            )
        before, after = (one and replace(one, id=name + one.id) for one in (place.before, place.after))
        return PassagePlace(replace(place.passage, id=name + place.passage.id), before, after)

    def _find_shelf(self, id: str) -> tuple[Shelf, str] | None:
        """The index that a passage is from, and what its id begins with."""
        for source in self.all:
            name = f"{source.name}:" if len(self.all) > 1 else ""
            if id.startswith(name) and isinstance(source, TextSource) and isinstance(source.retriever, Shelf):
                return source.retriever, name
        return None

    def list_indexes(self) -> dict[str, LocalRetriever]:
        """The indexes that are searched, by the names of their sources."""
        texts = [source for source in self.all if isinstance(source, TextSource)]
        return {text.name: text.retriever for text in texts if isinstance(text.retriever, LocalRetriever)}

    def find_state(self) -> str | None:
        """What all sources hold now, by their names, and the scope that is asked; None where one of them cannot say
        it."""
        states = [source.find_state() if isinstance(source, Dated) else None for source in self.all]
        if None in states:
            return None
        held = " ".join(f"{source.name}={state}" for source, state in zip(self.all, states, strict=True))
        read = f"{self.scope.where!r} {sorted(self.scope.groups or ())} {self.scope.groups is None}"
        return f"{held} {sorted(self._passed_over)} {read}"

    def keep(self, names: Sequence[str]) -> Sources:
        """The same with the named sources alone."""
        kept, how = [source for source in self.all if source.name in names], self._selector
        sources = Sources(kept, self.settings, writer=how.writer, about=how.about, revelator=how.revelator)
        return sources.within(self.scope)

    async def close(self) -> None:
        for source in self.all:
            await source.close()

    async def _await_all(
        self, chosen: Sequence[Source], asked: Sequence[Coroutine[Any, Any, Asked]], query: Query
    ) -> list[Asked]:
        """All of them, or with `evidence: first` the graphs, where one of these decides the query."""
        tasks = [asyncio.create_task(one) for one in asked]
        graphs = [task for source, task in zip(chosen, tasks, strict=True) if source.kind == "graph"]
        enough = graphs if self.settings.evidence == "first" else []
        try:
            if enough:
                await asyncio.wait(enough)
            if not any(_is_decisive(task.result()[0]) for task in enough):
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [_read_outcome(source, task, query) for source, task in zip(chosen, tasks, strict=True)]


async def _ask(source: Source, breaker: CircuitBreaker, query: Query, k: int) -> Asked:
    started = time.perf_counter()
    found, attempts = SourceResult(), Attempts(source, query, k)
    failure: Exception | None = None
    outcome: SourceStatus = "nothing"

    try:
        with spans.open_retrieval(source.name):
            found = await breaker.call(attempts.find)
    except Exception as error:  # a source is left out whatever befalls it
        outcome, failure = "late" if isinstance(error, DeadlineExceeded) else "failed", error
        if not isinstance(error, RevelatorError):
            log.exception("source %s", source.name)
    passages = sum(map(len, found.passages))
    if _is_decisive(found) or passages:
        outcome = "answered" if _is_decisive(found) else "passages"
    ms = round((time.perf_counter() - started) * 1000, 2)
    searches, retries = attempts.made * _count_searches(source, query), max(0, attempts.made - 1)
    counts = (passages, searches, retries)
    return found, SourceReport(source.name, outcome, ms, *counts, found.note, found.version, failure)


def _is_decisive(found: SourceResult) -> bool:
    return bool(found.answers) or found.decided


def _read_outcome(source: Source, task: asyncio.Task[Asked], query: Query) -> Asked:
    if task.cancelled():
        return SourceResult(), SourceReport(source.name, "not needed", searches=_count_searches(source, query))
    return task.result()


def _count_searches(source: Source, query: Query) -> int:
    return int(query.call is not None) if source.kind == "graph" else len(query.texts)


def _name_source(name: str, found: SourceResult) -> SourceResult:
    """Two sources may hold passages of one id."""
    named = ((replace(passage, id=f"{name}:{passage.id}") for passage in group) for group in found.passages)
    return replace(found, passages=tuple(map(tuple, named)))


def _combine(ended: Sequence[Asked], query: Query, selection: Selection, first: bool) -> CombinedResult:
    """`first`: where a graph decided the query, what other sources had found by then is left out."""
    decisive = [(report.source, found) for found, report in ended if _is_decisive(found)][:1]
    giving = [found for _, found in decisive] if first and decisive else [found for found, _ in ended]
    lists = [found.passages for found in giving if found.passages]
    passages = [
        take_turns([groups[place] for groups in lists if place < len(groups)]) for place in range(len(query.texts))
    ]
    return CombinedResult(
        selection,
        typed=decisive[0][1] if decisive else None,
        ids={name: found.ids for name, found in decisive if found.ids},
        by=decisive[0][0] if decisive else "",
        triples=frozenset(p.id for _, found in decisive for group in found.passages for p in group),
        passages=tuple(passages),
        reports=tuple(report for _, report in ended),
        respelled={word: near for found, _ in ended for word, near in found.respelled.items()},
        scored={r.source: found.scored for found, r in ended if found.scored and found.scored[0] < found.scored[1]},
    )


def take_turns(groups: Sequence[Sequence[Passage]]) -> tuple[Passage, ...]:
    """Returns the first passage of each group, then the second of each, and so on."""
    return tuple(passage for turn in zip_longest(*groups) for passage in turn if passage is not None)
