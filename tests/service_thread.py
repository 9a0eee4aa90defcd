"""A real service on loopback, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from serving.home.config import ServingConfig
from serving.home.running import RunningServer
from serving.service.addresses import CLOSED, Exposure, read_ports
from serving.service.models import IN_PROCESS
from serving.service.questions import Questions
from serving.service.run import serve_home
from tests.triton_wheel import require_triton


@contextmanager
def serve_in_thread(
    home: Path, config: ServingConfig, exposure: Exposure = CLOSED, place: str = IN_PROCESS
) -> Iterator[tuple[Questions, RunningServer]]:
    if place == "local":
        require_triton()
    opened: Future[tuple[Questions, RunningServer]] = Future()
    stopped = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        try:
            async with serve_home(home, read_ports("auto"), config, exposure, place=place) as found:
                opened.set_result(found)
                await stopped.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)

    thread = threading.Thread(target=asyncio.run, args=(run(),), daemon=True)
    thread.start()
    try:
        yield opened.result(120)
    finally:
        if opened.exception() is None:
            loops[0].call_soon_threadsafe(stopped.set)
        thread.join(60)
        assert not thread.is_alive()
