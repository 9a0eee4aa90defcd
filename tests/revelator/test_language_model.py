"""How long a call of an endpoint may take, and what is said of one that takes longer."""

from __future__ import annotations

import socket

import pytest

from revelator import language_model
from revelator.errors import DeadlineExceeded, Unavailable
from revelator.language_model import Endpoint
from revelator.limits import LONGEST_MS
from revelator.tasks.chat_prompts import Message
from tests.chat_server import cuts, running

CHAT: list[Message] = [{"role": "user", "content": "Who?"}]


async def test_a_call_that_takes_too_long_says_which_bound_ended_it_and_how_to_raise_it() -> None:
    with running() as server:
        server.replies = [lambda handler: (server.release.wait(30), cuts(handler))[1]]
        with pytest.raises(DeadlineExceeded) as error:
            await Endpoint(server.url, "m", timeout=0.2).chat(CHAT)
    assert f"{server.url}: no answer within 0.2 s, the timeout of a call" in str(error.value)
    assert "--timeout SECONDS of `serve`" in str(error.value.hint)


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
