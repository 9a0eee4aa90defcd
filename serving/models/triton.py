"""The models that a Triton server hosts, for the executor: one gRPC channel, one call a step.

A call that is cancelled (a question's deadline, a client that left) cancels its RPC, and Triton drops what still waits
in a queue. Prompts of one task travel together in the batch dimension, so ten relevance judgements are one call.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import tritonclient.grpc.aio as grpc_client
from tritonclient.grpc import InferInput, InferResult
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from revelator import spans
from revelator.channels import Headers, Tls, make_channel_arguments
from revelator.errors import ArtifactError, RevelatorError, Unavailable
from revelator.tasks import TASKS
from revelator.wire import read_error
from serving.models.releases import REVELATOR, Traffic, find_choice, name_model
from serving.protocols import Completion, GenerateRequest, Reading, name_probabilities

GENERATOR = "generator"
NOT_FOUND = "failed to poll from model repository"
NOT_LOADED = "Request for unknown model"  # Triton's words for a version that is not there, or not any more
MAX_BATCH = 64  # max_batch_size of model_repo/revelator/config.pbtxt
LOAD_SECONDS = 900.0  # a large base from a slow disk
READY_SECONDS = 30.0
ANSWER_SECONDS = 5.0  # of a question about the server itself
LOOK_SECONDS = 0.1
_TRACEBACK = re.compile(r"(?<!\n)\n+At:\n.*", re.DOTALL)
_PREFIX = re.compile(
    r"^load failed for model '[^']*': (?:version \d+ is at UNAVAILABLE state: )?(?:Internal: )?(?:ArtifactError: )?"
)


class TritonModels:
    """A gRPC channel to a Triton server, or to a service, which may ask for a `token`. Each call notes in
    `find_choice()` which version answered."""

    def __init__(self, url: str, tls: Tls | None = None, token: str | None = None) -> None:
        self.url = url
        self._client = grpc_client.InferenceServerClient(**make_channel_arguments(url, tls))
        self.outage = ""  # why no model answers, while that is known
        self._calls: dict[str, set[asyncio.Timeout]] = defaultdict(set)  # under way, by model
        self._client.register_plugin(Headers(token))

    async def close(self) -> None:
        await self._client.close()

    async def infer(self, model: str, version: str = "", /, **inputs: np.ndarray) -> InferResult:
        """One call to a version of a model, or to the highest that is loaded: "". Raises the error tree; Unavailable
        names the model when it is not loaded, the server is gone, or `give_up` was called."""
        if self.outage:
            raise Unavailable(self.outage, where=f"model {model}", hint="ask again in some seconds")
        try:
            async with asyncio.timeout(None) as scope:
                self._calls[model].add(scope)
                try:
                    result = await self._client.infer(model, _make_tensors(inputs), model_version=version)
                finally:
                    self._calls[model].discard(scope)
        except TimeoutError:
            raise Unavailable("its process died", where=f"model {model}", hint="ask again: it is loaded anew") from None
        except InferenceServerException as error:
            raise _name_model(model, error) from error
        find_choice().answered[model].add(result.get_response().model_version)
        return result

    def give_up(self, model: str) -> None:
        """Ends the calls to a model that are under way: a server may never answer what was inside a dead process."""
        for scope in self._calls[model]:
            scope.reschedule(0.0)

    async def is_live(self) -> bool:
        try:
            return bool(await self._client.is_server_live(client_timeout=ANSWER_SECONDS))
        except InferenceServerException:
            return False

    async def is_ready(self, model: str, version: str = "") -> bool:
        """False also where no server answers."""
        try:
            return bool(await self._client.is_model_ready(model, version, client_timeout=ANSWER_SECONDS))
        except InferenceServerException:
            return False

    async def load(self, model: str, config: str, versions: Collection[str]) -> None:
        """Loads a model by `config` (JSON), which names `versions`; returns when they are ready. Those that were ready
        stay so until then, also when the load fails, which raises ArtifactError with the reason."""
        try:
            await self._client.load_model(model, config=config, client_timeout=LOAD_SECONDS)
        except InferenceServerException as error:
            if error.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"):
                raise _name_model(model, error) from error
            why = read_reason(error.message()) or await self._read_recorded_reason(model, versions)
            hint = "does that server run over model_repo/ of this home folder?" if NOT_FOUND in why else None
            raise ArtifactError(f"does not load: {why}", where=f"model {model}", hint=hint) from error
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not all([await self.is_ready(model, version) for version in versions]):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise Unavailable(f"not ready {READY_SECONDS:g} s after it was loaded", where=f"model {model}") from None

    async def _read_recorded_reason(self, model: str, versions: Collection[str]) -> str:
        """The reason in Triton's index of models: its answer to a load with a configuration names none."""
        index = (await self._client.get_model_repository_index()).models
        found = (entry.reason for entry in index if entry.name == model and entry.version in versions)
        return next(filter(None, map(read_reason, found)), "the server's log holds the reason")


def read_reason(message: str) -> str:
    """Cuts the one line that a person needs from Triton's report on a model that did not load."""
    return _PREFIX.sub("", _TRACEBACK.sub("", message)).strip(" ;\n")


def _make_tensors(inputs: Mapping[str, np.ndarray]) -> list[InferInput]:
    tensors = []
    for name, value in inputs.items():
        tensor = InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
        tensors.append(tensor.set_data_from_numpy(value))
    return tensors


def _name_model(model: str, error: InferenceServerException) -> RevelatorError:
    code = (error.status() or "").removeprefix("StatusCode.")
    found = read_error(code, error.message())
    if type(found) is Unavailable and found.where is None:
        return Unavailable(found.message, where=f"model {model}", hint=found.hint, final=found.final)
    return found


