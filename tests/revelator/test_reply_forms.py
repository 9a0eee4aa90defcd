"""How an endpoint's replies are held to a form: what a server has is found out, and remembered."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from revelator.language_model import SURE, Endpoint, RefusedError
from revelator.reply_forms import JsonForm
from tests.chat_server import Handler, Reply, Server, fails, running, says

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORM = JsonForm("number", SCHEMA)
WAYS = ("json_schema", "grammar", "json_object")


def find_way(body: dict[str, Any]) -> str:
    return "grammar" if "grammar" in body else body.get("response_format", {"type": "chat"})["type"]


def behave(server: Server, habits: dict[str, str]) -> None:
    """The server heeds, refuses or ignores each of WAYS; some answer with an error of their own to a field."""
    ways = {
        "heeds": says('{"n": 1}'),
        "ignores": says("It is 1."),
        "reshapes": says('{"number": 1}'),
        "refuses": fails(400, "what is this?"),
        "lacks": fails(404, "response_format and grammar are not supported"),
        "breaks": fails(500, "json_schema, grammar, json_object: not implemented"),
    }

    def reply(handler: Handler) -> None:
        ways[habits.get(find_way(handler.body), "ignores")](handler)

    server.replies = [reply]


@pytest.mark.parametrize(
    "habits",
    [
        *product(["heeds", "refuses", "ignores"], repeat=len(WAYS)),
        *((habit, "heeds", "heeds") for habit in ("reshapes", "lacks", "breaks")),
    ],
)
async def test_the_tightest_way_that_a_server_heeds_is_found_out_and_then_each_call_is_one_request(
    habits: tuple[str, ...],
) -> None:
    with running() as server:
        endpoint = Endpoint(server.url, "m", retries=0)
        behave(server, dict(zip(WAYS, habits, strict=True)))
        for _ in range(SURE * len(WAYS)):
            await endpoint.ask_in_form(FORM.name, FORM.list_ways([]), temperature=0)
        before = len(server.requests)
        reply = await endpoint.ask_in_form(FORM.name, FORM.list_ways([]), temperature=0)
        best = next((way for way, habit in zip(WAYS, habits, strict=True) if habit == "heeds"), "chat")
        assert [find_way(request) for request in server.requests[before:]] == [best]
        assert reply.text == ("It is 1." if best == "chat" else '{"n": 1}')
        await endpoint.close()


async def test_a_reply_that_was_cut_off_says_nothing_about_what_the_server_heeds() -> None:
    with running() as server:
        endpoint = Endpoint(server.url, "m")
        server.replies = [says('{"n": ', finish_reason="length")]
        for _ in range(SURE + 1):
            await endpoint.ask_in_form(FORM.name, FORM.list_ways([]))
        assert {find_way(request) for request in server.requests} == {"json_schema"}
        await endpoint.close()


@pytest.mark.parametrize("odd", [says(""), says("No.", finish_reason="content_filter"), says("It is 1.")])
async def test_one_odd_reply_does_not_take_the_form_away(odd: Reply) -> None:
    with running() as server:
        endpoint = Endpoint(server.url, "m")
        server.replies = [odd, says('{"n": 1}')]
        for _ in range(SURE + 1):
            await endpoint.ask_in_form(FORM.name, FORM.list_ways([]))
        assert {find_way(request) for request in server.requests} == {"json_schema"}
        await endpoint.close()


async def test_a_reply_stays_bounded_where_the_bound_has_another_name() -> None:
    def reply(handler: Handler) -> None:
        refused = fails(400, "max_tokens is not supported: use max_completion_tokens")
        (refused if "max_tokens" in handler.body else says('{"n": 1}'))(handler)

    with running() as server:
        endpoint = Endpoint(server.url, "m")
        server.replies = [reply]
        for _ in range(SURE + 1):
            await endpoint.ask_in_form(FORM.name, FORM.list_ways([]), max_tokens=7)
        assert server.requests[-1]["max_completion_tokens"] == 7 and "max_tokens" not in server.requests[-1]
        assert len(server.requests) == 2 * SURE + 1
        await endpoint.close()


async def test_where_nothing_is_left_to_leave_out_the_refusal_is_raised_and_nothing_is_remembered() -> None:
    with running() as server:
        endpoint = Endpoint(server.url, "m")
        server.replies = [fails(400, "the prompt is too long")]
        with pytest.raises(RefusedError, match="too long"):
            await endpoint.ask_in_form(FORM.name, FORM.list_ways([]), logprobs=True, top_logprobs=5)
        asked = [(find_way(request), "logprobs" in request) for request in server.requests]
        assert asked == [("json_schema", True), *((way, False) for way in (*WAYS, "chat"))]
        server.replies = [says('{"n": 1}')]
        await endpoint.ask_in_form(FORM.name, FORM.list_ways([]), logprobs=True, top_logprobs=5)
        assert {"response_format", "logprobs", "top_logprobs"} <= server.requests[-1].keys()
        await endpoint.close()
