"""Searches of an index by words or by logical queries, and the retriever that makes them in threads.

Who changes an index puts another folder in its place in one step (`serving.retrieval.folder_build`): a generation. A
service looks at the manifest's entry in the file system when a question begins (some 15 µs), opens a new generation
beside the one that it searches, and lets each question end with the one that it began with. There is no list of
readers: Linux keeps the files that a process of this machine has open or mapped until it lets them go, also when they
were removed. An index of an engine changes in place: there a generation is what its manifest says, and is looked at now
and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from revelator.errors import ExpressionError, RevelatorError
from revelator.plans import logic
from revelator.trace import Passage
from serving.batching import Batcher
from serving.protocols import PUBLIC, PassagePlace, Scope
from serving.retrieval.embedders import BATCH
from serving.retrieval.engine import SearchIndex
from serving.retrieval.logical_search import LogicalSettings, search_logical

THREADS = 2
PATIENCE = 1.0  # seconds from when a generation is noticed for which questions wait for it; then the one before answers
AGAIN = 5.0  # seconds after which a generation that was refused is looked at again: it may have been half copied
IDLE = 10  # times the seconds that the refusal took are added: digests of a large index are not computed all the time
Asked = tuple[SearchIndex, int, Scope]  # what queries that are searched together have in common
log = logging.getLogger(__name__)


def search_all(
    index: SearchIndex, queries: Sequence[str], k: int, how: LogicalSettings, scope: Scope = PUBLIC
) -> list[list[Passage]]:
    """At most `k` passages of the scope for each query, best first. Queries in words are searched together, logical
    ones singly. Raises what a `SearchIndex` does."""
    logical = {query for query in queries if is_logical(query)}
    words = [query for query in queries if query not in logical]
    found = iter(index.search_many(words, k, scope) if words else ())
    return [search_logical(index, query, k, how, scope) if query in logical else next(found) for query in queries]


def is_logical(text: str) -> bool:
    """Whether a text is a logical query (`revelator.plans.logic`) with an operator; a quoted text is words."""
    try:
        return not isinstance(logic.parse(text), logic.Term)
    except ExpressionError:
        return False


class LocalRetriever:
    """Searches an index in threads, so that the event loop stays free. `how` says how logical queries are run.

    By words, `THREADS` searches run side by side. With vectors there is one thread, and the queries that wait are one
    batch: an embedding model takes one caller at a time, and reads many queries in little more than the time of one.

    `refused` says why what stands in the folder is not searched, "" where it is. `on_change` is called, in a thread,
    when another generation is searched and when one is refused.
    """

    def __init__(self, index: SearchIndex, how: LogicalSettings | None = None) -> None:
        self.how = how or LogicalSettings()
        self.refused = ""
        self.on_change: Callable[[], object] = lambda: None
        self._newest = index
        self._tried, self._try_again = index.stamp, 0.0
        self._opening: asyncio.Task[None] | None = None
        self._waited_for = 0.0  # until then
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="search")
        self._model_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="search by meaning")
        self._batcher: Batcher[Asked, str, list[Passage]] = Batcher(self._search_all, BATCH)

    @property
    def index(self) -> SearchIndex:
        """The generation that is searched: in a block of `hold_generations` always the same, else the newest."""
        return _HELD.get().get(self, self._newest)

    async def search(self, query: str, k: int, scope: Scope = PUBLIC) -> list[Passage]:
        index = self.index
        if not index.settings.dense:
            return (await self._search_all((index, k, scope), [query]))[0]
        return await self._batcher.submit((index, k, scope), query)

    def find_state(self) -> str | None:
        return self.index.find_state()

    async def open_passage(self, id: str, scope: Scope = PUBLIC) -> PassagePlace | None:
        return await asyncio.to_thread(self.index.open_passage, id, scope)

    def describe(self, scope: Scope = PUBLIC) -> dict[str, Any]:
        return self.index.describe(scope)

    async def follow(self) -> None:
        """Opens what stands in the folder by now, if that is another generation. Returns when it is searched, or when
        `PATIENCE` has passed since it was noticed; then it is opened beside the questions."""
        now = time.monotonic()
        if self._opening is None and self._is_due(now):
            self._opening, self._waited_for = asyncio.create_task(self._open_newest()), now + PATIENCE
        if self._opening and now < self._waited_for:
            await asyncio.wait([self._opening], timeout=self._waited_for - now)

    def _is_due(self, now: float) -> bool:
        """Whether the folder may hold a generation that can be searched and is not."""
        if self._newest.read_stamp() != self._tried:
            return True
        return now > self._try_again if self.refused else self._newest.find_state() is None

    async def _open_newest(self) -> None:
        before, said, began = self._newest, self.refused, time.monotonic()
        self._tried = before.read_stamp()
        try:
            self._newest, self.refused = await asyncio.to_thread(before.reopen), ""
            self._tried = self._newest.stamp
            if self._newest is not before:
                log.info("version %d of %s is searched, after %d", self._newest.version, before.where, before.version)
        except Exception as error:  # whatever is wrong with this one, the one before is searched
            self.refused, now = str(error).partition("\n")[0] or type(error).__name__, time.monotonic()
            self._try_again = now + AGAIN + IDLE * (now - began)
            if self.refused != said:
                is_known = isinstance(error, RevelatorError)
                message = "version %d of %s is searched as before; what stands there now is refused: %s"
                log.warning(message, before.version, before.where, self.refused, exc_info=not is_known)
        finally:
            self._opening = None
        if self._newest is not before or self.refused != said:
            await asyncio.to_thread(self.on_change)

    async def _search_all(self, key: Asked, queries: Sequence[str]) -> list[list[Passage]]:
        index, k, scope = key
        threads = self._threads if not index.settings.dense else self._model_thread
        return await asyncio.get_running_loop().run_in_executor(threads, search_all, index, queries, k, self.how, scope)

    def close(self) -> None:
        if self._opening:
            self._opening.cancel()
        self._threads.shutdown(cancel_futures=True)
        self._model_thread.shutdown(cancel_futures=True)


_HELD: ContextVar[Mapping[LocalRetriever, SearchIndex]] = ContextVar("generations", default=MappingProxyType({}))


@asynccontextmanager
async def hold_generations(retrievers: Iterable[LocalRetriever]) -> AsyncIterator[None]:
    """Takes up what stands in the folders by now. In this block, and in the tasks that it starts, each retriever then
    searches one generation."""
    held = {}
    for retriever in retrievers:
        await retriever.follow()
        held[retriever] = retriever.index
    token = _HELD.set(held)
    try:
        yield
    finally:
        _HELD.reset(token)
        held.clear()  # a task that outlives the block keeps no generation
