"""Serves a home folder: runs the server, loads its models, and writes its addresses into `serve.json`.

The process that serves holds a lock on the home folder. The kernel releases it however the process ends, so a stale
`serve.json` misleads nobody. A watchdog loads a model again when the model's process has died.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil

from revelator import files
from revelator.errors import ArtifactError, ConfigError, RevelatorError
from revelator.files import try_lock
from revelator.registry import require_existing
from serving.http.gateway import create_gateway, create_metrics, serve_http
from serving.http.protection import LOOPBACK as LOOPBACK_NAMES
from serving.models.releases import read_release
from serving.triton import control, repository
from serving.triton.access import CLOSED, Exposure
from serving.triton.config import ServingConfig
from serving.triton.control import find_served_models
from serving.triton.installation import find_installation
from serving.triton.repository import EXECUTORS, PLAIN_MODELS, REVELATOR
from serving.triton.running import LOCK, SERVE_JSON, RunningServer
from serving.triton.server import LOOPBACK, Ports, TritonServer

GATEWAY_SECONDS = 120.0  # that a question over HTTP is waited for, or a second longer than its deadline
PORTS_HINT = "name other ports with --ports"


def choose_models(home: Path, config: ServingConfig) -> dict[str, int]:
    """The version to serve of each model; none of the revelator while the release neither plans nor judges, or vLLM
    runs it. Raises ArtifactError when no version of the revelator was deployed."""
    promoted = read_release(home)
    plain = dict.fromkeys(PLAIN_MODELS, 1)
    if not config.needs_release or (promoted and promoted.vllm):
        return plain
    version = promoted.version if promoted else None
    if version is None or version not in repository.list_versions(home, REVELATOR):
        where = str(repository.repository_folder(home) / REVELATOR)
        hint = f"put the registry's champion there: revelator model deploy --home {home}"
        raise ArtifactError("no version of the revelator is deployed", where=where, hint=hint)
    vllm = {repository.VLLM: 1} if repository.read_served_versions(home, repository.VLLM) else {}
    return {**plain, **vllm, REVELATOR: version}


@contextmanager
def serve_home(
    home: Path,
    ports: Ports,
    config: ServingConfig,
    report: Callable[[str], None] = lambda _: None,
    exposure: Exposure = CLOSED,
    http: bool = False,
    hosts: Collection[str] = (),
) -> Iterator[tuple[TritonServer, RunningServer]]:
    """Starts the server, loads every model, and writes `serve.json`; on leaving, both are gone.

    `http`: the executor over HTTP, too; `hosts` are further names by which that and the page of metrics may be called.
    `report` is called with the name of each model as it gets ready. ConfigError when this home folder is being served
    already or does not exist, or when no server is installed; ArtifactError when a model does not load.
    """
    home = require_existing(home).resolve()
    with try_lock(home / LOCK) as mine:
        if not mine:
            raise ConfigError("this home folder is being served already", where=str(home / SERVE_JSON))
        (home / SERVE_JSON).unlink(missing_ok=True)
        models = choose_models(home, config)
        repository.lay_out(home, config)
        if version := models.get(REVELATOR):
            repository.write_code(REVELATOR, repository.version_folder(home, version))
            # the promoted version alone: one that does not load would keep the others from loading
            repository.write_config(home, REVELATOR, [version])
        server = TritonServer(
            find_installation(home / "triton", "vllm" if repository.VLLM in models else "python"),
            repository.repository_folder(home),
            ports,
            home / "logs" / "triton.log",
            exposure,
        )
        with server, ExitStack() as stack:
            try:
                load_all(home, server.url, models, report)
            except BaseException:
                server.stop(at_once=True)  # nobody is being answered, and the other loads would be waited for
                raise
            running = RunningServer(
                pid=os.getpid(),
                server_pid=server.pid,
                http=f"{'https' if exposure.tls else 'http'}://{LOOPBACK}:{ports.http}" if http else None,
                grpc=server.url,
                metrics=f"http://{LOOPBACK}:{ports.metrics}/metrics",
                log=str(server.log),
                models=models,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            names = {*LOOPBACK_NAMES, *hosts}
            page = create_metrics(server.metrics_url, server.metrics_folder, names)
            stack.enter_context(serve_http(exposure.host, ports.metrics, page, PORTS_HINT))
            if http:
                seconds = max(GATEWAY_SECONDS, config.executor_limits.deadline_ms / 1000 + 1)
                gateway = create_gateway(server.url, seconds, partial(_is_ready, server.url), names)
                tls = exposure.tls, exposure.mutual
                stack.enter_context(serve_http(exposure.host, ports.http, gateway, PORTS_HINT, *tls))
            files.write_json(home / SERVE_JSON, asdict(running))
            try:
                yield server, running
            finally:
                (home / SERVE_JSON).unlink(missing_ok=True)
                drain(home, server)


def drain(home: Path, server: TritonServer) -> None:
    """Takes the executors out of service while the models that they ask are still there: questions in flight are
    answered, new ones are Unavailable. A stopping server would refuse the calls of its own questions, too."""
    if server.poll() is None:
        with ThreadPoolExecutor(len(EXECUTORS)) as threads:
            for name in EXECUTORS:
                threads.submit(control.unload, home, server.url, name)


def load_all(home: Path, url: str, models: dict[str, int], report: Callable[[str], None]) -> None:
    """Loads the models at the same time: most of it is each one's imports."""
    threads = ThreadPoolExecutor(len(models))
    try:
        loads = {threads.submit(control.load, home, url, name, version): name for name, version in models.items()}
        for load in as_completed(loads):
            load.result()
            report(loads[load])
    finally:
        threads.shutdown(wait=False)  # what still loads when one has failed ends with the server


async def _is_ready(url: str) -> bool:
    return "executor" in await find_served_models(url)


RETRY_SECONDS = 30.0  # after a model did not come back


class Watchdog:
    """Looks after `models` of the server with process id `pid`, which serves the live repository below `home`."""

    def __init__(
        self, home: Path, pid: int, url: str, models: Iterable[str], report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._home = home.resolve()
        self._pid = pid
        self._url = url
        self._models = tuple(models)
        self._report = report
        self._not_before: dict[str, float] = {}

    def check_processes(self) -> None:
        """Loads each model again that is ready by Triton's account and has no process; reports each."""
        commands = _list_commands(self._pid)
        for model in self._models:
            if time.monotonic() < self._not_before.get(model, 0):
                continue
            try:
                for version in repository.read_served_versions(self._home, model):
                    self._check_version(model, version, commands)
            except RevelatorError as error:
                self._not_before[model] = time.monotonic() + RETRY_SECONDS
                self._report(f"error: {error}\n  tried again in {RETRY_SECONDS:.0f} s")

    def _check_version(self, model: str, version: int, commands: Iterable[str]) -> None:
        folder = repository.repository_folder(self._home) / model / str(version)
        if any(f"{folder}{os.sep}" in command for command in commands):
            return
        if not control.is_ready(self._url, model, version):
            return  # it was unloaded, or is being loaded
        self._report(f"{model}: its process died; loading it again")
        os.utime(folder / ("model.json" if model == repository.VLLM else "model.py"))
        control.load(self._home, self._url, model, version)
        self._report(f"{model} {control.describe_version(version)}: ready")


def _list_commands(server: int) -> list[str]:
    """The command lines of the server's live child processes."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(server).children():
            with suppress(psutil.Error):
                found.append(" ".join(child.cmdline()))
    return found
