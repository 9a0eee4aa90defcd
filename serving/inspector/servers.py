"""Whom the inspector asks: anything that answers a question with the events of its trace."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

import tritonclient.grpc.aio as grpc_client
from tritonclient.utils import InferenceServerException

from revelator._wire import read_error
from revelator.channel import channel, with_control
from revelator.client import Options
from revelator.errors import RevelatorError, Unavailable
from revelator.trace_events import Event

LOOK_SECONDS = 5.0


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


async def served_models(url: str) -> dict[str, str]:
    """The version of each model that is ready on the Triton server at `url`. Raises Unavailable, with what to do."""
    client = with_control(grpc_client.InferenceServerClient(**channel(url)))
    try:
        index = await client.get_model_repository_index(client_timeout=LOOK_SECONDS)
    except InferenceServerException as error:
        code = (error.status() or "").removeprefix("StatusCode.")
        hint = "start one with `revelator serve`, which prints its gRPC address, and give that as --url host:port"
        message = f"no Triton server answers: {read_error(code, error.message()).message}"
        raise Unavailable(message, where=url, hint=hint) from error
    finally:
        await client.close()
    ready = [model for model in index.models if model.state == "READY"]
    return {model.name: model.version for model in sorted(ready, key=lambda model: int(model.version))}
