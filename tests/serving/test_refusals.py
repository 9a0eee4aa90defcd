"""What a real Triton server refuses, with which code and words, and that no refused request disturbs another."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from revelator.client import Client
from revelator.errors import (
    ExpressionError,
    Overloaded,
    PlanError,
)
from revelator.trace import Node, Trace
from tests.conftest import MAX_IN_FLIGHT
from tests.serving.conftest import FAST, WAIT

QUESTION = "Where was the director of Lantern Row born?"


def test_an_invalid_plan_is_an_invalid_argument_with_diagnostics_and_others_go_on(client, world, triton):
    slow = "Who is seen in Lantern Row?"
    world.endpoint.gate(slow, "nobody")
    pending = client.submit(slow, strategy="single")
    assert world.endpoint.started[slow].wait(WAIT)
    with pytest.raises(InferenceServerException) as raw:
        infer(triton, QUESTION, {"plan": "Where was {director} born?"})
    assert raw.value.status() == "StatusCode.INVALID_ARGUMENT"
    [diagnostic] = json.loads(raw.value.message())["diagnostics"]
    assert {"code", "message", "start", "end", "hint"} == diagnostic.keys()
    with pytest.raises(PlanError) as unbound:
        client.ask(QUESTION, plan="Where was {director} born?")
    assert (unbound.value.diagnostics[0].start, unbound.value.diagnostics[0].end) == (10, 20)
    with pytest.raises(ExpressionError, match="parenthesis") as syntax:
        client.ask(QUESTION, plan="Who directed Lantern Row? * (Where was {director} born?")
    assert "^" in syntax.value.excerpt
    world.endpoint.gates[slow].set()
    assert pending.result(WAIT).answers == ("nobody",)


def infer(triton: grpc_client.InferenceServerClient, question: str, options: object, **parameters: object):
    inputs = []
    for name, text in (
        ("question", question),
        ("options", options if isinstance(options, str) else json.dumps(options)),
    ):
        tensor = grpc_client.InferInput(name, [1], "BYTES")
        inputs.append(tensor.set_data_from_numpy(np.array([text.encode()], dtype=np.object_)))
    return triton.infer("executor", inputs, parameters=parameters or None, client_timeout=WAIT)


@pytest.mark.parametrize(
    ("options", "parameters", "message"),
    [
        ("{", {}, "not JSON"),
        ([], {}, "mapping"),
        ({"colour": "red"}, {}, "options.colour"),
        ({"strategy": "guess"}, {}, "no strategy 'guess'"),
        ({"limits": {"leaves": -1}}, {}, "limit leaves"),
        ({"reuse": "a trace"}, {}, "options.reuse"),
        ({"reuse": {"nodes": []}}, {}, "no trace"),
        ({"reuse": {**Trace("q", "auto").to_json(), "answers": 5}}, {}, "no trace: answers"),
        (
            {"reuse": Trace("q", "auto", nodes=[Node("1", "atomic", "q", detail={"ids": 5})]).to_json()},
            {},
            "reuse: ids",
        ),
        ({}, {"deadline_ms": "soon"}, "deadline_ms"),
        ({}, {"deadline_ms": -5}, "deadline_ms"),
    ],
)
def test_a_request_that_is_wrong_says_what_is_wrong(triton, options, parameters, message):
    with pytest.raises(InferenceServerException) as refused:
        infer(triton, QUESTION, options, **parameters)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    said = json.loads(refused.value.message())
    assert message in f"{said['where']}: {said['message']}"


BAD = b"who \xff?"


def tensor(name: str, values: list, shape: list[int]) -> grpc_client.InferInput:
    array = np.array(values, dtype=np.object_ if isinstance(values[0], bytes) else None).reshape(shape)
    return grpc_client.InferInput(name, shape, np_to_triton_dtype(array.dtype)).set_data_from_numpy(array)


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        ("executor", [tensor("question", [BAD], [1]), tensor("options", [b""], [1])], "question is not UTF-8"),
        ("executor", [tensor("question", [b"q"], [1]), tensor("options", [b"[" * 100_000], [1])], "not JSON"),
        ("executor", [tensor("question", [b"q"], [1]), tensor("options", [b'{"plan":"\\ud800"}'], [1])], "not JSON"),
        ("executor", [tensor("question", [b"q"], [1])], "missing required input"),
        ("executor", [tensor("question", [b"q", b"q"], [2]), tensor("options", [b""], [1])], "unexpected shape"),
        ("executor", [tensor("question", [7], [1]), tensor("options", [b""], [1])], "data-type"),
    ],
)
def test_tensors_that_are_wrong_are_an_invalid_argument_of_one_line(triton, model, inputs, message):
    with pytest.raises(InferenceServerException, match=message) as refused:
        triton.infer(model, inputs)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert "At:" not in refused.value.message()


def test_one_question_too_many_is_refused_at_once_as_unavailable(client, world, triton):
    held = [f"What is number {n} in Lantern Row?" for n in range(4)]
    for question in held:
        world.endpoint.gate(question, "Ines Calloway")
    pending = [client.submit(question, strategy="single") for question in held]
    assert all(world.endpoint.started[question].wait(WAIT) for question in held)
    with pytest.raises(Overloaded, match="4 requests are in flight") as refused:
        client.ask(FAST, strategy="single")
    assert 50 <= (refused.value.retry_after_ms or 0) <= 5_000
    with pytest.raises(InferenceServerException) as raw:
        infer(triton, FAST, {})
    assert raw.value.status() == "StatusCode.UNAVAILABLE"
    with Client(world.url, timeout=WAIT, retries=100) as patient, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(patient.ask, FAST, strategy="single")
        for question in held:
            world.endpoint.gates[question].set()
        assert [future.result(WAIT).outcome for future in pending] == ["answered"] * 4
        assert waiting.result(WAIT).answers == ("Orland",)


def test_a_traceparent_that_is_a_number_takes_no_place(client, world, triton):
    for _ in range(MAX_IN_FLIGHT + 1):
        assert infer(triton, FAST, {"strategy": "single"}, traceparent=1).as_numpy("answer")[0] == b"Orland"
    assert client.ask(FAST, strategy="single").answers == ("Orland",)
