"""How long a call of an endpoint may take, and what is said of one that takes longer."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from revelator import language_model
from revelator.errors import DeadlineExceeded, Unavailable
from revelator.language_model import Endpoint, Reply
from revelator.limits import LONGEST_MS
from revelator.reply_forms import Way
from revelator.tasks.chat_prompts import Message
from tests.chat_server import Reply as Answer
from tests.chat_server import cuts, fails, running, says, streams

CHAT: list[Message] = [{"role": "user", "content": "Who?"}]


async def test_a_call_that_takes_too_long_says_which_bound_ended_it_and_how_to_raise_it() -> None:
    with running() as server:
        server.replies = [lambda handler: (server.release.wait(30), cuts(handler))[1]]
        with pytest.raises(DeadlineExceeded) as error:
            await Endpoint(server.url, "m", timeout=0.2).chat(CHAT)
    assert f"{server.url}: no answer within 0.2 s, the timeout of a call" in str(error.value)
    assert "`timeout` in serving.yaml" in str(error.value.hint)


def test_a_call_without_a_timeout_may_take_as_long_as_any_question() -> None:
    assert Endpoint("http://127.0.0.1:9/v1", "m").timeout == LONGEST_MS / 1000


async def test_what_takes_no_connection_is_unavailable_and_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "CONNECT_SECONDS", 0.2)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # the kernel holds one connection that nobody accepts, and drops what comes after it
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with pytest.raises(Unavailable, match="no connection"):
            await Endpoint(f"http://127.0.0.1:{full.getsockname()[1]}/v1", "m", retries=0).chat(CHAT)


async def write(endpoint: Endpoint) -> tuple[Reply, list[str]]:
    """A text that is asked for as a stream, and what was told of it."""
    told: list[str] = []
    return await endpoint.ask_in_form("compose", [Way("chat", CHAT)], listener=told.append, temperature=0), told


async def test_a_stream_is_told_as_it_comes_and_its_reply_is_the_whole_with_its_tokens() -> None:
    with running() as server:
        server.replies = [streams("Ann", " wrote", " it.")]
        reply, told = await write(Endpoint(server.url, "m"))
    assert told == ["Ann", "Ann wrote", "Ann wrote it."]
    assert reply == Reply("Ann wrote it.", "stop", "m", 31, 7)
    assert server.requests[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("refusals", "sent"),
    [
        ([fails(400, "unknown field: stream_options")], [{"stream", "stream_options"}, {"stream"}]),
        ([fails(501, "stream: not implemented")], [{"stream", "stream_options"}, set()]),
        ([fails(400, "no")], [{"stream", "stream_options"}, set()]),
        ([says("It ignores what it does not know.")], [{"stream", "stream_options"}, set()]),
    ],
)
async def test_a_server_that_does_not_stream_is_asked_for_the_whole(refusals: list[Answer], sent: list[set]) -> None:
    with running() as server:
        last = streams("Ann.") if sent[-1] else says("Ann.")
        server.replies = [*refusals, last]
        reply, told = await write(Endpoint(server.url, "m", retries=0))
    assert (reply.text, told) == ("Ann.", ["Ann."] if sent[-1] else [])
    assert [{"stream", "stream_options"} & request.keys() for request in server.requests] == sent


@pytest.mark.parametrize("broken", [streams("Ann", then=cuts), streams("Ann", finish=None)])
async def test_a_stream_that_breaks_off_is_not_asked_for_again(broken: Answer) -> None:
    with running() as server:
        server.replies = [broken]
        with pytest.raises(Unavailable, match="broke off") as error:
            await write(Endpoint(server.url, "m", retries=0))
    assert error.value.final and len(server.requests) == 1


async def test_who_leaves_in_the_middle_of_a_stream_closes_its_request() -> None:
    closed, begun = threading.Event(), asyncio.Event()
    with running() as server:
        server.replies = [streams("Ann", then=lambda handler: closed.set() if not handler.connection.recv(1) else None)]
        way = Way("chat", CHAT)
        asking = Endpoint(server.url, "m").ask_in_form("compose", [way], listener=lambda text: begun.set())
        task = asyncio.create_task(asking)
        await asyncio.wait_for(begun.wait(), 20)
        task.cancel()
        assert await asyncio.to_thread(closed.wait, 20)
