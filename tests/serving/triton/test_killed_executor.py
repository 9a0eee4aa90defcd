"""The executor's own process killed while it works on questions: each fails soon, typed, and later ones are answered.

Triton 2.51 never answers what was inside a dead process; the clients send probes (`revelator.calls`).
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from revelator.client import AsyncClient, Client
from revelator.errors import Unavailable
from revelator.trace import Event
from serving.triton import control
from tests.serving.operations.metrics_page import read, total
from tests.serving.triton.test_faults import FAST, WAIT, Serving, answers, serving, wait_until  # noqa: F401  a fixture

SOON = 5.0  # seconds; two on a machine with nothing else at work, and far from the client's own timeout
QUESTIONS = 4


@pytest.fixture
def held(serving: Serving):  # noqa: F811
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


def kill(serving: Serving, model: str) -> float:  # noqa: F811
    [process] = serving.stubs(model)
    process.kill()
    return time.monotonic()


def is_soon(killed: float) -> bool:
    print(f"after {time.monotonic() - killed:.2f} s")
    return time.monotonic() - killed < SOON


def test_questions_of_a_blocking_client_fail_soon_and_later_ones_are_answered(serving, held):  # noqa: F811
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


async def test_questions_and_streams_of_an_asyncio_client_fail_soon_and_retries_are_answered(serving, held):  # noqa: F811
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


def test_a_blocking_stream_fails_soon(serving, held):  # noqa: F811
    with Client(serving.url, timeout=WAIT) as client, ThreadPoolExecutor(1) as thread:
        streamed = thread.submit(lambda: list(client.stream(held, strategy="single")))
        assert serving.endpoint.started[held].wait(WAIT)
        killed = kill(serving, "executor_stream")
        with pytest.raises(Unavailable, match="process died"):
            streamed.result(WAIT)
        assert is_soon(killed)


@pytest.mark.parametrize("model", ["executor", "executor_stream"])
def test_a_model_that_is_unloaded_or_loaded_anew_answers_what_it_has_begun(serving, held, model):  # noqa: F811
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


def in_flight(serving: Serving, model: str) -> float:  # noqa: F811
    return total(read(serving.metrics), "revelator_in_flight", model=model)
