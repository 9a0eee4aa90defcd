"""Which sources a leaf is put to: all of them, those that a language model names, or those of which the revelator says
yes (its task `select`, one prompt a source in one pass).

What a document says is no part of the choice, nor an answer that repeats a document: whoever chooses sees the question
as the plan has it, without the answers of earlier leaves.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from revelator.config import Share, Strict
from revelator.errors import ConfigError, RevelatorError
from revelator.tasks import TASKS, SelectInput
from revelator.trace import Usage
from serving.knowledge.labels import fold_label
from serving.knowledge.operators import Query, Source
from serving.protocols import GenerateRequest, Generator, Revelator

SECONDS = 10.0  # that a model has to choose; then all sources are asked
Select = Literal["all", "model", "revelator"]
LIKELY = 0.5  # P(yes) from which on a source is asked
PROMPT = """Which of these sources may hold the answer to the question? A graph holds exact facts and lists, text holds
what its documents tell, the web holds news and what is known everywhere.

Sources:
{sources}

Question: {question}

Reply with the names of the sources, separated by commas, and nothing else."""


class SourceSettings(Strict):
    """Which sources are asked, and what their evidence counts."""

    evidence: Literal["all", "first"] = "all"  # `first`: a graph that has the answer ends the wait for the others
    select: Select = "all"  # who is asked
    per_leaf: Annotated[int, Field(ge=1)] | None = None  # sources that are asked for one leaf, at most
    passages: Annotated[int, Field(ge=1, le=50)] | None = None  # of each source (default: `documents`, or 3 in a tree)
    logic: bool = False  # a leaf for which the model writes a query with AND or OR finds its texts by that
    overlap: Share = 0.5  # t of AtomR: a filter drops entities whose passages share less with it
    # Two rules over words, each with the F1 that it adds (docs/results.md).
    own_words: bool = True  # a relation that the model names and no graph has is sought in the question's words: +.06
    conditions: bool = True  # code reads a filter's condition, and decides it by a graph's facts: +1, in our own words


@dataclass(frozen=True, slots=True)
class Selection:
    """The sources to ask. `detail` says who chose them, and by what; `call` and `usage`, what a model took for it."""

    sources: tuple[Source, ...]
    detail: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


class Selector:
    """Chooses as the settings say; `writer` is the language model, `about` what it or the `revelator` reads of each
    source by name.

    Raises ConfigError where one of them is to choose and there is none.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        settings: SourceSettings,
        writer: Generator | None = None,
        about: Mapping[str, str] | None = None,
        revelator: Revelator | None = None,
    ) -> None:
        self.way = settings.select
        if self.way == "model" and writer is None:
            hint = "give an endpoint with --generator, or take select: all"
            raise ConfigError(
                "a language model is to select the sources, and none is served", where="select", hint=hint
            )
        if self.way == "revelator" and revelator is None:
            hint = "take select: all for a plan that is run without a model"
            raise ConfigError("the revelator is to select the sources, and none is here", where="select", hint=hint)
        self._sources = tuple(sources)
        self._most = settings.per_leaf
        self.writer = writer
        self.about = about or {}
        self.revelator = revelator

    async def choose(self, query: Query, passed_over: Collection[str] = ()) -> Selection:
        """The sources to ask, in their order, at least one; no model chooses among those that it passed over before."""
        if self.way == "all" or passed_over:
            left = [source for source in self._sources if source.name not in passed_over]
            return Selection(tuple(left[: self._most]))
        return await self._choose_by_model(query)

    def _keep_best(self, points: Mapping[str, float]) -> tuple[Source, ...]:
        """The likely sources, all of them if none is; the likeliest, where only some may be asked."""
        chosen = [source for source in self._sources if points.get(source.name, 0.0) >= LIKELY] or self._sources
        best = sorted(chosen, key=lambda source: -points.get(source.name, 0.0))[: self._most]
        return tuple(source for source in self._sources if source in best)

    async def _choose_by_model(self, query: Query) -> Selection:
        """The sources that the writer's reply names, or of which the revelator says rather yes than no; all of them
        where that is none, or where the model answers too late or not at all."""
        names_them, count = self.way == "model", len(self._sources)
        call: dict[str, Any] = {"task": "write", "count": 1} if names_them else {"task": "select", "count": count}
        usage = Usage(generator_calls=1) if names_them else Usage(model_calls=count)
        detail: dict[str, Any] = {"by": self.way}
        points: Mapping[str, float] = {}
        began = time.perf_counter()
        try:
            async with asyncio.timeout(SECONDS):
                points, tokens = await (self._ask_writer(query) if names_them else self._ask_revelator(query))
            call, usage = call | tokens, usage + Usage(**tokens)
            if not names_them:
                detail["points"] = {name: round(share, 4) for name, share in points.items()}
            elif not points:
                detail["error"] = "the reply names no source: all were asked"
        except (TimeoutError, RevelatorError) as error:
            detail["error"] = f"{str(error) or f'no reply within {SECONDS:g} s'}: all were asked"
        call["ms"] = round((time.perf_counter() - began) * 1000, 3)
        return Selection(self._keep_best(points), detail, call, usage)

    async def _ask_writer(self, query: Query) -> tuple[dict[str, float], dict[str, int]]:
        """1 for each source that the reply names, and the tokens that it took."""
        assert self.writer is not None
        listed = "\n".join(f"- {s.name} ({s.kind}) {self.about.get(s.name, '')}".rstrip() for s in self._sources)
        prompt = PROMPT.format(sources=listed, question=json.dumps(query.template, ensure_ascii=False))
        reading = await self.writer.answer(GenerateRequest("write", prompt))
        said = f" {fold_label(reading.sentence)} "
        named = {source.name: 1.0 for source in self._sources if f" {fold_label(source.name)} " in said}
        return named, {"tokens_in": reading.tokens_in, "tokens_out": reading.tokens_out}

    async def _ask_revelator(self, query: Query) -> tuple[dict[str, float], dict[str, int]]:
        """How likely each source has the answer, and the tokens that it took."""
        assert self.revelator is not None
        task = TASKS["select"]
        inputs = [SelectInput(query.template, s.name, s.kind, self.about.get(s.name, "")) for s in self._sources]
        completions = await self.revelator.complete(task.name, [task.render(value) for value in inputs])
        yes = {s.name: c.probabilities["yes"] for s, c in zip(self._sources, completions, strict=True)}
        return yes, {"tokens_in": sum(c.tokens_in for c in completions)}
