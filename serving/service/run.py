"""Runs the service of a home folder: both fronts on one event loop, `serve.json` while they answer, and their end."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from revelator import files
from revelator.channels import TOKEN, read_token
from revelator.endpoints import LOOPBACK as LOOPBACK_NAMES
from revelator.errors import ConfigError
from revelator.files import try_lock
from revelator.registry import require_existing
from serving.home.config import ServingConfig, write_serving
from serving.home.running import LOCK, SERVE_JSON, RunningServer
from serving.http.callers import Callers
from serving.http.protection import is_loopback
from serving.models.releases import name_version, read_release
from serving.retrieval import Index
from serving.service.access import Tokens, read_control_token
from serving.service.addresses import CLOSED, LOOPBACK, NOBODY, Exposure, Ports
from serving.service.grpc_front import bind_grpc, serve_grpc
from serving.service.http_front import create_app, listen, serve_http
from serving.service.models import IN_PROCESS
from serving.service.questions import MODELS, Questions, open_questions
from serving.service.uploads import Uploads
from serving.triton.host import SCHEME

PORTS_HINT = "name other ports with --ports"
LOG = Path("logs", "service.log")
LOG_BYTES = 10_000_000
DRAIN_SECONDS = 35.0  # a question may take 30 (revelator.limits.Limits)


@asynccontextmanager
async def serve_home(
    home: Path,
    ports: Ports,
    config: ServingConfig,
    exposure: Exposure = CLOSED,
    hosts: Collection[str] = (),
    place: str = IN_PROCESS,
) -> AsyncIterator[tuple[Questions, RunningServer]]:
    """Opens the models at `place` (`serving.service.models.open_models`), answers, and writes `serve.json`; at the end
    of the block questions in flight are answered first. Where versions of the release run elsewhere (a Triton server of
    others, vLLM) several services may serve one home folder: the `serve.json` of the first stands, to which deploys go.
    Raises ConfigError when this home folder is being served already, and what `open_questions` raises."""
    home = require_existing(home).resolve()
    with try_lock(home / LOCK) as is_first:
        if not is_first and _runs_models(home, config, place):
            hint = "stop that service, or name another folder with --home"
            raise ConfigError("this home folder is being served already", where=str(home / SERVE_JSON), hint=hint)
        if is_first:
            (home / SERVE_JSON).unlink(missing_ok=True)
            write_serving(home, config)
        (home / "logs").mkdir(exist_ok=True)
        tokens = Tokens(read_control_token(home), _read_callers(exposure))
        names, tls = {*LOOPBACK_NAMES, *hosts}, (exposure.tls, exposure.mutual)
        address = f"{LOOPBACK}:{ports.grpc}"
        async with AsyncExitStack() as stack:
            # ports are taken first: who comes before the models are open waits, and two starts never share one
            listening = stack.enter_context(listen(exposure.host, ports.http, PORTS_HINT))
            server, _ = bind_grpc(config.executor_limits, tokens, exposure.host, ports.grpc, *tls)
            questions = await stack.enter_async_context(open_questions(home, config, place))
            uploads = _open_uploads(home, questions, config, exposure)
            page = create_app(questions, address, home / "inspected", names, tokens.callers, uploads)
            await stack.enter_async_context(serve_http(page, listening, *tls))
            await stack.enter_async_context(serve_grpc(server, questions, tokens))
            running = RunningServer(
                pid=os.getpid(),
                http=f"{'https' if exposure.tls else 'http'}://{LOOPBACK}:{ports.http}",
                grpc=address,
                log=str(home / LOG),
                models={m: int(name_version(found)) for m in MODELS if (found := questions.find_version(m))},
                started=datetime.now(UTC).isoformat(timespec="seconds"),
            )

            def write_running() -> None:
                found = questions.indexes.items()
                indexes = {name: retriever.index.version for name, retriever in found}
                refused = {name: retriever.refused for name, retriever in found if retriever.refused}
                files.write_json(home / SERVE_JSON, asdict(replace(running, indexes=indexes, refused=refused)))

            if is_first:
                write_running()
                questions.on_indexes = write_running
            try:
                yield questions, running
            finally:
                questions.on_indexes = lambda: None
                if is_first:
                    (home / SERVE_JSON).unlink(missing_ok=True)
                await questions.drain(DRAIN_SECONDS)


def _open_uploads(home: Path, questions: Questions, config: ServingConfig, exposure: Exposure) -> Uploads | None:
    """What takes documents from the page, where that is allowed. Raises ConfigError where it would show a client the
    names of documents that others alone may read, and for an index in Milvus."""
    has_clients = exposure.clients != NOBODY or exposure.issuer is not None
    if config.uploads and isinstance(config.index, str):
        hint = "leave out `uploads`; `revelator index update` adds documents"
        raise ConfigError("the page adds documents to an index in a folder", where="uploads", hint=hint)
    if config.uploads and has_clients:
        hint = "leave out `uploads`, or `clients` and `callers`; `revelator index update` adds documents"
        raise ConfigError("whoever adds documents sees the names of all", where="uploads", hint=hint)
    is_open = is_loopback(exposure.host) and not has_clients if config.uploads is None else config.uploads
    indexes = [*questions.indexes.values()]
    is_one = len(indexes) == 1 and isinstance(indexes[0].index, Index)
    return Uploads(home, indexes[0]) if is_open and is_one else None


def _runs_models(home: Path, config: ServingConfig, place: str) -> bool:
    """Whether this service itself runs what a deploy changes, so that no other may serve its home folder."""
    if place != IN_PROCESS:
        return not place.startswith(SCHEME)
    release = read_release(home)
    return config.needs_release and not (release and release.vllm)


def _read_callers(exposure: Exposure) -> Callers:
    """Who may ask: who sends the token that the environment names, one of the file of clients, or one that the issuer
    has signed. Raises ConfigError for an address beyond loopback that everybody could ask."""
    callers = Callers.of(read_token(), exposure.clients, exposure.issuer)
    if not callers.need_token and not exposure.mutual and not is_loopback(exposure.host):
        hint = f"export {TOKEN}=…, name `clients` or `callers`, or let them show certificates (tls: mutual)"
        raise ConfigError("beyond loopback clients need a token", where="--host", hint=hint)
    return callers


async def run_until_stopped(
    home: Path,
    ports: Ports,
    config: ServingConfig,
    exposure: Exposure,
    hosts: Collection[str],
    place: str,
    report: Callable[[Questions, RunningServer], None],
    shutdown_delay: float = 0.0,
) -> None:
    """Serves until SIGINT or SIGTERM, and for `shutdown_delay` seconds more, or until a second signal, in which it is
    not ready; `report` is called once questions are answered. Raises what `serve_home` does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual 1,024 are fewer than idle connections may be
    (home / LOG).parent.mkdir(exist_ok=True)
    kept = RotatingFileHandler(home / LOG, maxBytes=LOG_BYTES, backupCount=1)  # whoever reaches a port can make it grow
    logging.basicConfig(handlers=[kept], format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stopped, serving = asyncio.Event(), asyncio.current_task()
    assert serving
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)  # until questions are answered
    async with serve_home(home, ports, config, exposure, hosts, place) as (questions, running):
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        report(questions, running)
        await stopped.wait()
        stopped.clear()
        await questions.leave(shutdown_delay, stopped)
