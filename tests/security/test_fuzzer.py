"""Thousands of hostile requests to a served home, drawn from a seed, and the state of its processes afterwards.

    pytest tests/security/test_fuzzer.py --requests 20000 --seed 7

Each request is a function of the seed and its number: one that did harm is printed, and found again with `--first`. It
is typed how a request ends: an answer, an error of ours, a refusal of Triton's, but no fault of the server's own and no
silence. `--deadly 0.5` does to half of the gRPC calls what Triton 2.51 does not outlive for long (docs/operations.md).
"""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
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
from serving.home.running import RunningServer, find_running_server
from serving.service.addresses import INNER, read_secret
from tests.conftest import MAX_IN_FLIGHT, Endpoint
from tests.security.attempts import QUESTIONS, SERVICE, Attempt, World, attempt
from tests.serving.operations.metrics_page import total, when

REVELATOR = str(Path(sys.executable).parent / "revelator")
HELD = "What is kept in the archive of Sarnath?"
WORKERS = 6
SECONDS = 60.0  # without an answer a request hangs
FAULT = re.compile(r"ServingError|Traceback|Failed to process the request|\bAt:\n")
GONE = re.compile(r"failed to connect|Socket closed|Connection reset|recvmsg")  # gRPC's words for a server that died
PLAIN = re.compile(  # whole, or as one chunk
    rb"([0-9a-f]+\r\n)?(Invalid HTTP request received\.|Not Found|Method Not Allowed|Unsupported upgrade request\.)?"
    rb"(\r\n0\r\n\r\n)?"
)
PARTS = 4  # of the attack: memory is read after each
NOISE = 8 << 20  # bytes that an allocator may keep of a part
STATES = "revelator_in_flight"


