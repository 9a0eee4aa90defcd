"""Attempts to ask one source: all within its time, a few searches at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from revelator.errors import DeadlineExceeded
from revelator.trace import Passage
from serving.knowledge.operators import Query, Source, SourceResult

AT_ONCE = 8  # searches by words that one query puts to a source side by side


class Attempts:
    """Puts one query to one source, for at most `k` passages a text, as often as `find` is called; `made` counts. The
    source's time begins here."""

    def __init__(self, source: Source, query: Query, k: int) -> None:
        self.made = 0
        self._source, self._query, self._k = source, query, k
        self._ends = None if source.timeout is None else asyncio.get_running_loop().time() + source.timeout

    async def find(self) -> SourceResult:
        """Asks a graph once for all searches by words, any other source for a few at a time. Raises DeadlineExceeded
        once the source's time is over."""
        self.made += 1
        source, query, k = self._source, self._query, self._k
        try:
            async with asyncio.timeout_at(self._ends):
                if source.kind == "graph" or len(query.texts) <= AT_ONCE:
                    return await source.find(query, k)
                passages: list[tuple[Passage, ...]] = []
                for first in range(0, len(query.texts), AT_ONCE):
                    found = await source.find(replace(query, texts=query.texts[first : first + AT_ONCE]), k)
                    passages += found.passages
                return SourceResult(tuple(passages))
        except TimeoutError as late:
            hint = "raise its `timeout` in the file of sources"
            raise DeadlineExceeded(f"left out after {source.timeout:g} s", hint=hint) from late
