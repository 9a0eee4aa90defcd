"""Whom the inspector asks: anything that answers a question with the events of its trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, Unpack

import tritonclient.grpc.aio as grpc_client
from tritonclient.utils import InferenceServerException

from revelator._wire import read_error
from revelator.channel import channel
from revelator.client import Options
from revelator.errors import RevelatorError, Unavailable
from revelator.trace_events import Event

LOOK_SECONDS = 5.0
MODELS = ("executor", "executor_stream", "generator", "retriever", "revelator", "revelator_vllm")


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
    client = grpc_client.InferenceServerClient(**channel(url))
    try:
        await client.is_server_live(client_timeout=LOOK_SECONDS)
        asked = [client.get_model_metadata(model, client_timeout=LOOK_SECONDS) for model in MODELS]
        found = await asyncio.gather(*asked, return_exceptions=True)  # an error of a model: it is not loaded
    except InferenceServerException as error:
        code = (error.status() or "").removeprefix("StatusCode.")
        hint = "start one with `revelator serve`, which prints its gRPC address, and give that as --url host:port"
        message = f"no Triton server answers: {read_error(code, error.message()).message}"
        raise Unavailable(message, where=url, hint=hint) from error
    finally:
        await client.close()
    loaded = [model for model in found if not isinstance(model, BaseException) and model.versions]
    return {model.name: max(model.versions, key=int) for model in loaded}
