"""A question's events: as they happen, whole, and with the work ended when nobody listens any more."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.client import AsyncClient
from revelator.errors import Overloaded, Unavailable
from revelator.trace import Event, Replay, replay
from tests.conftest import MAX_IN_FLIGHT
from tests.serving.conftest import FAST, WAIT, wait_until

PLAN = "Who directed Lantern Row? * Where was {director} born?"
QUESTION = "Where was the director of Lantern Row born?"
LAST = "Where was Ines Calloway born?"


@pytest.fixture
async def client(world) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(world.url, timeout=WAIT) as client:
        yield client


async def test_events_arrive_while_the_question_runs_and_replayed_are_its_trace(client, world):
    world.endpoint.gate(LAST, "Port Velm")
    growing, kinds = Replay(), []
    async for event in client.stream(QUESTION, plan=PLAN):
        growing.add(event)
        kinds.append(event.kind)
        if (event.kind, event.node) == ("judged", "3"):  # the next word on it comes after the gate
            assert [node.status for node in growing.build().nodes] == ["waiting", "ok", "running"]
            assert growing.build().nodes[1].answers == ["Ines Calloway"]
            world.endpoint.gates[LAST].set()
    assert kinds[0] == "begun" and kinds[-1] == "finished"
    trace = growing.build()
    assert (trace.answers, trace.outcome, trace.plan) == (["Port Velm"], "answered", PLAN)
    assert trace.versions.items() >= {"revelator": "1", "retriever": "1"}.items()


async def test_streams_of_one_moment_run_side_by_side(client):
    async def events(number: int) -> list[Event]:
        return [event async for event in client.stream(FAST, plan=f"Where is Sarnath? + Who is number {number}?")]

    told = await asyncio.gather(*(events(n) for n in range(MAX_IN_FLIGHT)))
    for number, one in enumerate(told):
        assert replay(one).plan.endswith(f"number {number}?")


async def test_cancelling_who_listens_ends_the_work_on_the_server(client, world):
    slow = "Which hill is seen in Lantern Row?"
    world.endpoint.gate(slow, "the Orm")

    async def listen() -> None:
        async for _ in client.stream(slow, strategy="single"):
            pass

    task = asyncio.create_task(listen())
    assert await asyncio.to_thread(world.endpoint.started[slow].wait, WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(world.endpoint.left[slow].wait, WAIT)


async def told(client: AsyncClient, question: str, **options) -> list[Event]:
    return [event async for event in client.stream(question, **options)]


async def test_a_stream_of_a_service_that_is_not_there_is_unavailable():
    async with AsyncClient("127.0.0.1:1", timeout=10) as nowhere:
        with pytest.raises(Unavailable) as refused:
            await told(nowhere, "Who?")
    assert refused.value.where == "127.0.0.1:1"


async def test_an_error_comes_after_the_events_before_it(client, world):
    world.endpoint.knowledge["Whose is the Glass Orchard?"] = ["nobody's"]
    world.endpoint.down.add("Whose is the Glass Orchard?")
    kinds = []
    with pytest.raises(Unavailable, match="503"):
        async for event in client.stream("Whose is the Glass Orchard?", strategy="single"):
            kinds.append(event.kind)
    assert kinds[0] == "begun" and "judged" in kinds and kinds[-1] == "failed"


async def test_one_stream_too_many_is_refused_and_the_others_go_on(client, world):
    held = [f"Who is number {n} in Lantern Row?" for n in range(MAX_IN_FLIGHT)]
    for question in held:
        world.endpoint.gate(question, "Ines Calloway")
    listening = [asyncio.create_task(told(client, question, strategy="single")) for question in held]
    admission = world.questions.admission
    await asyncio.to_thread(wait_until, lambda: (admission.in_flight, admission.waiting) == (MAX_IN_FLIGHT, 1))
    with pytest.raises(Overloaded, match="in flight"):
        await told(client, FAST, strategy="single")
    for question in held:
        world.endpoint.gates[question].set()
    assert {replay(await one).outcome for one in listening} == {"answered"}


def test_ask_streams_events_as_json_lines_and_ends_with_the_same_tree(world):
    asked = ["ask", QUESTION, "--plan", PLAN, "--url", world.url]
    lines = CliRunner().invoke(revelator, [*asked, "--stream", "--json"]).stdout.splitlines()
    trace = replay(Event.from_json(json.loads(line)) for line in lines)
    assert trace.answers == ["Port Velm"]
    streamed, plain = (
        CliRunner().invoke(revelator, [*asked, *more]).stdout for more in (["--steps", "--stream"], ["--steps"])
    )
    assert "… " not in streamed and "Port Velm" in streamed
    untimed = [[line.split("  ")[0] for line in text.splitlines()] for text in (streamed, plain)]
    assert untimed[0] == untimed[1]
    wrong = ["ask", "q", "--plan", "Who is {x}?", "--url", world.url, "--stream", "--json"]
    refused = CliRunner().invoke(revelator, wrong)
    assert refused.exit_code == 1 and json.loads(refused.stdout)["error"] == "PlanError"


def test_the_plan_fills_in_on_a_terminal_while_the_question_runs(world):
    world.endpoint.gate(LAST, "Port Velm")
    command = [str(Path(sys.executable).parent / "revelator"), "ask", QUESTION, "--plan", PLAN, "--stream"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen([*command, "--url", world.url], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        shown = ""
        while "Ines Calloway" not in shown or "… " not in shown:
            shown += os.read(ours, 65536).decode(errors="replace")
        assert "sources" not in shown
        world.endpoint.gates[LAST].set()
        while "sources" not in shown:
            shown += os.read(ours, 65536).decode(errors="replace")
        assert process.wait(WAIT) == 0
    finally:
        process.kill()
        os.close(ours)
