"""What a question is refused for, with which code and words, and that no refused request disturbs another."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator.client import Client
from revelator.errors import ExpressionError, PlanError
from revelator.trace import Node, Trace
from tests.conftest import MAX_IN_FLIGHT
from tests.serving.conftest import FAST, WAIT, wait_until

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
    ("options", "message"),
    [
        ("{", "not JSON"),
        ([], "mapping"),
        ({"strategy": "guess"}, "no strategy 'guess'"),
        ({"limits": {"leaves": -1}}, "limit leaves"),
        ({"reuse": "a trace"}, "options.reuse"),
        ({"reuse": {"nodes": []}}, "no trace"),
        ({"reuse": {**Trace("q", "auto").to_json(), "answers": 5}}, "no trace: answers"),
        ({"reuse": Trace("q", "auto", nodes=[Node("1", "atomic", "q", detail={"ids": 5})]).to_json()}, "reuse: ids"),
    ],
)
def test_options_that_are_wrong_say_what_is_wrong(triton, options, message):
    with pytest.raises(InferenceServerException) as refused:
        infer(triton, QUESTION, options)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    said = json.loads(refused.value.message())
    assert message in f"{said['where']}: {said['message']}"


def test_a_client_that_was_refused_asks_again_until_there_is_room(client, world):
    held = [f"What is number {n} in Lantern Row?" for n in range(MAX_IN_FLIGHT)]
    for question in held:
        world.endpoint.gate(question, "Ines Calloway")
    pending = [client.submit(question, strategy="single") for question in held]
    admission = world.questions.admission
    wait_until(lambda: (admission.in_flight, admission.waiting) == (MAX_IN_FLIGHT, 1))
    with Client(world.url, timeout=WAIT, retries=100) as patient, ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(patient.ask, FAST, strategy="single")
        for question in held:
            world.endpoint.gates[question].set()
        assert [future.result(WAIT).outcome for future in pending] == ["answered"] * MAX_IN_FLIGHT
        assert waiting.result(WAIT).answers == ("Orland",)


def test_a_traceparent_that_is_a_number_takes_no_place(client, world, triton):
    for _ in range(MAX_IN_FLIGHT + 1):
        assert infer(triton, FAST, {"strategy": "single"}, traceparent=1).as_numpy("answer")[0] == b"Orland"
    assert client.ask(FAST, strategy="single").answers == ("Orland",)
