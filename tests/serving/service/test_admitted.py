"""Which questions are taken in, whose turn is next, and what a client that was refused is told."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from revelator.client import Client
from revelator.errors import DeadlineExceeded, Overloaded
from serving.home.config import ServingConfig
from serving.http.kserve import MODEL
from serving.models.releases import Traffic
from serving.models.triton import TritonModels
from serving.protocols import NoModel
from serving.service.admission import PEER, Admission
from serving.service.models import Models
from serving.service.questions import Questions
from serving.triton.host import TritonHost
from tests.serving.service.conftest import FAST, MAX_IN_FLIGHT, WAIT, Service
from tests.serving.service.test_http import body


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def work(admission: Admission, peer: str, done: list[str], gate: asyncio.Event, seconds: float = 1e9) -> None:
    PEER.set(peer)
    with admission.place(seconds):
        async with admission.turn():
            await gate.wait()
            done.append(peer)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_clients_that_wait_take_turns_however_many_questions_each_has():
    admission, done, gate = Admission(100, 1), [], asyncio.Event()
    first = asyncio.create_task(work(admission, "greedy", done, gate))
    await settle()
    others = [asyncio.create_task(work(admission, peer, done, gate)) for peer in (*["greedy"] * 20, "a", "a", "b")]
    await settle()
    gate.set()
    await asyncio.gather(first, *others)
    assert done[:7] == ["greedy", "greedy", "a", "b", "greedy", "a", "greedy"]
    assert admission.in_flight == 0


async def test_where_all_places_are_taken_the_greediest_client_gives_one_to_another():
    admission, done, gate = Admission(4, 1), [], asyncio.Event()
    greedy = [asyncio.create_task(work(admission, "greedy", done, gate)) for _ in range(4)]
    await settle()
    with pytest.raises(Overloaded, match="4 requests are in flight"):
        await asyncio.create_task(work(admission, "greedy", done, gate))
    modest = asyncio.create_task(work(admission, "modest", done, gate))
    await settle()
    assert isinstance(greedy[-1].exception(), Overloaded)
    gate.set()
    await asyncio.gather(*greedy[:-1], modest)
    assert done == ["greedy", "greedy", "modest", "greedy"]


async def test_a_question_that_would_be_late_is_refused_at_once_and_one_alone_never():
    clock, gate, done = Clock(), asyncio.Event(), []
    admission = Admission(100, 1, clock)
    gate.set()
    for _ in range(50):
        with admission.place():
            async with admission.turn():
                clock.now += 2.0
    gate.clear()
    only = asyncio.create_task(work(admission, "a", done, gate, 0.001))
    await settle()
    assert not only.done(), "the only one is taken in whatever time it has"
    with pytest.raises(Overloaded, match=r"it would take up to 4\.0 s, and 3\.9 s are allowed") as refused:
        await work(admission, "b", done, gate, 3.9)
    assert refused.value.retry_after_ms == 1_000, "half of one question of 2 s"
    second = asyncio.create_task(work(admission, "b", done, gate, 4.1))
    await settle()
    assert not second.done()
    gate.set()
    await asyncio.gather(only, second)


async def test_who_is_cancelled_while_it_waits_leaves_its_turn_to_the_next():
    admission, done, gate = Admission(100, 1), [], asyncio.Event()
    tasks = [asyncio.create_task(work(admission, peer, done, gate)) for peer in "abcd"]
    await settle()
    tasks[1].cancel()
    tasks[0].cancel()  # its turn is handed on in the moment in which its heir is cancelled
    await settle()
    tasks[2].cancel()
    await settle()
    gate.set()
    await asyncio.wait(tasks)
    assert done == ["d"] and admission.in_flight == 0
    async with asyncio.timeout(1), admission.turn():
        pass


@pytest.mark.parametrize(
    ("settings", "on_this_machine", "with_triton_elsewhere"),
    [
        ({}, 2 * len(os.sched_getaffinity(0)), 48),
        ({"max_in_flight": 16}, min(16, 2 * len(os.sched_getaffinity(0))), 12),
        ({"generator": "http://127.0.0.1:9/v1", "generator_model": "m"}, 48, 48),
        ({"at_once": 5}, 5, 5),
    ],
)
async def test_questions_that_wait_for_a_triton_server_elsewhere_are_not_counted_by_the_cores(
    tmp_path: Path, settings: dict[str, Any], on_this_machine: int, with_triton_elsewhere: int
):
    config, traffic = ServingConfig(**settings), Traffic(tmp_path)
    models = TritonModels("127.0.0.1:9")
    host = TritonHost(tmp_path, config, traffic, models, None)
    for where, count in ((None, on_this_machine), (host, with_triton_elsewhere)):
        questions = Questions(config, traffic, Models(NoModel(), host.generator, None, where))
        assert questions.admission.at_once == count
    await models.close()


def submit(client: Client, *questions: str) -> list[Future]:
    return [client.submit(question, strategy="single") for question in questions]


def fill(service: Service, client: Client, held: list[str]) -> list[Future]:
    """Three questions that work, and the last, which waits."""
    pending = submit(client, *held[:-1])
    service.await_start(*held[:-1])
    pending += submit(client, held[-1])
    service.await_count(in_flight=MAX_IN_FLIGHT, waiting=1)
    return pending


def test_one_question_too_many_is_refused_at_once_and_the_others_are_answered(service: Service, client: Client):
    held = service.hold("number", MAX_IN_FLIGHT)
    pending = fill(service, client, held)
    with pytest.raises(Overloaded, match="4 requests are in flight") as refused:
        client.ask(FAST, strategy="single")
    assert 50 <= (refused.value.retry_after_ms or 0) <= 5_000
    service.release()
    assert [future.result(WAIT).outcome for future in pending] == ["answered"] * MAX_IN_FLIGHT


def test_a_client_that_fills_all_places_does_not_starve_another(service: Service, client: Client):
    held = service.hold("figure", MAX_IN_FLIGHT)
    pending = fill(service, client, held)
    with ThreadPoolExecutor(1) as thread:  # over HTTP: channels of one process share a connection
        url, asked = f"{service.running.http}{MODEL}/infer", body(FAST, strategy="single")
        waiting = thread.submit(httpx.post, url, json=asked, timeout=WAIT)
        with pytest.raises(Overloaded, match="other clients"):
            pending[-1].result(WAIT)
        service.endpoint.gates[held[0]].set()
        assert "Orland" in waiting.result(WAIT).text
        assert not pending[1].done() and not pending[2].done()


def test_a_question_that_waits_until_its_deadline_is_late_and_its_place_is_free(service: Service, client: Client):
    held = service.hold("letter", 3)
    pending = submit(client, *held)
    service.await_start(*held)
    with pytest.raises((DeadlineExceeded, Overloaded)):
        client.ask(FAST, strategy="single", deadline_ms=300)
    service.release()
    assert [future.result(WAIT).outcome for future in pending] == ["answered"] * 3
    assert client.ask(FAST, strategy="single").answers == ("Orland",)


def test_the_page_of_metrics_shows_how_many_are_in_flight_and_how_many_of_them_wait(service: Service, client: Client):
    held = service.hold("sign", MAX_IN_FLIGHT)
    pending = fill(service, client, held)
    metrics = httpx.get(f"{service.running.http}/metrics").text
    assert f'revelator_in_flight{{model="executor"}} {MAX_IN_FLIGHT}.0' in metrics
    assert 'revelator_waiting{model="executor"} 1.0' in metrics
    service.release()
    assert [future.result(WAIT).outcome for future in pending] == ["answered"] * MAX_IN_FLIGHT
