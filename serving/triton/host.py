"""The models of a home folder on a Triton server: loaded when the service starts, and again when they are lost.

The server is the service's own (`local`), which ends with it and is started anew when it dies, or one that runs
elsewhere over the home folder's `model_repo/` (`grpc://host:port`), in explicit model control.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from revelator.errors import RevelatorError, Unavailable
from serving.home.config import ServingConfig
from serving.home.versions import repository_folder, require_contents
from serving.models.releases import REVELATOR, Traffic
from serving.models.triton import GENERATOR, RemoteGenerator, TritonModels, TritonRelease
from serving.triton import repository
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer

LOCAL, SCHEME = "local", "grpc://"
LOOK_SECONDS = 1.0  # between looks at the server, its processes and its models
CONNECT_SECONDS = 0.1
RETRY_SECONDS = 10.0  # after a model or the server did not come back
log = logging.getLogger(__name__)


class TritonHost:
    """`generator` and, where the release plans or judges, `release` are what the executor calls."""

    def __init__(
        self, home: Path, config: ServingConfig, traffic: Traffic, models: TritonModels, server: TritonServer | None
    ) -> None:
        self.server, self.url = server, models.url
        self._home = home
        self._config = config
        self._models = models
        self.generator = RemoteGenerator(models)
        release = traffic.read_release() if config.needs_release else None
        own = release is not None and not release.vllm
        self.release = TritonRelease(models, traffic, self._configure_revelator) if own else None
        self._wanted = [GENERATOR, *([REVELATOR] if own else [])]

    def _configure_revelator(self, versions: Collection[str]) -> str:
        for version in versions:
            require_contents(self._home, int(version))
            repository.write_code(self._home, REVELATOR, version)
        return repository.make_config(REVELATOR, versions, self._config)

    async def start(self) -> None:
        """Returns when the models are ready. Raises ArtifactError for one that does not load, Unavailable for a server
        that ended or does not answer."""
        repository.lay_out(self._home)
        if self.server:
            self.server.start()
            await asyncio.to_thread(self.server.wait_until_live)
            while self.server.is_running and not await self._models.is_live():  # noqa: ASYNC110
                await asyncio.sleep(CONNECT_SECONDS)  # after an outage the channel pauses before it connects again
        elif not await self._models.is_live():
            hint = "start it with --model-control-mode=explicit over model_repo/ of this home folder"
            raise Unavailable("no Triton server answers", where=self._models.url, hint=hint)
        await asyncio.gather(*map(self._load, self._wanted))

    async def _load(self, model: str) -> None:
        if model == GENERATOR:
            await self._models.load(GENERATOR, repository.make_config(GENERATOR, ["1"], self._config), ["1"])
        elif self.release:
            await self.release.reload()

    async def is_ready(self) -> bool:
        return all([await self._models.is_ready(model) for model in self._wanted])

    async def watch(self) -> None:
        """Looks after the server and the models until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except (RevelatorError, OSError) as error:
                log.error("%s; tried again in %g s", error, RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)

    async def _look(self) -> None:
        if self.server and not self.server.is_running:
            log.error("%s; it is started anew", self.server.make_end_error())
            self._models.outage = "the Triton server ended, and is started anew"
            await asyncio.to_thread(self.server.stop)
            await self.start()
            log.warning("the Triton server is ready again")
        for model in self._wanted:
            if self.server and not self._has_process(model):
                self._models.give_up(model)
                self._mark_changed(model)
            elif await self._models.is_ready(model):
                continue
            log.warning("%s: its process died, or it was unloaded; it is loaded again", model)
            await self._load(model)
            log.warning("%s: ready again", model)
        self._models.outage = ""

    def _list_folders(self, model: str) -> list[Path]:
        """The folders of a model's loaded versions."""
        versions = self.release.loaded if model == REVELATOR and self.release else {"1"}
        return [repository_folder(self._home) / model / version for version in versions]

    def _has_process(self, model: str) -> bool:
        """Whether each loaded version of a model has one: Triton calls a model ready whose process is dead."""
        assert self.server
        commands = []
        with suppress(psutil.Error):
            for child in psutil.Process(self.server.pid).children():
                with suppress(psutil.Error):
                    commands.append(" ".join(child.cmdline()))
        return all(any(f"{folder}{os.sep}" in command for command in commands) for folder in self._list_folders(model))

    def _mark_changed(self, model: str) -> None:
        """Triton loads nothing again whose files are as they were."""
        for folder in self._list_folders(model):
            os.utime(folder / "model.py")


@asynccontextmanager
async def open_host(place: str, home: Path, config: ServingConfig, traffic: Traffic) -> AsyncIterator[TritonHost]:
    """The models at `place`, `local` or `grpc://host:port`, until the block ends. Raises what `TritonHost.start` does,
    and ConfigError where no server is installed."""
    server = None
    if place == LOCAL:
        installation = await asyncio.to_thread(find_installation, home / "triton")
        server = TritonServer(installation, repository_folder(home), home / "logs" / "triton.log")
        models = TritonModels(server.url, server.tls)
    else:
        models = TritonModels(place.removeprefix(SCHEME))
    host = TritonHost(home, config, traffic, models, server)
    watching = None
    try:
        await host.start()
        watching = asyncio.create_task(host.watch())
        yield host
    finally:
        if watching:
            watching.cancel()
        await models.close()
        if server:
            await asyncio.to_thread(server.stop)  # the questions are answered by now
