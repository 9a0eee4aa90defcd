"""Servers on loopback: free ports, and HTTP servers of the tests' own, which serve in a thread while a test runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)


def find_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