def make_strings(values: Sequence[str], *shape: int) -> np.ndarray:
    return np.array([value.encode() for value in values], dtype=np.object_).reshape(shape or (len(values),))


class RemoteRevelator:
    """`serving.protocols.Revelator` over the model `revelator`: the version that `find_choice()` names completes."""

    def __init__(self, models: TritonModels) -> None:
        self._models = models

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        found: list[Completion] = []
        for start in range(0, len(prompts), MAX_BATCH):
            found += await self._complete_batch(task, prompts[start : start + MAX_BATCH], temperature)
        return found

    async def _complete_batch(self, task: str, prompts: Sequence[str], temperature: float) -> list[Completion]:
        n = len(prompts)
        with spans.open_completion("text_completion", REVELATOR) as span:
            result = await self._models.infer(
                REVELATOR,
                find_choice().version,
                task=make_strings([task] * n, n, 1),
                prompt=make_strings(prompts, n, 1),
                temperature=np.full((n, 1), temperature, dtype=np.float32),
            )
            names = "text", "probabilities", "usage", "degraded"
            texts, rows, usage, degraded = (result.as_numpy(name) for name in names)
            model = name_model(REVELATOR, result.get_response().model_version)
            spans.describe_completion(span, model, *map(int, usage.sum(axis=0)))
        labels = name_probabilities(TASKS[task])
        return [
            Completion(
                texts[i, 0].decode(),
                {label: share for label, share in zip(labels, map(float, rows[i]), strict=False) if share},
                int(usage[i, 0]),
                int(usage[i, 1]),
                bool(degraded[i, 0]),
            )
            for i in range(n)
        ]


class TritonRelease(RemoteRevelator):
    """The same for a home folder's release, whose versions the server loads.

    A version is loaded when a deploy asks for it, or when it is asked first and the server does not have it. `load`
    unloads the others: a deploy calls it once no question is under way with them. Another service over the same server
    may have loaded a version, or unloaded one that this service needs no more. A load goes on when who asked for it is
    gone. `configure` makes the model's configuration (JSON) of versions.
    """

    def __init__(self, models: TritonModels, traffic: Traffic, configure: Callable[[Collection[str]], str]) -> None:
        super().__init__(models)
        self._traffic = traffic
        self._configure = configure
        self.loaded: frozenset[str] = frozenset()
        self._asked: frozenset[str] = frozenset()  # by the last `load`
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        version = find_choice().version
        if version:
            await self.open(version)
        try:
            return await super().complete(task, prompts, temperature=temperature)
        except Unavailable as error:
            if not version or NOT_LOADED not in error.message or await self._models.is_ready(REVELATOR, version):
                raise
        self.loaded -= {version}
        await self.open(version)
        return await super().complete(task, prompts, temperature=temperature)

    async def load(self, versions: Collection[str]) -> None:
        """Loads `versions` beside the release, and unloads the others. Raises ArtifactError for one that does not load;
        then nothing has changed."""
        await self._change(self._load(frozenset(versions)))

    async def open(self, version: str) -> None:
        """Loads a version beside those that are loaded, unless the server has it."""
        if version not in self.loaded:
            await self._change(self._open(version))

    async def _change(self, work: Coroutine[Any, Any, None]) -> None:
        change = asyncio.create_task(work)
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        await asyncio.shield(change)

    async def _load(self, versions: frozenset[str]) -> None:
        async with self._changing:
            release = self._traffic.read_release()
            wanted = versions | frozenset(map(str, release.versions if release else ()))
            await self._models.load(REVELATOR, self._configure(wanted), wanted)
            self.loaded, self._asked = wanted, versions

    async def _open(self, version: str) -> None:
        async with self._changing:
            if version not in self.loaded and not await self._models.is_ready(REVELATOR, version):
                wanted = self.loaded | {version}
                await self._models.load(REVELATOR, self._configure(wanted), wanted)
            self.loaded |= {version}

    async def reload(self) -> None:
        """Loads what was loaded, on a server that was started anew. A canary that does not load is left out."""
        with suppress(ArtifactError):
            await self.load(self.loaded)
            return
        self.loaded = frozenset()
        release = self._traffic.read_release()
        if release:
            await self.open(str(release.version))

    def is_open(self, version: str) -> bool:
        return version in self.loaded

    def close_unused(self) -> None:
        """Forgets what nobody needs: a deploy unloads it, by `load`."""
        try:
            release = self._traffic.read_release()
        except ArtifactError:
            return  # the next question hears of it
        needed = self._asked | frozenset(map(str, release.versions if release else ()))
        self.loaded = frozenset(v for v in self.loaded if v in needed or self._traffic.is_used(v))


class RemoteGenerator:
    """`serving.protocols.Generator` over the model `generator`, the embedded reader."""

    def __init__(self, models: TritonModels) -> None:
        self._models = models

    async def answer(self, request: GenerateRequest) -> Reading:
        wanted = asdict(request)
        del wanted["listener"]  # of texts, which the embedded reader does not write
        text = json.dumps(wanted, ensure_ascii=False)
        with spans.open_completion("text_completion", GENERATOR) as span:
            result = await self._models.infer(GENERATOR, request=make_strings([text], 1, 1))
            reading = Reading.from_json(result.as_numpy("reading")[0, 0])
            model = name_model(GENERATOR, result.get_response().model_version)
            spans.describe_completion(span, model, reading.tokens_in, reading.tokens_out)
        return reading
