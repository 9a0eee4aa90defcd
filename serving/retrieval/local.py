"""`serving.protocols.Retriever` over an index in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from revelator.trace import Passage
from serving.batching import Batcher
from serving.retrieval.encoder import BATCH
from serving.retrieval.index import Index


class LocalRetriever:
    """Searches run in threads, so the loop stays free: by words, `threads` of them side by side; over vectors in one
    thread, those that wait together in one batch, because a model reads many queries in little more than the time of
    one, and takes one caller at a time."""

    def __init__(self, index: Index, *, threads: int = 2) -> None:
        self.index = index
        workers = threads if index.vectors is None else 1
        self._threads = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="search")
        self._batcher: Batcher[int, str, list[Passage]] = Batcher(self._search_many, BATCH)

    async def search(self, query: str, k: int) -> list[Passage]:
        if self.index.vectors is None:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self.index.search, query, k)
        [found] = await self._batcher.submit(k, [query])
        return found

    async def _search_many(self, k: int, queries: Sequence[str]) -> list[list[Passage]]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.index.search_many, queries, k)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
