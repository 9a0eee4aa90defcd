"""Thousands of hostile requests to a service, over gRPC and HTTP, drawn from a seed, and its state afterwards.

    pytest tests/security/test_fuzzer.py --requests 20000 --seed 7

Each request is a function of the seed and its number: one that did harm is printed, and found again with `--first`. It
is typed how a request ends: an answer or an error of ours, but no fault of the service's own and no silence. Meanwhile
an honest client is answered, and connections that say nothing are open; afterwards the same processes are there, no
place is taken, and their memory is as it was.
"""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import psutil
import pytest
from tritonclient.grpc import service_pb2

from revelator import registry
from revelator.client import AsyncClient, Client
from serving.deploy.deploy import deploy
from serving.home.running import find_running_server
from tests.conftest import MAX_IN_FLIGHT, Endpoint, Served
from tests.security.attempts import QUESTIONS, SERVICE, Attempt, World, attempt
from tests.serving.operations.metrics_page import total, when

REVELATOR = str(Path(sys.executable).parent / "revelator")
HELD = "What is kept in the archive of Sarnath?"
WORKERS = 6
SILENT = 200  # connections to each port that say nothing
SECONDS = 60.0  # without an answer a request hangs
FAULT = re.compile(r"ServingError|Traceback|Failed to process the request|\bAt:\n")
GONE = re.compile(r"failed to connect|Socket closed|Connection reset|recvmsg")  # gRPC's words for a server that died
CUT = "Internal error from Core"  # grpc.aio's own, where the server ended a stream that it was still writing to
PLAIN = re.compile(  # whole, or as one chunk
    rb"([0-9a-f]+\r\n)?(Invalid HTTP request received\.|Not Found|Method Not Allowed|Unsupported upgrade request\.)?"
    rb"(\r\n0\r\n\r\n)?"
)
PARTS = 4  # of the attack: memory is read after each
GROWTH = 64 << 20  # bytes of a process, from the first part to the last, that its allocator may keep of large requests
STATE = "revelator_in_flight"


@dataclass
class Target:
    """A service under attack: its two fronts, and how the processes behind them are found."""

    grpc: str
    http: str
    endpoint: Endpoint
    processes: Callable[[], list[psutil.Process]]

    @property
    def metrics(self) -> str:
        return f"{self.http}/metrics"

    def identify(self) -> set[tuple[int, float]]:
        return {(process.pid, process.create_time()) for process in self.processes()}

    def read_memory(self) -> dict[int, int]:
        """Bytes by process, without pages of files: these come and go with the machine's cache."""
        found = {}
        for process in self.processes():
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            own = sum(map(int, re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE)))
            found[process.pid] = own * 1024
        return found


def find_family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@pytest.fixture(scope="module")
def with_its_models(registered: Path, index: Path, endpoint: Endpoint, tmp_path_factory: Any) -> Iterator[Target]:
    """`revelator serve` as a process of its own, which holds the models."""
    home: Path = tmp_path_factory.mktemp("attacked")
    registry.connect(registered)
    deploy(home, registry.resolve(registry.NAME, 1))
    options = ["--index", index, "--generator", endpoint.url, "--generator-model", "m"]
    (home / "serving.yaml").write_text(f"text: false\nmax_in_flight: {MAX_IN_FLIGHT}\n")
    with started("serve", "--home", home, *options) as process:
        running = find_running_server(home)
        assert running is not None and running.pid == process.pid
        yield Target(running.grpc, running.http, endpoint, lambda: find_family(process.pid))


