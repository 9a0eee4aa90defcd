"""Hostile questions to a running service: each is refused with its type, and others are answered meanwhile."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tritonclient.utils import InferenceServerException

from revelator.errors import ExpressionError, InvalidRequest, PlanError, RevelatorError
from revelator.trace import Node, Passage, Trace
from revelator.wire import read_error
from tests.serving.conftest import FAST, WAIT
from tests.serving.test_refusals import infer

MILLIONS = 3_900_000  # characters, just below the limit options_bytes


def dense(piece: str) -> str:
    """Options that are as many JSON values as their size allows."""
    return f'{{"reuse": {{"nodes": [{piece * (MILLIONS // len(piece))}{piece.rstrip(",")}]}}}}'


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (PlanError, {"plan": " + ".join(f"Wo wurde {{größe{n}}} geboren, 日本の{{監督{n}}}?" for n in range(30))}),
        (PlanError, {"plan": "Wer? * " + "é" * 19_000}),
        (ExpressionError, {"plan": "日本 " * 6_000 + "("}),
        (ExpressionError, {"plan": '"\\ud800' + "é" * 500, "strategy": "logic"}),
        (InvalidRequest, {"plan": "a" * 3_000_000}),
        (InvalidRequest, {"é" * 600_000: 1}),
        (InvalidRequest, {"strategy": "日" * 600_000}),
        (InvalidRequest, {"limits": {"leaves": "é" * 600_000}}),
        (InvalidRequest, dense("[],")),
        (InvalidRequest, dense("{},")),
        (InvalidRequest, '{"limits": {"leaves": %s}}' % ("9" * 5_000)),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value)[:24],
)
def test_an_error_about_any_text_keeps_its_type_on_the_wire(
    client, triton, kind: type[RevelatorError], options
) -> None:
    with pytest.raises(InferenceServerException) as raw:
        infer(triton, FAST, options)
    error = read_error(raw.value.status().removeprefix("StatusCode."), raw.value.message())
    assert type(error) is kind
    assert error.message and error.message != raw.value.message()
    assert client.ask(FAST, strategy="single").answers == ("Orland",)


SLOWEST = 12.0  # seconds of an answer beside them, on a busy machine; one of them once stalled everybody for 14


@pytest.mark.parametrize(
    "options",
    [
        dense("0,"),
        dense("[],"),
        {"plan": '"' + "{who} " * 3_300 + '"'},
        {"plan": "Who? * " + " ".join(f"{{a{n}}}" for n in range(2_400))},
    ],
    ids=["numbers", "lists", "placeholders", "names"],
)
def test_others_are_answered_beside_hostile_questions(client, triton, options) -> None:
    client.ask(FAST, strategy="single")
    with ThreadPoolExecutor(3) as threads:
        hostile = [threads.submit(infer, triton, "?", options) for _ in range(3)]
        slowest = 0.0
        while not all(outcome.done() for outcome in hostile):
            began = time.monotonic()
            assert client.ask(FAST, strategy="single").answers == ("Orland",)
            slowest = max(slowest, time.monotonic() - began)
    assert all(isinstance(outcome.exception(WAIT), InferenceServerException) for outcome in hostile)
    assert slowest < SLOWEST


def test_what_a_node_of_megabytes_found_is_not_copied_to_every_leaf_that_asks_the_same(client) -> None:
    documents = [Passage(str(n), "t", "x" * 380_000) for n in range(10)]
    node = Node("1", "atomic", FAST, asked=FAST, answers=["x"], documents=documents)
    trace = client.ask("?", plan=" + ".join([FAST] * 32), reuse=Trace("?", "auto", nodes=[node])).trace
    assert trace.answers == ["Orland"] and len(trace.dump_json()) < 1_000_000
