"""What crosses the wire: errors come out as they went in, and a server that is not there is said to be not there."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator import errors
from revelator.client import Answer, AsyncClient, Client
from revelator.limits import LONGEST_MS
from revelator.plans import check, parse
from revelator.trace import Trace
from revelator.wire import build_request, choose_grpc_code, read_error, write_error

SIMPLE = [
    errors.InvalidRequest,
    errors.Overloaded,
    errors.Unavailable,
    errors.DeadlineExceeded,
    errors.Cancelled,
    errors.ServingError,
]


@given(st.sampled_from(SIMPLE), st.text(), st.none() | st.text(), st.none() | st.text())
def test_an_error_arrives_as_it_was_raised(kind, message, where, hint):
    error = kind(message, where=where, hint=hint)
    arrived = read_error("UNKNOWN", write_error(error))
    assert type(arrived) is kind
    assert (arrived.message, arrived.where, arrived.hint) == (message, where, hint)
    assert choose_grpc_code(error) == kind.grpc_code
    assert str(arrived) == str(error) and repr(arrived) == repr(error), "an error shows its text, however it was made"


@given(st.none() | st.floats(0.001, 3_600), st.none() | st.floats(1, 3_600_000))
def test_a_client_waits_longer_than_the_deadline_that_it_sends(timeout, deadline_ms):
    request = build_request("who?", timeout, deadline_ms=deadline_ms)
    sent = request.get("parameters", {}).get("deadline_ms")
    wanted = deadline_ms or (timeout and 1000 * timeout)
    assert sent == (wanted and math.ceil(wanted)), "a question's own deadline, else the client's timeout"
    assert request["client_timeout"] > (sent or LONGEST_MS) / 1000
    assert request["client_timeout"] > (timeout or 0), "retries may take as long"


@given(st.none() | st.integers(1, 10_000))
def test_a_server_that_is_full_says_when_to_ask_again(after):
    arrived = read_error("UNAVAILABLE", write_error(errors.Overloaded("full", retry_after_ms=after)))
    assert isinstance(arrived, errors.Overloaded) and arrived.retry_after_ms == after


def test_a_stream_that_a_proxy_ends_without_a_status_is_one_whose_server_has_gone():
    arrived = read_error("UNKNOWN", "Stream removed (Data frame with END_STREAM flag received)")
    assert isinstance(arrived, errors.Unavailable) and arrived.hint == "ask again"


def test_diagnostics_of_a_plan_arrive_whole():
    diagnostics = check(parse("Where was {director} born? + What is {x}?"))
    error = errors.PlanError("cannot be run", diagnostics=diagnostics, hint="mend it")
    arrived = read_error("INVALID_ARGUMENT", write_error(error))
    assert isinstance(arrived, errors.PlanError) and len(diagnostics) == 2
    assert (arrived.diagnostics, arrived.hint) == (diagnostics, "mend it")


def test_a_syntax_error_arrives_with_its_caret():
    with pytest.raises(errors.ExpressionError) as raised:
        parse("A ) B")
    assert str(read_error("INVALID_ARGUMENT", write_error(raised.value))) == str(raised.value)
    assert choose_grpc_code(raised.value) == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_ARGUMENT", errors.InvalidRequest),
        ("UNAVAILABLE", errors.Unavailable),
        ("NOT_FOUND", errors.Unavailable),
        ("DEADLINE_EXCEEDED", errors.DeadlineExceeded),
        ("CANCELLED", errors.Cancelled),
        ("INTERNAL", errors.ServingError),
    ],
)
@pytest.mark.parametrize("message", ["no JSON", "[1]", '{"foreign": 1}', "7", ""])
def test_a_foreign_message_keeps_its_words_and_is_read_by_its_code(code, kind, message):
    error = read_error(code, message)
    assert type(error) is kind and error.message == message


def test_an_answer_shows_its_values_outcome_and_plan_without_its_trace():
    trace = Trace("Who?", "auto", plan="Who directed UHF?", answers=["Jay Levey"])
    shown = "Answer(answers=('Jay Levey',), outcome='answered', plan='Who directed UHF?')"
    assert repr(Answer("Jay Levey", ("Jay Levey",), "answered", trace)) == shown


def test_a_server_that_is_not_there_is_unavailable():
    with Client("127.0.0.1:1", timeout=10) as client, pytest.raises(errors.Unavailable) as refused:
        client.ask("Who?")
    assert refused.value.where == "127.0.0.1:1" and "revelator serve" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("question", "options", "where"),
    [
        ("who \ud800?", {}, "question"),
        (None, {}, "question"),
        (5, {}, "question"),
        (b"who?", {}, "question"),
        ("who?", {"plan": "who \ud800?"}, "options"),
        ("who?", {"deadline_ms": float("nan")}, "deadline_ms"),
        ("who?", {"deadline_ms": float("inf")}, "deadline_ms"),
        ("who?", {"deadline_ms": 1e300}, "deadline_ms"),
        ("who?", {"deadline_ms": 0}, "deadline_ms"),
    ],
)
async def test_what_cannot_be_sent_is_an_invalid_request_that_names_it(question, options, where):
    with Client("127.0.0.1:1") as client, pytest.raises(errors.InvalidRequest) as refused:
        client.submit(question, **options)
    assert refused.value.where == where
    async with AsyncClient("127.0.0.1:1") as client:
        with pytest.raises(errors.InvalidRequest, match=where):
            await client.ask(question, **options)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_timeout_that_no_call_can_have_is_refused(kind, timeout):
    with pytest.raises(errors.InvalidRequest, match="timeout"):
        kind("127.0.0.1:1", timeout=timeout)


async def test_a_server_that_is_not_there_is_unavailable_for_asyncio_too():
    async with AsyncClient("127.0.0.1:1", timeout=10) as client:
        with pytest.raises(errors.Unavailable):
            await client.ask("Who?")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "address is empty.*127.0.0.1:8001"),
        (" ", "address is empty"),
        ("http://127.0.0.1:8000", "web address.*leave out http://.*gRPC port$"),
        ("HTTPS://host:8001", "leave out HTTPS://.*gRPC port; for TLS .*REVELATOR_TLS_CA"),
    ],
)
def test_an_address_that_no_channel_can_be_opened_to_is_refused_before_one_is(url, said):
    for kind in (Client, AsyncClient):
        with pytest.raises(errors.ConfigError, match=f"(?s){said}"):
            kind(url)
