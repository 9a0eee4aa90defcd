"""A server of Milvus Lite in this process that can be stopped, started again and slowed down."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from milvus_lite.adapter.grpc.server import start_server_in_thread


class MilvusServer:
    """Listens behind `port`, where `flows` lets bytes pass, or holds them while it is not set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.flows = threading.Event()
        self.flows.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.start()
        threading.Thread(target=self._accept, daemon=True).start()

    def start(self) -> None:
        self._server, self._database, self._target = start_server_in_thread(str(self.folder))

    def stop(self) -> None:
        """As a process that ends: connections break."""
        self._target = 0
        for one in [end for pair in self._pairs for end in pair]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()
        self._server.stop(grace=0).wait()
        self._database.close()

    def close(self) -> None:
        self.flows.set()
        self._listener.close()
        if self._target:
            self.stop()

    def address(self, name: str) -> str:
        return f"milvus://127.0.0.1:{self.port}/{name}"

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                if not self._target:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._target))
                self._pairs.append((client, server))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self.flows.wait()
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def serve_milvus(folder: Path) -> Iterator[MilvusServer]:
    server = MilvusServer(folder)
    try:
        yield server
    finally:
        server.close()
