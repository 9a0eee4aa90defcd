"""The models of a served home folder: in this process, or who stands for them on a Triton or vLLM server.

Calls that wait for a model in this process are one batch, and one model works at a time: each takes all cores. Each
call notes in `find_choice()` which version answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from revelator import spans
from revelator.errors import ArtifactError
from revelator.trace import Passage
from serving import latency
from serving.batching import Batcher, gather_all
from serving.home.config import ServingConfig
from serving.home.versions import ADAPTER, require_contents, version_folder
from serving.models.comparisons import CanaryRevelator
from serving.models.embedded import EmbeddedGenerator
from serving.models.releases import REVELATOR, Traffic, find_choice, name_model
from serving.models.triton import GENERATOR, TritonRelease
from serving.models.vllm_server import ReleasedAdapter
from serving.protocols import (
    PUBLIC,
    Completion,
    Decoding,
    GenerateRequest,
    Generator,
    NoModel,
    Reading,
    Revelator,
    Scope,
)
from serving.retrieval import LocalRetriever
from serving.retrieval.places import open_index
from serving.triton.host import TritonHost, open_host

BATCH = 64  # prompts that the revelator completes together
READINGS = 8  # that the reader reads together
PLAIN_VERSION = "1"  # of models that have one version, this package's
log = logging.getLogger(__name__)


IN_PROCESS = "none"


@dataclass(frozen=True)
class Models:
    """What a service asks; `generator` is the embedded reader. `versions` loads versions of the release, where the
    service or its Triton server runs them; `host` is that server."""

    released: Revelator
    generator: Generator
    versions: LocalRelease | TritonRelease | None
    host: TritonHost | None


async def open_models(home: Path, config: ServingConfig, traffic: Traffic, place: str, stack: AsyncExitStack) -> Models:
    """The release and the reader of a home folder at `place`: `none`, in this process, or what `open_host` takes.

    Nobody completes prompts where the release neither plans nor judges. Raises ArtifactError for a version that is
    damaged, and where none is released; a canary that is damaged fails alone."""
    release = traffic.read_release() if config.needs_release else None
    if config.needs_release and release is None:
        hint = f"deploy one: revelator model deploy --home {home}"
        raise ArtifactError("no version is released, and one is to plan or judge", where=str(home), hint=hint)
    host = await stack.enter_async_context(open_host(place, home, config, traffic)) if place != IN_PROCESS else None
    threads = ThreadPoolExecutor(1, thread_name_prefix="model")
    stack.callback(threads.shutdown, cancel_futures=True)
    generator = host.generator if host else await asyncio.to_thread(ServedReader, threads)
    released: Revelator
    versions: LocalRelease | TritonRelease | None = None
    if release is None:
        return Models(NoModel(), generator, None, host)
    if release.vllm:
        released = ReleasedAdapter(release.vllm, config.timeout)
        stack.push_async_callback(released.close)
    elif host:
        assert host.release
        released = versions = host.release
    else:
        device = f"cuda:{config.gpus[0]}" if config.gpus else None
        released = versions = LocalRelease(home, traffic, threads, config.decoding, device)
    if versions:
        await versions.open(str(release.version))
        if release.canary:
            try:
                await versions.open(str(release.canary.version))
            except Exception as error:
                log.warning("the canary does not answer: %s", error)
    compared = CanaryRevelator(released, home)
    stack.push_async_callback(compared.close)
    return Models(compared, generator, versions, host)


class LocalRelease:
    """`serving.protocols.Revelator` of the versions below a home folder: the one that `find_choice()` names completes.

    A version is opened when a deploy loads it, or when it is asked first. It is closed when neither the release nor the
    last `load` names it, and no question is under way with it.
    """

    def __init__(
        self,
        home: Path,
        traffic: Traffic,
        threads: ThreadPoolExecutor,
        decoding: Decoding = "beams",
        device: str | None = None,
    ) -> None:
        self._home = home
        self._traffic = traffic
        self._threads = threads
        self._decoding = decoding
        self._device = device
        self._versions: dict[str, asyncio.Task[BatchedRevelator]] = {}
        self._calls: Counter[str] = Counter()  # by version; a comparison with a canary may outlive its question
        self._loaded: frozenset[str] = frozenset()
        self._closing: set[asyncio.Task[None]] = set()

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        choice = find_choice()
        with self._call(choice.version), spans.open_completion("text_completion", REVELATOR) as span:
            revelator = await self.open(choice.version)
            completions = await revelator.complete(task, prompts, temperature=temperature)
            tokens = sum(c.tokens_in for c in completions), sum(c.tokens_out for c in completions)
            spans.describe_completion(span, name_model(REVELATOR, choice.version), *tokens)
        choice.answered[REVELATOR].add(choice.version)
        return completions

    @contextmanager
    def _call(self, version: str) -> Iterator[None]:
        self._calls[version] += 1
        try:
            yield
        finally:
            self._calls[version] -= 1
            self.close_unused()

    async def load(self, versions: Collection[str]) -> None:
        """Opens `versions` beside the release, in place of those of the last call. Raises ArtifactError for one that
        does not open; then nothing has changed. Returns when those that nobody needs are closed."""
        before, self._loaded = self._loaded, self._loaded | frozenset(versions)
        try:
            for version in versions:
                await self.open(version)
        except BaseException:
            self._loaded = before
            self.close_unused()
            raise
        self._loaded = frozenset(versions)
        self.close_unused()
        await asyncio.gather(*self._closing)

    def is_open(self, version: str) -> bool:
        opening = self._versions.get(version)
        return opening is not None and _is_whole(opening)

    async def open(self, version: str) -> BatchedRevelator:
        if version not in self._versions:
            opening = asyncio.create_task(asyncio.to_thread(self._load, version))
            opening.add_done_callback(lambda _: self.close_unused())  # whoever asked may have gone
            self._versions[version] = opening
        return await asyncio.shield(self._versions[version])

    def _load(self, version: str) -> BatchedRevelator:
        from serving.models.engine import Engine  # with torch, which a service over Triton or vLLM does without
        from serving.models.local import LocalRevelator

        contents = require_contents(self._home, int(version))
        adapter = version_folder(self._home, int(version)) / ADAPTER if contents.files else None
        engine = Engine(contents.base["folder"], adapter, device=self._device)
        return BatchedRevelator(LocalRevelator(engine, self._decoding, self._threads))

    def close_unused(self) -> None:
        """Closes what nobody needs; forgets what did not open, so that the next call tries again."""
        try:
            release = self._traffic.read_release()
        except ArtifactError:
            return  # the next question hears of it; those under way go on
        needed = {*self._loaded, *(map(str, release.versions) if release else ())}
        for version, opening in [*self._versions.items()]:
            if not opening.done():
                continue
            if not _is_whole(opening):
                del self._versions[version]
            elif version not in needed and not self._calls[version] and not self._traffic.is_used(version):
                del self._versions[version]
                closing = asyncio.create_task(asyncio.to_thread(latency.trim_memory))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)


def _is_whole(opening: asyncio.Task[BatchedRevelator]) -> bool:
    return opening.done() and not opening.cancelled() and not opening.exception()


class BatchedRevelator:
    """`serving.protocols.Revelator` over one in this process: prompts of one task that wait are one batch."""

    def __init__(self, revelator: Revelator) -> None:
        self._revelator = revelator
        self._batcher: Batcher[tuple[str, float], str, Completion] = Batcher(self._complete, BATCH)

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        return await gather_all(self._batcher.submit((task, temperature), prompt) for prompt in prompts)

    async def _complete(self, key: tuple[str, float], prompts: Sequence[str]) -> list[Completion]:
        task, temperature = key
        return await self._revelator.complete(task, prompts, temperature=temperature)


class ServedIndex(LocalRetriever):
    """The index that the settings name. It notes which of its generations answered."""

    def __init__(self, config: ServingConfig) -> None:
        assert config.index is not None
        index = open_index(config.index, config.gpus)
        index.search_many(["ready"], 1)  # an embedding model loads now, not with the first question
        super().__init__(index, config.logic.resolve())

    async def search(self, query: str, k: int, scope: Scope = PUBLIC) -> list[Passage]:
        passages = await super().search(query, k, scope)
        find_choice().answered["retriever"].add(str(self.index.version))
        return passages


class ServedReader:
    """`serving.protocols.Generator` of the embedded reader: requests that wait are one batch."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._generator = EmbeddedGenerator()
        self._threads = threads
        self._batcher: Batcher[str, GenerateRequest, Reading] = Batcher(self._answer, READINGS)

    async def answer(self, request: GenerateRequest) -> Reading:
        with spans.open_completion("text_completion", GENERATOR) as span:
            reading = await self._batcher.submit(request.mode, request)
            spans.describe_completion(span, name_model(GENERATOR, PLAIN_VERSION), reading.tokens_in, reading.tokens_out)
        find_choice().answered["generator"].add(PLAIN_VERSION)
        return reading

    async def _answer(self, mode: str, requests: Sequence[GenerateRequest]) -> list[Reading]:
        work = partial(self._generator.answer_together, mode, requests)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
