"""Structured logs: one JSON line a question or error, without any text of a question unless a switch asks for it.

    REVELATOR_EVENTS=/var/log/revelator.jsonl     # `-`: standard error, which a container's platform collects
    REVELATOR_LOG_QUESTIONS=1                     # questions, plans, answers and messages too

Lines are appended whole. The file is opened for each, so one that a rotation moved away is made anew, and a disk that
was full is written to again once it has room.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

FILE, TEXTS = "REVELATOR_EVENTS", "REVELATOR_LOG_QUESTIONS"
_OPENED = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe that nobody reads is an error
log = logging.getLogger(__name__)


class EventLog:
    """Where the events of one model go; nowhere when no file is named."""

    def __init__(self, model: str, environment: Mapping[str, str] = os.environ) -> None:
        self._model = model
        self.texts = environment.get(TEXTS, "") not in ("", "0")
        self._place = environment.get(FILE)
        self._fault: str | None = None

    def write(self, event: str, **values: object) -> None:
        """One line; a value that is None is left out. A line that cannot be written is lost: the process's own log says
        so of the first, and again of another reason."""
        if not self._place:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, "model": self._model, **values}
        text = json.dumps({name: value for name, value in line.items() if value is not None}, ensure_ascii=False)
        try:
            self._append(f"{text}\n".encode(errors="replace"))
            self._fault = None
        except (OSError, ValueError) as error:  # of a path that is none
            if self._fault != str(error):
                log.warning("events are lost: %s", error)
            self._fault = str(error)

    def _append(self, line: bytes) -> None:
        if self._place == "-":
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            return
        assert self._place is not None
        file = os.open(self._place, _OPENED, 0o600)  # it may hold questions
        try:
            os.write(file, line)
        finally:
            os.close(file)
