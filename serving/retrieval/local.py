"""`serving.protocols.Retriever` over an index in this process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from revelator.trace import Passage
from serving.retrieval.index import Index


class LocalRetriever:
    """Searches run in threads, so the loop stays free."""

    def __init__(self, index: Index, *, threads: int = 2) -> None:
        self.index = index
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="search")

    async def search(self, query: str, k: int) -> list[Passage]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.index.search, query, k)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
