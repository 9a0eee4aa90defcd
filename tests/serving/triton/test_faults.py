"""A running `revelator serve` of which a part dies, is gone for a while, or fails.

Questions that need that part get a typed error or a partial answer, others go on, and the executor's process stays the
same through all of it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from revelator import registry
from revelator.client import Client
from revelator.errors import DeadlineExceeded, ServingError, Unavailable
from serving.deploy.deploy import deploy
from serving.triton import control
from serving.triton.running import find_running_server
from tests.conftest import Endpoint

REVELATOR = str(Path(sys.executable).parent / "revelator")
WAIT = 150.0
FAST = "Where is Sarnath?"


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
    registry.connect(f"sqlite:///{registered / 'mlflow.db'}", registered)
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


@pytest.mark.parametrize("model", ["retriever", "revelator", "generator"])
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


def test_told_to_stop_it_answers_what_it_has_begun_and_refuses_what_is_new(world):
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
