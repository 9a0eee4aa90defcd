"""A question on its way through the inspector: put to a server, its events handed on, stored as a run."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote as percent_encode

from revelator import spans
from revelator.client import AsyncClient
from revelator.errors import InvalidRequest, RevelatorError, ServingError
from revelator.plans.language import LANGUAGES, LanguageName
from revelator.tasks import Step
from revelator.trace import Event, Passage, Replay, Trace
from revelator.wire import write_error
from serving.http.protection import Body
from serving.inspector.runs import Runs, StoredRun
from serving.knowledge.sources import Sources

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Server:
    """One that questions can be put to. `stream` takes a question, the groups of who asks, and the options of
    `revelator.client.AsyncClient.stream`; `list_models` returns the version of each model that it serves, or raises
    Unavailable. `sources`: what it searches, if this process does. `takes_documents`: whether `/api/documents` adds to
    them."""

    name: str
    stream: Callable[..., AsyncGenerator[Event, None]]
    list_models: Callable[[], Awaitable[dict[str, str]]]
    sources: Sources | None = None
    takes_documents: bool = False


def ask_elsewhere(client: AsyncClient) -> Callable[..., AsyncGenerator[Event, None]]:
    """`client.stream`; the groups of who asks are those of this process's token, which the service knows."""
    return lambda question, groups, **options: client.stream(question, **options)


class QuestionBody(Body):
    """The body of `POST /api/runs`. `reuse` is the id of an earlier run, `server` one of `GET /api/servers`. The
    strategy of its `language` runs a plan, where it has one."""

    question: str
    plan: str | None = None
    language: LanguageName | None = None
    strategy: str = "auto"
    server: str | None = None
    reuse: str | None = None
    deadline_ms: float | None = None
    history: list[Step] | None = None
    style: str | None = None
    where: str | None = None


class Inquiry:
    """One question: `stream_events` gives what happens, and `run` is there when they have ended. Raises InvalidRequest
    for a server that there is not; without a name the first is asked. `groups` are those of who asks, `base_url` is
    the address of the page."""

    def __init__(
        self,
        servers: Mapping[str, Server],
        runs: Runs,
        wanted: QuestionBody,
        groups: frozenset[str] | None,
        base_url: str = "/",
    ) -> None:
        name = wanted.server or next(iter(servers))
        if name not in servers:
            raise InvalidRequest(f"there is no server {name!r}", hint=f"one of {', '.join(servers)}")
        self.wanted = wanted
        self.server = servers[name]
        self.id = runs.new_id()
        self.run: StoredRun | None = None
        self.saved = False
        self._groups = groups
        self._base_url = base_url
        self._runs = runs
        self._replay = Replay()
        self._trace_id = ""

    async def stream_events(self) -> AsyncGenerator[Event, None]:
        """Raises what the server raises; a run that had begun is stored, one that its client abandoned is not."""
        wanted = self.wanted
        earlier = await asyncio.to_thread(self._runs.read, wanted.reuse, self._groups) if wanted.reuse else None
        asked = self.server.stream(
            wanted.question,
            self._groups,
            plan=wanted.plan,
            strategy=LANGUAGES[wanted.language].strategy if wanted.plan and wanted.language else wanted.strategy,
            deadline_ms=wanted.deadline_ms,
            reuse=earlier.trace if earlier else None,
            history=wanted.history,
            **({"style": wanted.style} if wanted.style else {}),
            **({"where": wanted.where} if wanted.where else {}),
        )
        begun = False
        span: Any = None
        try:
            async with aclosing(asked) as events:
                with spans.open_span("ask", "client", ends=False) as span:  # the request carries it
                    self._trace_id = spans.find_trace_id()
                    event = await anext(events, None)
                while event:
                    begun = True
                    self._replay.add(event)
                    if event.kind == "finished":
                        await self._save(None)
                    yield event
                    event = await anext(events, None)
        except RevelatorError as error:
            if begun and not self.run:
                await self._save(error)
            raise
        finally:
            if span:
                if begun:
                    spans.describe_root(self.read_trace(), span)
                span.end()

    def find_link(self, passage: Passage) -> str:
        """Where the page shows a passage; "" for one that is not from an index of the server."""
        sources = self.server.sources
        is_open = sources is not None and sources.can_open(passage.id)
        return f"{self._base_url}?passage={percent_encode(passage.id, safe='')}" if is_open else ""

    def read_trace(self) -> Trace:
        """The trace as far as its events have come."""
        return self._replay.build()

    async def run_whole(self) -> None:
        """Asks, and returns when `run` is there. Raises what `stream_events` does."""
        async with aclosing(self.stream_events()) as events:
            async for _ in events:
                pass

    async def _save(self, error: RevelatorError | None) -> None:
        described = json.loads(write_error(error)) if error else None
        trace = self.read_trace()
        groups = None if self._groups is None else sorted(self._groups)
        self.run = StoredRun(
            self.id, self.server.name, trace, self.wanted.reuse, described, self._trace_id, groups=groups
        )
        try:
            await asyncio.to_thread(self._runs.save, self.run)
            self.saved = True
        except OSError as failure:
            log.warning("run %s is not stored: %s", self.id, failure)


async def await_first_event(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """The same events, the first of them already there: what refuses a question at once is raised here."""
    first = await anext(events, None)
    if first is None:
        raise ServingError("the server ended the question without a word", hint="its log may say why")

    async def again() -> AsyncGenerator[Event, None]:
        async with aclosing(events) as rest:
            yield first
            async for event in rest:
                yield event

    return again()
