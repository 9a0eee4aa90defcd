"""Searches of an index by words or by logical queries, and the retriever that makes them in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from revelator.errors import ExpressionError
from revelator.plans import logic
from revelator.trace import Passage
from serving.batching import Batcher
from serving.protocols import PassagePlace
from serving.retrieval.embedders import BATCH
from serving.retrieval.index import Index
from serving.retrieval.logical_search import LogicalSettings, search_logical

THREADS = 2


def search_all(index: Index, queries: Sequence[str], k: int, how: LogicalSettings) -> list[list[Passage]]:
    """At most `k` passages for each query, best first. Queries in words are searched together, logical ones singly.
    Raises Unavailable for an index that was written over."""
    index.require_whole()
    logical = {query for query in queries if is_logical(query)}
    words = [query for query in queries if query not in logical]
    found = iter(index.search_many(words, k) if words else ())
    return [search_logical(index, query, k, how) if query in logical else next(found) for query in queries]


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
    """

    def __init__(self, index: Index, how: LogicalSettings | None = None) -> None:
        self.index = index
        self.how = how or LogicalSettings()
        workers = THREADS if index.vectors is None else 1
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="search")
        self._batcher: Batcher[int, str, list[Passage]] = Batcher(self._search_all, BATCH)

    async def search(self, query: str, k: int) -> list[Passage]:
        if self.index.vectors is None:
            return (await self._search_all(k, [query]))[0]
        return await self._batcher.submit(k, query)

    def find_state(self) -> str | None:
        return self.index.find_state()

    async def open_passage(self, id: str) -> PassagePlace | None:
        return await asyncio.to_thread(self.index.open_passage, id)

    def describe(self) -> dict[str, Any]:
        return self.index.describe()

    async def _search_all(self, k: int, queries: Sequence[str]) -> list[list[Passage]]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, search_all, self.index, queries, k, self.how)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
