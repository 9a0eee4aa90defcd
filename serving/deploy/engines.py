"""Who runs the versions of a home folder, as a deploy sees it: our model, behind Triton or in the service, which speaks
the same protocol; or a vLLM server.

Both load a version beside those that answer, and unload what is needed no more once its questions have ended. Which of
them answers a question is the record's affair (`serving.models.releases`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from revelator.errors import ConfigError
from revelator.files import try_lock
from serving.models.releases import Release, find_traffic_lock, read_release
from serving.models.triton import RemoteRevelator, TritonModels
from serving.models.vllm_server import LOAD_SECONDS, ReleasedAdapter, VllmServer, complete_url
from serving.protocols import Revelator
from serving.triton import control, repository
from serving.triton.access import INNER, read_secret
from serving.triton.config import read_serving
from serving.triton.repository import ADAPTER, REVELATOR
from serving.triton.running import find_running_server

DRAIN_SECONDS = 35.0  # a question may take 30 (revelator.limits.Limits); one that is later goes on with the new version


class Engine(Protocol):
    @property
    def home(self) -> Path:
        """The folder of its versions."""

    @property
    def url(self) -> str:
        """Its address."""

    def load_beside(self, version: int, live: int | None) -> None:
        """Returns when `version` answers beside the live one. Raises ArtifactError when it does not load."""

    def unload(self, version: int, live: int | None) -> None:
        """Takes a version that failed out of service again."""

    def serve_only(self, release: Release) -> None:
        """Loads what the release names, and unloads the others when their questions have ended. Can be repeated."""

    def is_ready(self, version: int) -> bool:
        """Whether the version answers."""

    def open_revelator(self) -> AbstractAsyncContextManager[Revelator]:
        """What asks the version of the current choice."""


def find_engine(home: Path, vllm: str | None) -> Engine | None:
    """The engine to deploy to: the vLLM server at `vllm`, for "" our own, for None that of the release; None where our
    own is not running, or not asked. Raises ConfigError where a running server asks another engine than that."""
    release, running = read_release(home), find_running_server(home)
    asked = release.vllm if release else ""
    wanted = asked if vllm is None else complete_url(vllm) if vllm else ""
    if running and wanted != asked:
        now = f"vLLM at {asked}" if asked else "our own engine"
        hint = f"stop it, deploy, and start it again: revelator serve --home {home}"
        raise ConfigError(f"the server of this home folder asks {now}", where="--engine", hint=hint)
    if wanted:
        return VllmEngine(home, wanted)
    return TritonEngine(home, running.grpc) if running and read_serving(home).needs_release else None


@dataclass(frozen=True)
class TritonEngine:
    """The model `revelator` of the Triton server, or of the service (`serving.service`), at `url`."""

    home: Path
    url: str

    def load_beside(self, version: int, live: int | None) -> None:
        if live is not None:  # without one nothing answers yet, and `serve_only` loads the first
            self._load(version, live, version)

    def unload(self, version: int, live: int | None) -> None:
        if live is not None:
            self._load(live, live)

    def _load(self, version: int, *versions: int) -> None:
        config = repository.make_load_config(self.home, REVELATOR, *versions)
        control.load(self.home, self.url, REVELATOR, version, config)

    def serve_only(self, release: Release) -> None:
        for old in set(repository.read_served_versions(self.home, REVELATOR)) - release.versions:
            wait_for_questions(self.home, old)
        write_config(self.home, release)
        control.load(self.home, self.url, REVELATOR, release.version)

    def is_ready(self, version: int) -> bool:
        return control.is_ready(self.url, REVELATOR, version)

    @asynccontextmanager
    async def open_revelator(self) -> AsyncIterator[Revelator]:
        async with TritonModels(self.url, read_secret(self.home, INNER)) as models:
            yield RemoteRevelator(models)


@dataclass(frozen=True)
class VllmEngine:
    """The vLLM server at `url`, which loads adapters while it runs."""

    home: Path
    url: str

    def load_beside(self, version: int, live: int | None) -> None:
        VllmServer(self.url).load(version, repository.version_folder(self.home, version) / ADAPTER)

    def unload(self, version: int, live: int | None) -> None:
        if version != live:
            VllmServer(self.url).unload(version)

    def serve_only(self, release: Release) -> None:
        write_config(self.home, release)
        for version in release.versions:
            self.load_beside(version, None)
        for old in VllmServer(self.url).list_versions() - release.versions:
            wait_for_questions(self.home, old)
            VllmServer(self.url).unload(old)

    def is_ready(self, version: int) -> bool:
        return version in VllmServer(self.url).list_versions()

    @asynccontextmanager
    async def open_revelator(self) -> AsyncIterator[Revelator]:
        revelator = ReleasedAdapter(self.url, LOAD_SECONDS)  # the first plan of a server compiles its grammar
        try:
            yield revelator
        finally:
            await revelator.close()


def write_config(home: Path, release: Release) -> None:
    """Writes config.pbtxt with the versions that the release names."""
    repository.write_config(home, REVELATOR, [release.version, *([release.canary.version] if release.canary else [])])


def wait_for_questions(home: Path, version: int) -> None:
    """Returns when no question is under way with `version`, after `DRAIN_SECONDS` at the latest."""
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end:
        with try_lock(find_traffic_lock(home, str(version))) as is_free:  # each attempt takes a tenth of a second
            if is_free:
                return