@pytest.fixture
def over_triton(served: Served) -> Iterator[Target]:
    """The service whose models a Triton server hosts. It runs in this process, so that server's memory is read."""
    yield Target(served.url, served.http, served.endpoint, lambda: find_family(served.triton.pid))
    assert served.questions.admission.in_flight == 0 and served.questions.admission.waiting == 0


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A command of ours, once it is ready, until the block ends."""
    words = [REVELATOR, *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        said = ""
        while "stop: Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)


@pytest.mark.timeout(900)
def test_after_a_thousand_hostile_requests_all_is_as_before(with_its_models: Target, pytestconfig) -> None:
    requests, seed, first = (pytestconfig.getoption(name) for name in ("--requests", "--seed", "--first"))
    attack(with_its_models, range(first, first + requests), seed)


@pytest.mark.timeout(900)
def test_nor_do_hostile_requests_reach_a_triton_server_behind_it(over_triton: Target, pytestconfig) -> None:
    requests, seed, first = (pytestconfig.getoption(name) for name in ("--requests", "--seed", "--first"))
    attack(over_triton, range(first, first + requests // 4), seed)


def attack(target: Target, numbers: range, seed: int) -> None:
    """Sends the requests of these numbers. Fails if one ends as none may, or if the service is not as before."""
    target.endpoint.knowledge |= {"Where is Sarnath?": ["Orland"], "Who directed Lantern Row?": ["Ines Calloway"]}
    with ExitStack() as stack:
        client = stack.enter_context(Client(target.grpc, timeout=SECONDS))
        for address in (target.grpc, urlsplit(target.http).netloc):
            host, _, port = address.rpartition(":")
            for _ in range(SILENT):
                stack.enter_context(closing(socket.create_connection((host, int(port)), timeout=SECONDS)))
        before = client.ask(QUESTIONS[0], plan=QUESTIONS[0])
        world = World(_timeless(before.trace.to_json()), HELD)
        target.endpoint.gate(HELD, "ledgers")
        processes, ends = target.identify(), Counter[str]()
        memory: list[dict[int, int]] = []
        for part in range(PARTS):
            share = numbers[len(numbers) * part // PARTS : len(numbers) * (part + 1) // PARTS]
            ends += asyncio.run(_attack(target, share, seed, world))
            when(target.metrics, lambda page: total(page, STATE, model="executor") == 0, SECONDS)
            memory.append(target.read_memory())
        assert target.identify() == processes, "each process is still there, and no other"
        print(f"\n{dict(ends.most_common())}")
        for pid in memory[0]:
            sizes = [read[pid] for read in memory]
            print(f"process {pid}: {', '.join(f'{size / 1e6:.1f}' for size in sizes)} MB")
            assert sizes[-1] - sizes[0] < GROWTH, f"seed {seed}: process {pid} has grown"
        asyncio.run(_fill(target))
        after = client.ask(QUESTIONS[0], plan=QUESTIONS[0])
        assert (after.answer, after.outcome, after.trace.plan) == (before.answer, before.outcome, before.trace.plan)


def _timeless(given: Any) -> Any:
    """A trace without what the clock said, so that requests are the same in each run."""
    if isinstance(given, dict):
        return {name: _timeless(value) for name, value in given.items()}
    if isinstance(given, list):
        return list(map(_timeless, given))
    return 0.0 if isinstance(given, float) else given


async def _attack(target: Target, numbers: range, seed: int, world: World) -> Counter[str]:
    """How many requests ended how. Fails with those that ended as none may."""
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    recent: deque[Attempt] = deque(maxlen=2 * WORKERS)
    left = iter(numbers)
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    own = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]  # not the honest client's connection
    async with grpc.aio.insecure_channel(target.grpc, options=[*sizes, *own]) as channel, _honest_client(target):

        async def work() -> None:
            for number in left:
                asked = attempt(seed, number, world)
                recent.append(asked)
                try:
                    async with asyncio.timeout(SECONDS):
                        end = await _put(asked, target, channel)
                except AssertionError as error:
                    wrong.append(f"{asked}\n  {str(error).partition(chr(10) + 'assert ')[0]}")
                    end = "WRONG"
                except TimeoutError:
                    wrong.append(f"{asked}\n  was not answered within {SECONDS} s")
                    end = "HANGS"
                ends[f"{asked.target.removeprefix(SERVICE)} {end}"] += 1
                if len(wrong) > 20 or end == "GONE":
                    return

        await asyncio.gather(*(work() for _ in range(WORKERS)))
    if any(key.endswith("GONE") for key in ends):
        wrong.append("the server died; the last requests were these:\n" + "\n".join(map(str, recent)))
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)
    return ends


@asynccontextmanager
async def _honest_client(target: Target) -> Any:
    """Asks one question after the other, and asks again where all places are taken. It is answered each time."""
    ended = asyncio.Event()
    async with AsyncClient(target.grpc, timeout=SECONDS, retries=100) as client:

        async def ask() -> int:
            count = 0
            while not ended.is_set() or not count:
                answer = await client.ask(QUESTIONS[0], strategy="single")
                assert answer.answers == ("Orland",)
                count += 1
            return count

        asking = asyncio.create_task(ask())
        try:
            yield
        finally:
            ended.set()
        assert await asking


async def _put(asked: Attempt, target: Target, channel: grpc.aio.Channel) -> str:
    """How the request ended. Raises AssertionError where it may not end so."""
    if not asked.target.startswith(SERVICE):
        return await _put_over_http(asked, urlsplit(target.http).port or 0)
    said: list[str] = []
    try:
        async with asyncio.timeout(asked.leaves):
            end = await _call(asked, channel, said)
    except TimeoutError:
        end = "LEFT"
    except grpc.aio.AioRpcError as error:
        end = error.code().name
        said.append(error.details() or "")
        if GONE.search(said[-1]):
            return "GONE"
        if said[-1] == CUT:
            return "CUT"
    assert end in asked.ends, f"ended with {end}: {said}"
    for text in said:
        assert '"code": "INTERNAL"' not in text, f"ended with {end}: {text}"
        assert not (fault := FAULT.search(text)), f"ended with {end}: {text[max(0, fault.start() - 300) :][:1000]}"
    return end


async def _call(asked: Attempt, channel: grpc.aio.Channel, said: list[str]) -> str:
    options = {"metadata": asked.metadata, "compression": asked.compression}
    if not asked.target.endswith("ModelStreamInfer"):
        reply = await channel.unary_unary(asked.target)(asked.messages[0], **options)
        if asked.target.endswith("ModelInfer"):
            said += _outputs(service_pb2.ModelInferResponse.FromString(reply))
        return "OK"

    call = channel.stream_stream(asked.target)(**options)

    async def write() -> None:
        with suppress(grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            for message in asked.messages:  # the call may end meanwhile: how, is said when it is read
                await call.write(message)
            await call.done_writing()

    writing = asyncio.create_task(write())
    try:
        while (reply := await call.read()) is not grpc.aio.EOF:
            part = service_pb2.ModelStreamInferResponse.FromString(reply)
            said += [part.error_message] if part.error_message else _outputs(part.infer_response)
        if (code := await call.code()) is not grpc.StatusCode.OK:
            said.append(await call.details())
        return code.name
    finally:
        writing.cancel()
        call.cancel()


def _outputs(response: service_pb2.ModelInferResponse) -> list[str]:
    return [raw[4:].decode(errors="replace") for raw in response.raw_output_contents]


async def _put_over_http(asked: Attempt, port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reply, end = b"", "none"
    try:
        async with asyncio.timeout(asked.leaves):
            writer.write(asked.messages[0])
            await writer.drain()
            if not asked.whole and asked.leaves is None:
                writer.write_eof()
            while part := await reader.read(1 << 16):
                reply += part
    except TimeoutError:
        if asked.leaves is None:
            raise
        end = "LEFT"
    except ConnectionError:
        end = "reset"  # a server that refuses what it has not read whole resets, and the reply may be lost by that
    finally:
        writer.close()
    if not reply and (end == "reset" or not asked.whole):
        return end
    head, _, body = reply.partition(b"\r\n\r\n")
    status = head[9:12].decode()
    assert status.isdigit() and status != "500", f"ended with {reply[:1000]!r}"
    assert not FAULT.search(body.decode(errors="replace")), f"ended with {reply[:1000]!r}"
    assert status < "400" or b'"error"' in body or PLAIN.fullmatch(body) or end == "reset", (
        f"ended with {reply[:1000]!r}"
    )
    return status


async def _fill(target: Target) -> None:
    """As many questions as may be in flight are taken in at once, half of them over streams, and then answered.

    They allow so much time that none is refused: the attack has held questions for long, so admission expects that of
    these."""
    gate = target.endpoint.gates[HELD]
    async with AsyncClient(target.grpc, timeout=10 * SECONDS) as client:

        async def follow() -> tuple[str, ...]:
            return tuple([event async for event in client.stream(HELD, strategy="single")][-1].changes["answers"])

        async def ask() -> tuple[str, ...]:
            return (await client.ask(HELD, strategy="single")).answers

        asked = [asyncio.create_task([ask, follow][number % 2]()) for number in range(MAX_IN_FLIGHT)]
        full = lambda page: total(page, STATE, model="executor") == MAX_IN_FLIGHT  # noqa: E731
        await asyncio.to_thread(when, target.metrics, full, SECONDS)
        gate.set()
        assert set(await asyncio.gather(*asked)) == {("ledgers",)}
