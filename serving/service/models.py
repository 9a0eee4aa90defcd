"""The models of a served home folder, in this process.

Calls that wait for a model are one batch. Each call notes in `find_choice()` which version answered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from revelator.trace import Passage
from serving.batching import Batcher, gather_all
from serving.executor.trees import NoModel
from serving.models.comparisons import CanaryRevelator
from serving.models.embedded import EmbeddedGenerator
from serving.models.engine import Engine
from serving.models.local import LocalRevelator
from serving.models.releases import find_choice, read_release
from serving.models.vllm_server import ReleasedAdapter
from serving.protocols import Completion, Decoding, GenerateRequest, Generator, Reading, Revelator
from serving.retrieval import Index, LocalRetriever
from serving.service.settings import choose_reader
from serving.triton.config import ServingConfig
from serving.triton.repository import ADAPTER, CONTENTS_FILE, REVELATOR, version_folder

BATCH = 64  # prompts that the revelator completes together
PLAIN_VERSION = "1"  # of models that have one version, this package's


async def open_generator(config: ServingConfig, stack: AsyncExitStack) -> Generator:
    """Who reads passages: the embedded reader, or an endpoint, whose answers it weighs."""
    return choose_reader(config, await asyncio.to_thread(ServedReader), stack)


async def open_release(home: Path, config: ServingConfig, stack: AsyncExitStack) -> Revelator:
    """The release of a home folder, in this process or at its vLLM server; nobody where it neither plans nor judges.
    Raises ArtifactError for a version that is damaged."""
    if not config.needs_release:
        return NoModel()
    release = read_release(home)
    released: Revelator
    if release and release.vllm:
        released = ReleasedAdapter(release.vllm, config.timeout)
        stack.push_async_callback(released.close)
    else:
        device = f"cuda:{config.gpus[0]}" if config.gpus else None
        released = LocalRelease(home, config.decoding, device)
        stack.callback(released.close)
        if release:
            await released.open(str(release.version))
    compared = CanaryRevelator(released, home)
    stack.push_async_callback(compared.close)
    return compared


class LocalRelease:
    """`serving.protocols.Revelator` of the versions below a home folder: the one that `find_choice()` names completes.
    A version is opened when it is asked first."""

    def __init__(self, home: Path, decoding: Decoding = "beams", device: str | None = None) -> None:
        self._home = home
        self._decoding = decoding
        self._device = device
        self._versions: dict[str, asyncio.Task[BatchedRevelator]] = {}

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        choice = find_choice()
        revelator = await self.open(choice.version)
        completions = await revelator.complete(task, prompts, temperature=temperature)
        choice.answered[REVELATOR].add(choice.version)
        return completions

    async def open(self, version: str) -> BatchedRevelator:
        if version not in self._versions:
            self._versions[version] = asyncio.create_task(asyncio.to_thread(self._load, version))
        try:
            return await asyncio.shield(self._versions[version])
        except Exception:
            self._versions.pop(version, None)  # the next call tries again
            raise

    def _load(self, version: str) -> BatchedRevelator:
        folder = version_folder(self._home, int(version))
        contents = json.loads((folder / CONTENTS_FILE).read_text(encoding="utf-8"))
        adapter = folder / ADAPTER if contents["files"] else None
        return BatchedRevelator(Engine(contents["base"]["folder"], adapter, device=self._device), self._decoding)

    def close(self) -> None:
        for opening in self._versions.values():
            if opening.done() and not opening.cancelled() and not opening.exception():
                opening.result().close()


class BatchedRevelator:
    """`serving.protocols.Revelator` over an engine in one thread: prompts of one task that wait are one batch."""

    def __init__(self, engine: Engine, decoding: Decoding) -> None:
        self._revelator = LocalRevelator(engine, decoding)
        self._batcher: Batcher[tuple[str, float], str, Completion] = Batcher(self._complete, BATCH)

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        return await gather_all(self._batcher.submit((task, temperature), prompt) for prompt in prompts)

    async def _complete(self, key: tuple[str, float], prompts: Sequence[str]) -> list[Completion]:
        task, temperature = key
        return await self._revelator.complete(task, prompts, temperature=temperature)

    def close(self) -> None:
        self._revelator.close()


class ServedIndex:
    """`serving.protocols.Retriever` over the index that the settings name."""

    def __init__(self, config: ServingConfig) -> None:
        assert config.index is not None
        device = f"cuda:{config.gpus[0]}" if config.gpus else None
        index = Index.open(config.index, device)
        index.search("ready", 1)  # an embedding model loads now, not with the first question
        self._retriever = LocalRetriever(index, config.logic.resolve())

    async def search(self, query: str, k: int) -> list[Passage]:
        passages = await self._retriever.search(query, k)
        find_choice().answered["retriever"].add(PLAIN_VERSION)
        return passages

    def close(self) -> None:
        self._retriever.close()


class ServedReader:
    """`serving.protocols.Generator` of the embedded reader."""

    def __init__(self) -> None:
        self._generator = EmbeddedGenerator()

    async def answer(self, request: GenerateRequest) -> Reading:
        reading = await self._generator.answer(request)
        find_choice().answered["generator"].add(PLAIN_VERSION)
        return reading
