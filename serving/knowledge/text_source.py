"""A retriever as a source."""

from __future__ import annotations

import asyncio

from serving.knowledge.operators import Query, SourceKind, SourceResult
from serving.protocols import Dated, Retriever, SearchResult
from serving.retrieval import LocalRetriever


class TextSource:
    """A retriever; a logical query takes the place of the texts."""

    kind: SourceKind = "text"

    def __init__(self, retriever: Retriever, name: str = "text", *, timeout: float | None = 10.0) -> None:
        self.retriever = retriever
        self.name = name
        self.timeout = timeout

    async def find(self, query: Query, k: int) -> SourceResult:
        texts = (query.logical,) if query.logical else query.texts
        searches = [self.retriever.search(text, k, query.scope) for text in texts]
        found = [await searches[0]] if len(searches) == 1 else await asyncio.gather(*searches)
        respelled = {w: near for one in found if isinstance(one, SearchResult) for w, near in one.respelled.items()}
        scored = next((one.scored for one in found if isinstance(one, SearchResult) and one.scored), None)
        version = self.retriever.index.version if isinstance(self.retriever, LocalRetriever) else 0
        return SourceResult(tuple(map(tuple, found)), respelled=respelled, scored=scored, version=version)

    def find_state(self) -> str | None:
        return self.retriever.find_state() if isinstance(self.retriever, Dated) else None

    async def close(self) -> None:
        """The retriever belongs to whoever made it."""
