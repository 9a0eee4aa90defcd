"""The executor's three services over Triton's gRPC on loopback: one channel, one call a step.

A call that is cancelled (a question's deadline, a client that left) cancels its RPC, and Triton drops what still waits
in a queue. Prompts of one task travel together in the batch dimension, so ten relevance judgements are one call.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_client
from tritonclient.grpc import InferInput, InferResult
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from revelator import spans
from revelator.channels import make_channel_arguments
from revelator.errors import Unavailable
from revelator.tasks import TASKS
from revelator.trace import Passage
from revelator.wire import read_error
from serving.models.releases import find_choice
from serving.protocols import Completion, GenerateRequest, Reading, SearchResult

_NOT_LOADED = "Request for unknown model"  # Triton's word for a model or a version that is not there, or not any more
SECRET_PARAMETER = "inner"  # of a request to an inner model
MAX_BATCH = 64  # max_batch_size of model_repo/revelator/config.pbtxt


class TritonModels:
    """A gRPC channel to the server, with the secret that its inner models want to hear. Each call notes in
    `find_choice()` which version answered."""

    def __init__(self, url: str, secret: str | None = None) -> None:
        self.url = url
        self._parameters = {SECRET_PARAMETER: secret} if secret else None
        self._client = grpc_client.InferenceServerClient(**make_channel_arguments(url))
        if spans.are_on():
            self._client.register_plugin(spans.TraceHeaders())

    async def __aenter__(self) -> TritonModels:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def infer(self, model: str, version: str = "", /, **inputs: np.ndarray) -> InferResult:
        """One call to a version of a model, or to the highest that is loaded: "", and any that has been unloaded.

        Raises the error tree; Unavailable names the model when it is not loaded or the server is gone.
        """
        try:
            result = await self._client.infer(
                model, _make_tensors(inputs), model_version=version, parameters=self._parameters
            )
        except InferenceServerException as error:
            if version and _NOT_LOADED in error.message():
                return await self.infer(model, **inputs)
            raise _name_model(model, error) from error
        find_choice().answered[model].add(result.get_response().model_version)
        return result

    async def ask_stream(self, model: str, **inputs: np.ndarray) -> InferResult:
        """The first answer of a decoupled model, over a stream of its own that ends with it; errors as of `infer`."""
        request = {"model_name": model, "inputs": _make_tensors(inputs)}

        async def requests() -> AsyncIterator[dict[str, Any]]:
            yield request

        answers = self._client.stream_infer(requests())
        try:
            arrived = [answer async for answer in answers]  # to the stream's end: cancelled then, Triton can crash
        except InferenceServerException as error:
            raise _name_model(model, error) from error
        finally:
            answers.cancel()
        if not arrived:
            raise Unavailable("the stream ended without an answer", where=f"model {model}", hint="ask again")
        result, refusal = arrived[0]
        if refusal is not None:
            raise _name_model(model, refusal) from refusal
        find_choice().answered[model].add(result.get_response().model_version)
        return result


def _make_tensors(inputs: Mapping[str, np.ndarray]) -> list[InferInput]:
    tensors = []
    for name, value in inputs.items():
        tensor = InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
        tensors.append(tensor.set_data_from_numpy(value))
    return tensors


def _name_model(model: str, error: InferenceServerException) -> Exception:
    code = (error.status() or "").removeprefix("StatusCode.")
    found = read_error(code, error.message())
    if type(found) is Unavailable and found.where is None:
        return Unavailable(found.message, where=f"model {model}", hint=found.hint, final=found.final)
    return found


def make_strings(values: Sequence[str], *shape: int) -> np.ndarray:
    return np.array([value.encode() for value in values], dtype=np.object_).reshape(shape or (len(values),))


class RemoteRevelator:
    """`serving.protocols.Revelator` over the Triton model `revelator`."""

    def __init__(self, models: TritonModels) -> None:
        self._models = models

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        found: list[Completion] = []
        for start in range(0, len(prompts), MAX_BATCH):
            found += await self._complete_batch(task, prompts[start : start + MAX_BATCH], temperature)
        return found

    async def _complete_batch(self, task: str, prompts: Sequence[str], temperature: float) -> list[Completion]:
        n = len(prompts)
        result = await self._models.infer(
            "revelator",
            find_choice().version,
            task=make_strings([task] * n, n, 1),
            prompt=make_strings(prompts, n, 1),
            temperature=np.full((n, 1), temperature, dtype=np.float32),
        )
        labels = TASKS[task].labels or ()
        names = "text", "probabilities", "usage", "degraded"
        texts, rows, usage, degraded = (result.as_numpy(name) for name in names)
        return [
            Completion(
                texts[i, 0].decode(),
                dict(zip(labels, map(float, rows[i]), strict=False)),
                int(usage[i, 0]),
                int(usage[i, 1]),
                bool(degraded[i, 0]),
            )
            for i in range(n)
        ]


class RemoteRetriever:
    """`serving.protocols.Retriever` over the Triton model `retriever`."""

    def __init__(self, models: TritonModels) -> None:
        self._models = models

    async def search(self, query: str, k: int) -> list[Passage]:
        asked = {"query": make_strings([query], 1, 1), "k": np.array([[k]], dtype=np.int32)}
        result = await self._models.infer("retriever", **asked)
        passages, respelled = (json.loads(result.as_numpy(name)[0, 0]) for name in ("passages", "respelled"))
        return SearchResult((Passage(**value) for value in passages), respelled)


class RemoteGenerator:
    """`serving.protocols.Generator` over the Triton model `generator`, the embedded reader."""

    def __init__(self, models: TritonModels) -> None:
        self._models = models

    async def answer(self, request: GenerateRequest) -> Reading:
        text = json.dumps(asdict(request), ensure_ascii=False)
        result = await self._models.infer("generator", request=make_strings([text], 1, 1))
        return Reading.from_json(result.as_numpy("reading")[0, 0])
