"""What several test packages share: a small served world, and one service in front of a real Triton server for all
tests that need one."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from serving.service.addresses import Ports
from tests.chat_server import write_reading
from tests.chromium import browser  # noqa: F401  a fixture
from tests.served_base import served_base, transformers_url, vllm, vllm_url  # noqa: F401  fixtures
from tests.served_llm import llm_url  # noqa: F401
from tests.serving.toy_model import PASSAGES, write_adapter, write_base
from tests.tracking_server import tracking_server  # noqa: F401  a fixture

if TYPE_CHECKING:
    from serving.service.questions import Questions
    from serving.triton.server import TritonServer

# Laws are tried on the same examples at each run, so a commit passes or fails whoever runs it.
# HYPOTHESIS_PROFILE=search draws new ones, and more of them.
# A busy machine is slow: no time decides, neither of one example nor of drawing them.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", unhurried, derandomize=True)
settings.register_profile("search", unhurried, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# MLflow asks for its telemetry's settings in a thread, which once waited for ever for an import in the first one.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ.pop("MLFLOW_TRACKING_URI", None)  # tests register in homes of their own, or at a server that they name

# A run in the background of a shell ignores Ctrl-C, and so would each program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    fuzzer = parser.getgroup("fuzzer", "tests/security/test_fuzzer.py")
    fuzzer.addoption("--requests", type=int, default=1_000, help="hostile requests")
    fuzzer.addoption("--seed", type=int, default=1, help="that they are drawn from")
    fuzzer.addoption("--first", type=int, default=0, help="the number of the first")


# What collecting makes is never garbage: without the collector it takes a quarter less.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first, so that no worker is left with one while the others have nothing to do. Long
    are those that may take longer than the others (their `timeout`), then those that need the server, then those of
    `training`, which is last by name."""
    rank: dict[Path, tuple[float, bool]] = {}
    for item in items:
        mark, needs_server = item.get_closest_marker("timeout"), "served" in getattr(item, "fixturenames", ())
        own = float(mark.args[0]) if mark else 0.0, needs_server
        rank[item.path] = max(own, rank.get(item.path, own))
    items.sort(key=lambda item: (rank[item.path], item.path.parent), reverse=True)


@pytest.fixture(scope="session", autouse=True)
def ports_of_its_own(worker_id: str) -> Iterator[None]:
    """Test processes side by side find Triton's own ports taken, so that no two servers start on them at once."""
    with socket.socket() as taken:
        if worker_id != "master":
            with suppress(OSError):  # taken already: as good
                taken.bind(("127.0.0.1", Ports().http))
        yield


@pytest.fixture(scope="module", autouse=True)
def environment_of_its_own() -> Iterator[None]:
    """Commands that a test calls in this process set variables, and MLflow keeps its store in one and in itself: what a
    file of tests has set ends with it."""
    before = dict(os.environ)
    yield
    if "mlflow" in sys.modules:
        import mlflow

        mlflow.set_tracking_uri(None)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def registered(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder whose registry holds versions 1 and 2 of the revelator; 1 is the champion. Read only."""
    from revelator import promotions, registry

    home = tmp_path_factory.mktemp("registered")
    registry.connect(home)
    for seed in (1, 2):
        registry.register_adapter(write_adapter(home / "adapters" / str(seed), base, seed))
    promotions.move(registry.NAME, 1, promotions.read_standing(registry.NAME))
    return home


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from serving.retrieval import build_index

    folder = tmp_path_factory.mktemp("index")
    rows = [{"id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(PASSAGES)]
    (folder / "passages.jsonl").write_text("\n".join(map(json.dumps, rows)))
    build_index([folder / "passages.jsonl"], folder / "bm25")
    return folder / "bm25"


@dataclass
class Endpoint:
    """An OpenAI-compatible server on loopback that answers from `knowledge`, by the question in the message.

    A question in `gates` is answered once its event is set, or never if the client leaves before; `started` and `left`
    tell of both. A question in `down` is refused with status 503.
    """

    knowledge: dict[str, list[str]] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    started: dict[str, threading.Event] = field(default_factory=dict)
    left: dict[str, threading.Event] = field(default_factory=dict)
    url: str = ""

    def gate(self, question: str, *answers: str) -> None:
        self.knowledge[question] = list(answers)
        for events in (self.gates, self.started, self.left):
            events[question] = threading.Event()

    def reply(self, body: dict, connection: socket.socket) -> tuple[int, dict]:
        message = body["messages"][-1]["content"]
        question = next((q for q in self.knowledge if json.dumps(q, ensure_ascii=False) in message), "")
        if question in self.down:
            return 503, {"error": {"message": "down for maintenance"}}
        if question in self.gates:
            self.started[question].set()
            self._hold(question, connection)
        answers = self.knowledge.get(question, [])
        content = write_reading(*answers)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
        return 200, {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }

    def _hold(self, question: str, connection: socket.socket) -> None:
        while not self.gates[question].wait(0.05):
            readable, _, _ = select.select([connection], [], [], 0)
            if readable and connection.recv(1, socket.MSG_PEEK) == b"":
                self.left[question].set()
                return


@pytest.fixture(scope="session")
def endpoint() -> Iterator[Endpoint]:
    library = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, value = library.reply(body, self.connection)
            reply = json.dumps(value).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)
            except ConnectionError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        library.url = f"http://127.0.0.1:{server.server_port}/v1"
        yield library
        for gate in library.gates.values():
            gate.set()
        server.shutdown()


@dataclass
class Served:
    """The running service: home folder, gRPC and HTTP address, its questions, the reader's endpoint, the index."""

    home: Path
    url: str
    http: str
    questions: Questions
    endpoint: Endpoint
    index: Path

    @property
    def triton(self) -> TritonServer:
        """The server behind the service."""
        host = self.questions.models.host
        assert host and host.server
        return host.server


MAX_IN_FLIGHT = 4


@pytest.fixture(scope="session")
def served(registered: Path, index: Path, endpoint: Endpoint) -> Iterator[Served]:
    """One service for the whole session, whose models a Triton server hosts: version 1 of the revelator,
    `MAX_IN_FLIGHT` questions at a time. The endpoint reads and merges nothing, and nothing is answered from memory,
    so that a test can count what it was asked."""
    from revelator import registry
    from serving.deploy.deploy import deploy
    from serving.home.configure import configure
    from tests.service_thread import serve_in_thread

    registry.connect(registered)
    deploy(registered, registry.resolve(registry.NAME, registry.CHAMPION))
    reader = {"generator": endpoint.url, "generator_model": "m"}
    config = configure(registered, index=index, **reader, max_in_flight=MAX_IN_FLIGHT, text=False, answer_cache=False)
    with serve_in_thread(registered, config, place="local") as (questions, running):
        yield Served(registered, running.grpc, running.http, questions, endpoint, index)
