"""A text corpus as a knowledge source: the retriever that the executor has, asked once a retrieval query."""

from __future__ import annotations

import asyncio

from serving.knowledge.source import Found, Query, SourceKind
from serving.protocols import Retriever


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
