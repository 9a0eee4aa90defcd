"""What a server serves, as anyone may ask it: by each model's metadata, for which no token is wanted."""

from __future__ import annotations

import asyncio

import tritonclient.grpc.aio as grpc_client
from tritonclient.utils import InferenceServerException

from revelator.endpoints import channel_arguments
from revelator.errors import Unavailable
from revelator.wire import read_error

LOOK_SECONDS = 5.0
MODELS = ("executor", "executor_stream", "generator", "retriever", "revelator", "revelator_vllm")


async def served_models(url: str) -> dict[str, str]:
    """The version of each model that is ready on the Triton server at `url`. Raises Unavailable, with what to do."""
    client = grpc_client.InferenceServerClient(**channel_arguments(url))
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
