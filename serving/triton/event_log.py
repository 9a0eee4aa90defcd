"""Structured logs: one JSON line a question or error, without any text of a question unless a switch asks for it.

    REVELATOR_EVENTS=/var/log/revelator.jsonl     # `-`: standard error, which a container's platform collects
    REVELATOR_LOG_QUESTIONS=1                     # questions, plans, answers and messages too

Lines are appended whole; a file that a rotation moved away is opened anew.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

FILE, TEXTS = "REVELATOR_EVENTS", "REVELATOR_LOG_QUESTIONS"


class EventLog:
    """Where the events of one model go; nowhere when no file is named."""

    def __init__(self, model: str, environment: Mapping[str, str] = os.environ) -> None:
        self._model = model
        self.texts = environment.get(TEXTS, "") not in ("", "0")
        place = environment.get(FILE)
        self._handler: logging.Handler | None = None
        if place:
            # opened with the first line: a place that cannot be written must not keep a model from loading
            self._handler = logging.StreamHandler(sys.stderr) if place == "-" else WatchedFileHandler(place, delay=True)

    def write(self, event: str, **values: object) -> None:
        """One line; a value that is None is left out."""
        if self._handler is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "event": event, "model": self._model, **values}
        text = json.dumps({name: value for name, value in line.items() if value is not None}, ensure_ascii=False)
        self._handler.handle(logging.makeLogRecord({"msg": text}))
