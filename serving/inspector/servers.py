"""Whom the inspector asks: anything that answers a question with the events of its trace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

from revelator.client import Options
from revelator.errors import RevelatorError
from revelator.trace import Event


class Stream(Protocol):
    """`revelator.client.AsyncClient.stream` and `serving.executor.Executor.stream`."""

    def __call__(self, question: str, **options: Unpack[Options]) -> AsyncGenerator[Event, None]: ...


@dataclass(frozen=True)
class Server:
    """One that questions can be put to. `look` says which version of each model it serves, or raises Unavailable."""

    name: str
    stream: Stream
    look: Callable[[], Awaitable[dict[str, str]]]

    async def describe(self) -> dict[str, Any]:
        """What the page shows of it."""
        try:
            return {"name": self.name, "models": await self.look(), "error": None}
        except RevelatorError as error:
            return {"name": self.name, "models": {}, "error": str(error)}
