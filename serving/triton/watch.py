"""Brings back a model whose process died.

Triton 2.51 does not: the model stays READY, each request to it waits a second and fails with "Stub process … is not
healthy". A load then does nothing while the files are what they were, and keeps the dead process when config.pbtxt
alone is newer. So the processes are looked at, and the model.py of one that is gone is touched before the load.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from revelator.errors import RevelatorError
from serving.triton import control, repository

RETRY_SECONDS = 30.0  # after a model did not come back


class Watch:
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

    def look(self) -> None:
        """Loads again each model that counts as ready and has no process; `report` is told, also when that fails."""
        alive = _commands(self._pid)
        for model in self._models:
            gone = [v for v in repository.served_versions(self._home, model) if not self._has_process(model, v, alive)]
            if not gone or time.monotonic() < self._not_before.get(model, 0):
                continue
            try:
                for version in gone:
                    self._bring_back(model, version)
            except RevelatorError as error:
                self._not_before[model] = time.monotonic() + RETRY_SECONDS
                self._report(f"error: {error}\n  tried again in {RETRY_SECONDS:.0f} s")

    def _has_process(self, model: str, version: int, commands: Iterable[str]) -> bool:
        folder = f"{repository.repository(self._home) / model / str(version)}{os.sep}"
        return any(folder in command for command in commands)

    def _bring_back(self, model: str, version: int) -> None:
        if not control.is_ready(self._url, model, version):
            return  # it was unloaded, or is being loaded
        self._report(f"{model}: its process died; loading it again")
        os.utime(repository.repository(self._home) / model / str(version) / "model.py")
        control.load(self._home, self._url, model, version)
        self._report(f"{model} version {version}: ready")


def _commands(server: int) -> list[str]:
    """The command lines of the server's children; one that has died has none."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(server).children():
            with suppress(psutil.Error):
                found.append(" ".join(child.cmdline()))
    return found
