"""A running `revelator serve` of which a part dies, is gone for a while, or fails.

Questions that need that part get a typed error or a partial answer, others go on, and the executor's process stays the
same through all of it. Where the executor's own process is killed, each question inside fails soon, typed, and later
ones are answered: Triton 2.51 never answers what was inside a dead process, so the clients send probes
(`revelator.retries`).
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from revelator import registry
from revelator.client import AsyncClient, Client
from revelator.errors import DeadlineExceeded, Overloaded, ServingError, Unavailable
from revelator.files import sha256_text
from revelator.trace import Event
from serving.deploy.deploy import deploy
from serving.home.running import find_running_server
from serving.service import control
from serving.triton.server import SHARED_MEMORY
from tests.conftest import Endpoint
from tests.serving.operations.metrics_page import read, total

REVELATOR = str(Path(sys.executable).parent / "revelator")
WAIT = 150.0
FAST = "Where is Sarnath?"
SOON = 5.0  # seconds; two on a machine with nothing else at work, and far from the client's own timeout
QUESTIONS = 4


@dataclass
class Serving:
    process: subprocess.Popen[str]
    home: Path
    url: str
    metrics: str
    server: psutil.Process
    endpoint: Endpoint

    def stubs(self, model: str) -> list[psutil.Process]:
        found = [(child, child.as_dict(["cmdline"], ad_value=[])["cmdline"]) for child in self.server.children()]
        return [child for child, command in found if any(f"/{model}/" in argument for argument in command)]


@pytest.fixture(scope="module")
def serving(registered, index, endpoint, tmp_path_factory) -> Iterator[Serving]:
    home = tmp_path_factory.mktemp("faults")
    registry.connect(registered)
    deploy(home, registry.resolve(registry.NAME, 1))
    command = [REVELATOR, "serve", "--home", home, "--index", index, "--generator", endpoint.url]
    process = subprocess.Popen([*map(str, command), "--generator-model", "m"], stdout=subprocess.DEVNULL, text=True)
    try:
        wait_until(lambda: find_running_server(home))
        running = find_running_server(home)
        assert running is not None
        yield Serving(process, home, running.grpc, running.metrics, psutil.Process(running.server_pid), endpoint)
    finally:
        process.terminate()
        process.wait(WAIT)


@pytest.fixture
def world(serving: Serving) -> Iterator[Serving]:
    """The serving world; whatever a test does to it, the executor is the process that it was."""
    serving.endpoint.knowledge |= {FAST: ["Orland"]}
    executor = serving.stubs("executor")
    yield serving
    for gate in serving.endpoint.gates.values():
        gate.set()
    serving.endpoint.gates.clear()
    serving.endpoint.down.clear()
    assert serving.process.poll() is not None or serving.stubs("executor") == executor


def shared_memory(home: Path) -> list[Path]:
    return list(SHARED_MEMORY.glob(f"revelator-{sha256_text(str(home / 'model_repo'))[:16]}-*"))


def wait_until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < end, "not within the time"
        time.sleep(0.1)


def answers(client: Client, question: str, **options) -> tuple[str, ...] | None:
    """None while a service is down."""
    try:
        return client.ask(question, **options).answers or None
    except (Unavailable, DeadlineExceeded):
        return None


@pytest.mark.parametrize("model", ["retriever", "revelator"])
def test_a_model_killed_at_work_fails_what_needs_it_and_comes_back_by_itself(world, model):
    """Of a question in flight one part is answered, one is being read; another question comes meanwhile. (What is read
    depends on what is answered: a process that is killed while it hands over an answer takes Triton 2.51 with it.)"""
    first, held = f"Who made the {model} of Lantern Row?", f"What did Ines Calloway lose in the {model}?"
    plan = f"{first} + {first} * What did {{person}} lose in the {model}? * Where is {{thing}}?"
    world.endpoint.gate(held, "a ferry")
    world.endpoint.knowledge[first] = ["Ines Calloway"]
    with Client(world.url, timeout=WAIT) as client:
        pending = client.submit(held, plan=plan)
        assert world.endpoint.started[held].wait(WAIT)
        world.stubs(model)[0].kill()
        assert answers(client, FAST, strategy="single") in (None, ("Orland",))
        world.endpoint.gates[held].set()
        answer = pending.result(WAIT)
        assert answer.outcome in ("partial", "answered") and "Ines Calloway" in answer.answer
        assert not answer.trace.deadline_exceeded
        wait_until(lambda: answers(client, FAST, strategy="single") == ("Orland",))


def test_a_retriever_that_is_gone_for_a_while_is_asked_again_when_it_is_back(world):
    known = "Is Orland a country?"
    world.endpoint.knowledge[known] = ["yes"]
    with Client(world.url, timeout=WAIT) as client:
        control.unload(world.home, world.url, "retriever")
        for _ in range(8):  # more than the circuit breaker lets through
            with pytest.raises(Unavailable, match="retriever"):
                client.ask(FAST, strategy="single")
            assert client.ask(known, strategy="direct").answers == ("yes",)
        control.load(world.home, world.url, "retriever", 1)
        wait_until(lambda: answers(client, FAST, strategy="single") == ("Orland",))


def test_an_endpoint_that_fails_leaves_the_other_parts_of_a_question_and_is_asked_again(world):
    bad = "Who sank the ferry of Port Velm?"
    world.endpoint.knowledge |= {bad: ["nobody"]}
    world.endpoint.down.add(bad)
    with Client(world.url, timeout=WAIT) as client:
        answer = client.ask("Both?", plan=f"{FAST} + {bad}", strategy="compile")
        assert answer.outcome == "partial" and answer.answers == ("Orland",)
        assert "503" in next(node.error for node in answer.trace.nodes if node.asked == bad)
        for _ in range(6):
            with pytest.raises(Unavailable):
                client.ask(bad, strategy="single")
        world.endpoint.down.clear()
        wait_until(lambda: answers(client, bad, strategy="single") == ("nobody",))


@pytest.fixture
def held(serving: Serving):
    """A question that is not answered before its gate opens."""
    question = "What is kept in the archive of Sarnath?"
    serving.endpoint.knowledge[FAST] = ["Orland"]
    serving.endpoint.gate(question, "ledgers")
    with Client(serving.url, timeout=WAIT) as client:
        wait_until(lambda: answers(client, FAST, strategy="single") and is_streamed(client, FAST))
    wait_until(lambda: len(serving.stubs("executor")) == len(serving.stubs("executor_stream")) == 1)
    yield question
    serving.endpoint.gates[question].set()
    serving.endpoint.gates.clear()


def is_streamed(client: Client, question: str) -> bool:
    with suppress(Unavailable):
        return [event.kind for event in client.stream(question, strategy="single")][-1] == "finished"
    return False


def kill(serving: Serving, model: str) -> float:
    [process] = serving.stubs(model)
    process.kill()
    return time.monotonic()


def is_soon(killed: float) -> bool:
    print(f"after {time.monotonic() - killed:.2f} s")
    return time.monotonic() - killed < SOON


def test_questions_of_a_blocking_client_fail_soon_and_later_ones_are_answered(serving, held):
    with Client(serving.url, timeout=WAIT) as client, ThreadPoolExecutor(QUESTIONS) as threads:
        pending = [client.submit(held, strategy="single") for _ in range(QUESTIONS)]
        pending += [threads.submit(client.ask, held, strategy="single") for _ in range(QUESTIONS)]
        assert serving.endpoint.started[held].wait(WAIT)
        wait_until(lambda: in_flight(serving, "executor") == 2 * QUESTIONS)
        killed = kill(serving, "executor")
        for future in pending:
            with pytest.raises(Unavailable, match="process died"):
                future.result(WAIT)
        assert is_soon(killed)
        wait_until(lambda: answers(client, FAST, strategy="single") == ("Orland",))
        wait_until(lambda: in_flight(serving, "executor") == 0)


async def test_questions_that_come_while_a_dead_process_is_replaced_are_not_lost(serving):
    """Triton 2.51 hands them to the dead process, which refuses one a second: the last would wait for minutes."""
    serving.endpoint.knowledge |= {FAST: ["Orland"]}
    async with AsyncClient(serving.url, timeout=120) as client:
        kill(serving, "executor")
        asked = [asyncio.create_task(client.ask(FAST, strategy="single"))]
        while not any(task.done() and not task.exception() for task in asked):
            await asyncio.sleep(0.02)
            asked.append(asyncio.create_task(client.ask(FAST, strategy="single")))
        ends = await asyncio.gather(*asked, return_exceptions=True)
    failed = [end for end in ends if isinstance(end, BaseException)]
    answered = [end for end in ends if not isinstance(end, BaseException)]
    refused = (Unavailable, Overloaded)  # where replacing takes long, more have come by then than may be in flight
    assert len(failed) > 10 and not [repr(error) for error in failed if not isinstance(error, refused)]
    assert answered and all(answer.answers == ("Orland",) for answer in answered)


async def test_questions_and_streams_of_an_asyncio_client_fail_soon_and_retries_are_answered(serving, held):
    async with AsyncClient(serving.url, timeout=WAIT) as client, AsyncClient(serving.url, WAIT, 20) as patient:

        async def follow(seen: list[Event]) -> None:
            async for event in client.stream(held, strategy="single"):
                seen.append(event)

        seen: list[Event] = []
        tasks = [asyncio.create_task(client.ask(held, strategy="single")) for _ in range(QUESTIONS)]
        streams = [asyncio.create_task(follow(seen)) for _ in range(QUESTIONS)]
        again = asyncio.create_task(patient.ask(held, strategy="single"))
        assert await asyncio.to_thread(serving.endpoint.started[held].wait, WAIT)
        await asyncio.to_thread(wait_until, lambda: in_flight(serving, "executor") == QUESTIONS + 1)
        await asyncio.to_thread(wait_until, lambda: in_flight(serving, "executor_stream") == QUESTIONS)
        for model, waiting in (("executor", tasks), ("executor_stream", streams)):
            killed = kill(serving, model)
            for error in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(error, Unavailable) and "process died" in error.message
            assert is_soon(killed)
        assert {event.kind for event in seen} >= {"begun", "retrieved"}
        serving.endpoint.gates[held].set()
        assert (await again).answers == ("ledgers",)


def test_a_blocking_stream_fails_soon(serving, held):
    with Client(serving.url, timeout=WAIT) as client, ThreadPoolExecutor(1) as thread:
        streamed = thread.submit(lambda: list(client.stream(held, strategy="single")))
        assert serving.endpoint.started[held].wait(WAIT)
        killed = kill(serving, "executor_stream")
        with pytest.raises(Unavailable, match="process died"):
            streamed.result(WAIT)
        assert is_soon(killed)


@pytest.mark.parametrize("model", ["executor", "executor_stream"])
def test_a_model_that_is_unloaded_or_loaded_anew_answers_what_it_has_begun(serving, held, model):
    """Clients send probes meanwhile: there is no model, and then another process that does not know the question."""

    def ask(client: Client) -> object:
        if model == "executor":
            return client.ask(held, strategy="single").answers
        return list(client.stream(held, strategy="single"))[-1].changes["answers"]

    with Client(serving.url, timeout=WAIT) as client, ThreadPoolExecutor(2) as threads:
        pending = threads.submit(ask, client)
        assert serving.endpoint.started[held].wait(WAIT)
        unloading = threads.submit(control.unload, serving.home, serving.url, model)
        wait_until(lambda: not control.is_ready(serving.url, model, 1))
        time.sleep(3)  # several probes
        assert not pending.done()
        loading = ThreadPoolExecutor(1).submit(control.load, serving.home, serving.url, model, 1)
        time.sleep(3)
        assert not pending.done(), pending.exception()
        serving.endpoint.gates[held].set()
        assert tuple(pending.result(WAIT)) == ("ledgers",)
        for control_call in (unloading, loading):
            with suppress(Unavailable):
                control_call.result(WAIT)
        control.load(serving.home, serving.url, model, 1)


def in_flight(serving: Serving, model: str) -> float:
    return total(read(serving.metrics), "revelator_in_flight", model=model)


def test_told_to_stop_it_answers_what_it_has_begun_refuses_what_is_new_and_leaves_nothing(world):
    children = psutil.Process(world.process.pid).children(recursive=True)
    assert len(children) >= 5 and shared_memory(world.home)  # the server and a process for each model
    held = "What is shown last in Lantern Row?"
    world.endpoint.gate(held, "Tessaly")
    world.endpoint.knowledge["Where is Tessaly?"] = ["Lantern Row"]
    with Client(world.url, timeout=WAIT) as client:
        pending = client.submit(held, plan=f"{held} * Where is {{it}}?")
        assert world.endpoint.started[held].wait(WAIT)
        world.process.send_signal(signal.SIGTERM)

        def refused() -> bool:
            try:
                client.ask(FAST, strategy="single", deadline_ms=5_000)
            except ServingError as error:
                assert isinstance(error, Unavailable)
                return True
            return False

        wait_until(refused)
        world.endpoint.gates[held].set()  # its second leaf is searched, judged and read after the stop
        answer = pending.result(WAIT)
    assert (answer.answers, answer.outcome) == (("Lantern Row",), "answered")
    assert world.process.wait(WAIT) == 0
    assert psutil.wait_procs(children, timeout=WAIT)[1] == [] and shared_memory(world.home) == []
    assert not (world.home / "serve.json").exists() and find_running_server(world.home) is None
