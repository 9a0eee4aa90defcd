"""What an event loop exchanges with Triton for its requests, in a thread of its own.

To send a response, or to ask whether the client is still there, the backend passes messages to and fro with the server
and waits. That takes 0.15 ms, and many times that while the server is flooded: a loop that did it itself would stand
still, and every other question with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from serving.triton.backend import failure, send

POLL_SECONDS = 0.02  # after which each client is asked for again
POLLED_OFTEN = 16  # clients up to which each is asked for so often: 12 % of a core; more share that
log = logging.getLogger(__name__)


class Courier:
    """Callable from any thread; what is handed over for one sender goes out in order."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._watched: OrderedDict[Any, Callable[[], object]] = OrderedDict()  # of this thread; the next one first
        self._unsent: dict[Any, Exception] = {}  # of this thread
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)
        self._thread.start()

    def watch(self, sender: Any, left: Callable[[], object]) -> None:
        """Calls `left`, in the courier's thread, once when the client of the request went away."""
        self._orders.put(lambda: self._watched.update({sender: left}))

    def part(self, sender: Any, answer: Any) -> None:
        """One response of many. After one that could not be sent the last is an error."""
        self._orders.put(lambda: self._part(sender, answer))

    def last(self, sender: Any, answer: Any) -> None:
        """The last response; None: only that it ended. The sender is done with then. One that cannot be sent becomes an
        error that can."""
        self._orders.put(lambda: self._end(sender, answer))

    def close(self) -> None:
        """Returns when all that was handed over has gone out."""
        self._orders.put(None)
        self._thread.join()

    def _end(self, sender: Any, answer: Any) -> None:
        self._watched.pop(sender, None)
        fault = self._unsent.pop(sender, None)
        try:
            send(sender, failure(fault) if fault else answer)
        except Exception as error:
            send(sender, failure(error))

    def _part(self, sender: Any, answer: Any) -> None:
        try:
            sender.send(answer)
        except Exception as error:
            self._unsent[sender] = error

    def _work(self) -> None:
        due = 0.0
        while True:
            try:
                order = self._orders.get(timeout=max(0.0, due - time.monotonic()) if self._watched else None)
            except Empty:
                order = self._poll
                due = time.monotonic() + POLL_SECONDS / min(len(self._watched), POLLED_OFTEN)
            if order is None:
                return
            try:
                order()
            except BaseException:
                log.exception("a message to the server failed")

    def _poll(self) -> None:
        sender, left = self._watched.popitem(last=False)
        if sender.is_cancelled():
            left()
        else:
            self._watched[sender] = left
