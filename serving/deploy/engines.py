"""Who runs the versions of a home folder, as a deploy sees it: the service, or a vLLM server.

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

from revelator.channels import Tls
from revelator.errors import ConfigError
from revelator.files import try_lock
from serving.home.config import read_serving
from serving.home.running import find_running_server
from serving.home.versions import ADAPTER, version_folder
from serving.models.releases import TRAFFIC, Release, find_traffic_lock, read_release
from serving.models.triton import RemoteRevelator, TritonModels
from serving.models.vllm_server import LOAD_SECONDS, ReleasedAdapter, VllmServer, complete_url
from serving.protocols import Revelator
from serving.service import control
from serving.service.access import read_control_token

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
    return ServiceEngine(home, running.grpc) if running and read_serving(home).needs_release else None


@dataclass(frozen=True)
class ServiceEngine:
    """The running service at `url`, whose models answer in its process or on its Triton server."""

    home: Path
    url: str

    def load_beside(self, version: int, live: int | None) -> None:
        if live is not None:  # without one nothing answers yet, and `serve_only` loads the first
            control.load(self.home, self.url, [version])

    def unload(self, version: int, live: int | None) -> None:
        if live is not None:
            control.load(self.home, self.url, [])

    def serve_only(self, release: Release) -> None:
        for old in list_used_versions(self.home) - release.versions:
            wait_for_questions(self.home, old)
        control.load(self.home, self.url, release.versions)

    def is_ready(self, version: int) -> bool:
        return control.is_ready(self.url, version, self.home)

    @asynccontextmanager
    async def open_revelator(self) -> AsyncIterator[Revelator]:
        models = TritonModels(self.url, Tls.from_environment(), read_control_token(self.home))
        try:
            yield RemoteRevelator(models)
        finally:
            await models.close()


@dataclass(frozen=True)
class VllmEngine:
    """The vLLM server at `url`, which loads adapters while it runs."""

    home: Path
    url: str

    def load_beside(self, version: int, live: int | None) -> None:
        VllmServer(self.url).load(version, version_folder(self.home, version) / ADAPTER)

    def unload(self, version: int, live: int | None) -> None:
        if version != live:
            VllmServer(self.url).unload(version)

    def serve_only(self, release: Release) -> None:
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


def list_used_versions(home: Path) -> set[int]:
    """The versions that questions have been under way with."""
    return {int(path.name) for path in (home / TRAFFIC).glob("*") if path.name.isdigit()}


def wait_for_questions(home: Path, version: int) -> None:
    """Returns when no question is under way with `version`, after `DRAIN_SECONDS` at the latest."""
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end:
        with try_lock(find_traffic_lock(home, str(version))) as is_free:  # each attempt takes a tenth of a second
            if is_free:
                return
