"""HTTP servers of the tests' own on loopback: they serve in a thread while a test runs, and end with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)


@contextmanager
def serving(server: Server, release: Callable[[], object] = lambda: None) -> Iterator[Server]:
    """`release` lets go what the server still holds, so that it can end where the test within has failed."""
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            release()
            server.shutdown()
            thread.join()