@dataclass
class Home:
    """A home folder that `revelator serve --http` serves and `revelator inspect` stands before."""

    running: RunningServer
    ports: dict[str, int]
    commands: list[subprocess.Popen[str]]
    endpoint: Endpoint
    secret: str

    def processes(self) -> dict[tuple[int, float], psutil.Process]:
        """By number and time of start: the commands, the server, the processes of its models."""
        found = [psutil.Process(command.pid) for command in self.commands]
        found += [child for process in found for child in process.children(recursive=True)]
        return {(process.pid, process.create_time()): process for process in found}

    def memory(self) -> dict[str, int]:
        """Bytes by process, without pages of files: these come and go with the machine's cache."""
        found = {}
        for process in self.processes().values():
            words = process.cmdline()
            model = [Path(word).parents[1].name for word in words if word.endswith("/model.py")]
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
            own = sum(map(int, re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", status, re.MULTILINE)))
            found[next(iter(model), Path(words[-1] if "inspect" in words else words[0]).name)] = own * 1024
        return found


@pytest.fixture(scope="module")
def attacked(registered: Path, index: Path, endpoint: Endpoint, tmp_path_factory: Any) -> Iterator[Home]:
    home: Path = tmp_path_factory.mktemp("attacked")
    registry.connect(registered)
    deploy(home, registry.resolve(registry.NAME, 1))
    endpoint.knowledge |= {"Where is Sarnath?": ["Orland"], "Who directed Lantern Row?": ["Ines Calloway"]}
    options = ["--index", index, "--generator", endpoint.url, "--generator-model", "m", "--http"]
    options += ["--max-in-flight", MAX_IN_FLIGHT]
    with ExitStack() as stack:
        server, _ = stack.enter_context(started("serve", "--home", home, *options))
        running = find_running_server(home)
        assert running is not None
        page, said = stack.enter_context(started("inspect", "--home", home, "--port", 0))
        urls = {"gateway": running.http, "metrics": running.metrics, "inspector": re.findall(r"page +(\S+)", said)[0]}
        ports = {name: urlsplit(url).port or 0 for name, url in urls.items()}
        yield Home(running, ports, [server, page], endpoint, read_secret(home, INNER))


@contextmanager
def started(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command of ours that runs until the block ends, and what it has printed when it is ready."""
    words = [REVELATOR, *map(str, arguments)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        said = ""
        while "stop: Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        try:
            yield process, said
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=SECONDS)


def test_after_a_thousand_hostile_requests_all_is_as_before(attacked: Home, pytestconfig: pytest.Config) -> None:
    requests, seed, first = (pytestconfig.getoption(name) for name in ("--requests", "--seed", "--first"))
    with Client(attacked.running.grpc, timeout=SECONDS) as client:
        before = client.ask(QUESTIONS[0], plan=QUESTIONS[0])
        world = World(_timeless(before.trace.to_json()), attacked.secret, HELD, pytestconfig.getoption("--deadly"))
        attacked.endpoint.gate(HELD, "ledgers")
        processes = attacked.processes()
        ends: Counter[str] = Counter()
        memory: list[dict[str, int]] = []
        for part in range(PARTS):
            numbers = range(first + requests * part // PARTS, first + requests * (part + 1) // PARTS)
            ends += asyncio.run(_attack(attacked, numbers, seed, world))
            wait_until_free(attacked)
            memory.append(attacked.memory())
        assert attacked.processes().keys() == processes.keys()
        print(f"\n{dict(ends.most_common())}")
        grown = {}
        for name in memory[0]:
            sizes = [read[name] for read in memory]
            print(f"{name}: {', '.join(f'{size / 1e6:.1f}' for size in sizes)} MB")
            # A leak grows in every part. A peak, as where large requests meet, comes once, and an allocator keeps it.
            if (growth := min(late - early for early, late in pairwise(sizes))) > NOISE:
                grown[name] = growth
        assert not grown, f"seed {seed}: {grown} bytes more in each part"
        asyncio.run(_fill(attacked))
        after = client.ask(QUESTIONS[0], plan=QUESTIONS[0])
        assert (after.answer, after.outcome, after.trace.plan) == (before.answer, before.outcome, before.trace.plan)


def _timeless(given: Any) -> Any:
    """A trace without what the clock said, so that requests are the same in each run."""
    if isinstance(given, dict):
        return {name: _timeless(value) for name, value in given.items()}
    if isinstance(given, list):
        return list(map(_timeless, given))
    return 0.0 if isinstance(given, float) else given


def wait_until_free(home: Home) -> None:
    when(home.running.metrics, lambda page: total(page, STATES) == 0, SECONDS)


async def _attack(home: Home, numbers: range, seed: int, world: World) -> Counter[str]:
    """How many requests ended how. Fails with those that ended as none may."""
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    recent: deque[Attempt] = deque(maxlen=2 * WORKERS)
    left = iter(numbers)
    async with grpc.aio.insecure_channel(
        home.running.grpc, options=[("grpc.max_receive_message_length", -1)]
    ) as channel:

        async def work() -> None:
            for number in left:
                asked = attempt(seed, number, world)
                recent.append(asked)
                try:
                    async with asyncio.timeout(SECONDS):
                        end = await _put(asked, home, channel)
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


async def _put(asked: Attempt, home: Home, channel: grpc.aio.Channel) -> str:
    """How the request ended. Raises AssertionError where it may not end so."""
    if not asked.target.startswith(SERVICE):
        return await _put_over_http(asked, home.ports[asked.target])
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
    assert end in asked.ends, f"ended with {end}: {said}"
    for text in said:
        assert '"code": "INTERNAL"' not in text, f"ended with {end}: {text}"
        assert not (fault := FAULT.search(text)), f"ended with {end}: {text[max(0, fault.start() - 300) :][:1000]}"
    return end


async def _call(asked: Attempt, channel: grpc.aio.Channel, said: list[str]) -> str:
    if not asked.target.endswith("ModelStreamInfer"):
        reply = await channel.unary_unary(asked.target)(asked.messages[0], metadata=asked.metadata)
        if asked.target.endswith("ModelInfer"):
            said += _outputs(service_pb2.ModelInferResponse.FromString(reply))
        return "OK"

    call = channel.stream_stream(asked.target)(metadata=asked.metadata)
    with suppress(grpc.aio.InternalError):  # the call has ended meanwhile: how, is said when it is read
        for message in asked.messages:
            await call.write(message)
        await call.done_writing()
    while (reply := await call.read()) is not grpc.aio.EOF:
        part = service_pb2.ModelStreamInferResponse.FromString(reply)
        said += [part.error_message] if part.error_message else _outputs(part.infer_response)
    return "OK"


def _outputs(response: service_pb2.ModelInferResponse) -> list[str]:
    return [raw[4:].decode(errors="replace") for raw in response.raw_output_contents]


async def _put_over_http(asked: Attempt, port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reply, end = b"", "none"
    try:
        writer.write(asked.messages[0])
        if not asked.whole:
            writer.write_eof()
        while part := await reader.read(1 << 16):
            reply += part
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
    assert status < "400" or b'"error"' in body or PLAIN.fullmatch(body), f"ended with {reply[:1000]!r}"
    return status


async def _fill(home: Home) -> None:
    """As many questions as may be in flight are taken in at once, by each executor, and then answered.

    They allow so much time that none is refused: the attack has held questions for long, so the executors expect that
    of these."""
    gate = home.endpoint.gates[HELD]
    async with AsyncClient(home.running.grpc, timeout=10 * SECONDS) as client:

        async def follow() -> str:
            return [event.kind async for event in client.stream(HELD, strategy="single")][-1]

        questions = [asyncio.create_task(client.ask(HELD, strategy="single")) for _ in range(MAX_IN_FLIGHT)]
        streams = [asyncio.create_task(follow()) for _ in range(MAX_IN_FLIGHT)]
        for model in ("executor", "executor_stream"):
            full = lambda page, model=model: total(page, STATES, model=model) == MAX_IN_FLIGHT  # noqa: E731
            await asyncio.to_thread(when, home.running.metrics, full, SECONDS)
        gate.set()
        assert {answer.answers for answer in await asyncio.gather(*questions)} == {("ledgers",)}
        assert set(await asyncio.gather(*streams)) == {"finished"}
