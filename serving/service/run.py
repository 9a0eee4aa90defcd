"""Runs the service of a home folder: both fronts on one event loop, `serve.json` while they answer, and their end."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from revelator import files
from revelator.endpoints import TOKEN, check_key
from revelator.errors import ConfigError
from revelator.files import try_lock
from revelator.registry import require_existing
from serving.deploy.engines import write_config
from serving.http.protection import LOOPBACK as LOOPBACK_NAMES
from serving.http.protection import is_loopback
from serving.models.releases import read_release
from serving.service.grpc_front import serve_grpc
from serving.service.http_front import create_app, serve_http
from serving.service.questions import MODELS, Questions, open_questions
from serving.triton.access import CLOSED, CONTROL, LOOPBACK, Exposure, read_secret
from serving.triton.config import ServingConfig, write_serving
from serving.triton.running import LOCK, SERVE_JSON, RunningServer
from serving.triton.server import Ports

LOG = Path("logs", "service.log")
DRAIN_SECONDS = 35.0  # a question may take 30 (revelator.limits.Limits)


@asynccontextmanager
async def serve_home(
    home: Path, ports: Ports, config: ServingConfig, exposure: Exposure = CLOSED, hosts: Collection[str] = ()
) -> AsyncIterator[tuple[Questions, RunningServer]]:
    """Opens the models, answers, and writes `serve.json`; at the end of the block questions in flight are answered
    first. Raises ConfigError when this home folder is being served already, and what `open_questions` raises."""
    home = require_existing(home).resolve()
    with try_lock(home / LOCK) as mine:
        if not mine:
            raise ConfigError("this home folder is being served already", where=str(home / SERVE_JSON))
        (home / SERVE_JSON).unlink(missing_ok=True)
        write_serving(home, config)
        if config.needs_release and (release := read_release(home)):
            write_config(home, release)  # a deploy goes by it
        (home / "logs").mkdir(exist_ok=True)
        control = read_secret(home, CONTROL)
        names, tls = {*LOOPBACK_NAMES, *hosts}, (exposure.tls, exposure.mutual)
        address = f"{LOOPBACK}:{ports.grpc}"
        async with AsyncExitStack() as stack:
            questions = await stack.enter_async_context(open_questions(home, config))
            page = create_app(questions, address, home / "inspected", names, _read_token(exposure))
            await stack.enter_async_context(serve_http(page, exposure.host, ports.http, *tls))
            await stack.enter_async_context(serve_grpc(questions, control, exposure.host, ports.grpc, *tls))
            http = f"{'https' if exposure.tls else 'http'}://{LOOPBACK}:{ports.http}"
            running = RunningServer(
                pid=os.getpid(),
                server_pid=os.getpid(),
                http=http,
                grpc=address,
                metrics=f"{http}/metrics",
                log=str(home / LOG),
                models={model: int(version) for model in MODELS if (version := questions.find_version(model))},
                started=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            files.write_json(home / SERVE_JSON, asdict(running))
            try:
                yield questions, running
            finally:
                (home / SERVE_JSON).unlink(missing_ok=True)
                await questions.drain(DRAIN_SECONDS)


def _read_token(exposure: Exposure) -> str | None:
    """What HTTP asks for, where the environment names it. Raises ConfigError for an address beyond loopback that
    everybody could ask."""
    token = check_key(os.environ[TOKEN], TOKEN) if TOKEN in os.environ else None
    if token is None and not exposure.mutual and not is_loopback(exposure.host):
        hint = f"export {TOKEN}=…, or let clients show certificates (--tls-mutual)"
        raise ConfigError("beyond loopback HTTP needs a token", where="--host", hint=hint)
    return token


async def run_until_stopped(
    home: Path,
    ports: Ports,
    config: ServingConfig,
    exposure: Exposure,
    hosts: Collection[str],
    report: Callable[[RunningServer], None],
) -> None:
    """Serves until SIGINT or SIGTERM; `report` is called once questions are answered. Raises what `serve_home` does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the usual 1,024 are fewer than idle connections may be
    (home / LOG).parent.mkdir(exist_ok=True)
    logging.basicConfig(filename=home / LOG, filemode="w", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stopped = asyncio.Event()
    async with serve_home(home, ports, config, exposure, hosts) as (_, running):
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        report(running)
        await stopped.wait()
