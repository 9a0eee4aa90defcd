"""What the service answers to our clients and to released ones, over gRPC."""

from __future__ import annotations

import json
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.client import AsyncClient
from revelator.errors import DeadlineExceeded, InvalidRequest, PlanError, Unavailable
from revelator.tasks import TASKS, QuestionInput, RelevanceInput
from revelator.trace import Event, Trace, replay
from revelator.wire import read_event
from tests.serving.service.conftest import FAST, PLAN, QUESTION, WAIT


def text(name: str, *values: str, batch: bool = False) -> grpc_client.InferInput:
    shape = [len(values), 1] if batch else [len(values)]
    array = np.array([value.encode() for value in values], dtype=np.object_).reshape(shape)
    return grpc_client.InferInput(name, shape, "BYTES").set_data_from_numpy(array)


def ask(question: str, **options: object) -> list[grpc_client.InferInput]:
    return [text("question", question), text("options", json.dumps(options))]


def untimed(trace: Trace) -> list[object]:
    nodes = [(node.id, node.kind, node.asked, node.answers, node.status) for node in trace.nodes]
    return [trace.answer, trace.outcome, trace.plan, trace.versions, nodes]


def test_a_question_is_answered_with_its_trace_and_versions(client, service):
    answer = client.ask(QUESTION, plan=PLAN)
    assert (answer.answers, answer.outcome) == (("Port Velm",), "answered")
    assert answer.trace.versions.items() >= {"retriever": "1"}.items()


def test_the_embedded_base_plans_and_its_version_stands_in_the_trace(client):
    answer = client.ask(QUESTION, strategy="compile")
    assert answer.trace.plan and answer.trace.versions["revelator"] == "0"


async def test_a_stream_replayed_is_the_trace_of_the_unary_call(service):
    async with AsyncClient(service.url, timeout=WAIT) as client:
        events = [event async for event in client.stream(QUESTION, plan=PLAN)]
        whole = (await client.ask(QUESTION, plan=PLAN)).trace
    assert (events[0].kind, events[-1].kind) == ("begun", "finished")
    assert untimed(replay(events)) == untimed(whole)


async def test_a_released_client_streams_many_questions_over_one_stream(service):
    async def requests():
        for id in ("first", "second"):
            yield {"model_name": "executor", "inputs": ask(QUESTION, plan=PLAN), "request_id": id}

    events: dict[str, list[Event]] = {"first": [], "second": []}
    async with aio_client.InferenceServerClient(service.url) as triton:
        async for result, error in triton.stream_infer(requests()):
            assert error is None
            assert not result.get_response().parameters["triton_final_response"].bool_param
            events[result.get_response().id].append(read_event(result))
    assert all(replay(own).answers == ["Port Velm"] for own in events.values())


def test_a_released_blocking_client_gets_the_empty_last_response_that_it_asks_for(triton):
    answers: queue.Queue = queue.Queue()
    triton.start_stream(lambda result, error: answers.put((result, error)))
    triton.async_stream_infer("executor", ask(QUESTION, plan=PLAN), enable_empty_final_response=True)
    prompt = [text("task", "route", batch=True), text("prompt", f"Question: {FAST}\nRoute:", batch=True)]
    triton.async_stream_infer("revelator", prompt, request_id="whole")
    triton.stop_stream()
    found = [answers.get_nowait() for _ in range(answers.qsize())]
    assert all(error is None for _, error in found)
    responses = [result.get_response() for result, _ in found]
    finals = [response for response in responses if response.parameters["triton_final_response"].bool_param]
    assert sorted((response.id, len(response.outputs)) for response in finals) == [("", 0), ("whole", 4)]
    events = [read_event(result) for result, _ in found if result.get_response() not in finals]
    assert replay(events).answers == ["Port Velm"]


def test_the_revelator_alone_writes_plans_and_judges(triton):
    translate, relevance = TASKS["translate_bnf"], TASKS["relevance"]
    document = RelevanceInput(FAST, "Sarnath", "Sarnath is a town in Orland. It was founded in 1388.")
    prompts = [translate.render(QuestionInput(QUESTION)), relevance.render(document)]
    inputs = [text("task", "translate_bnf", "relevance", batch=True), text("prompt", *prompts, batch=True)]
    result = triton.infer("revelator", inputs)
    plan, label = result.as_numpy("text")[:, 0]
    assert translate.parse_sound(plan.decode()) is not None
    assert label.decode() in relevance.labels
    likely = result.as_numpy("probabilities")
    assert likely.shape == (2, len(relevance.labels)) and likely[1].sum() == pytest.approx(1, abs=1e-4)
    assert result.as_numpy("usage").shape == (2, 2) and not result.as_numpy("degraded").any()


def test_released_clients_find_what_is_served(triton):
    assert triton.is_server_live() and triton.is_server_ready()
    assert triton.is_model_ready("executor")
    assert not triton.is_model_ready("executor", "9") and not triton.is_model_ready("retriever")
    assert triton.get_server_metadata().name == "revelator"
    metadata = triton.get_model_metadata("executor")
    assert [(t.name, t.datatype, list(t.shape)) for t in metadata.inputs] == [
        ("question", "BYTES", [1]),
        ("options", "BYTES", [1]),
    ]
    assert list(triton.get_model_metadata("revelator").inputs[2].shape) == [-1, 1]
    assert [tensor.name for tensor in triton.get_model_config("executor").config.output] == ["answer", "trace", "event"]
    index = triton.get_model_repository_index().models
    assert {(model.name, model.state) for model in index} == {(name, "READY") for name in ("executor", "revelator")}
    before = triton.get_inference_statistics("executor").model_stats[0].inference_count
    triton.infer("executor", ask(FAST, strategy="single"))
    [after] = triton.get_inference_statistics("executor").model_stats
    assert after.inference_count == before + 1 and after.inference_stats.success.ns > 0


def test_errors_keep_their_types_in_calls_and_streams(client, service):
    for call in (client.ask, lambda *args, **options: list(client.stream(*args, **options))):
        with pytest.raises(PlanError) as unbound:
            call(QUESTION, plan="Where was {director} born?")
        assert unbound.value.diagnostics[0].start == 10
        with pytest.raises(InvalidRequest, match="no strategy"):
            call(QUESTION, strategy="guess")
        service.endpoint.gate("Which lake is seen in Lantern Row?", "Sel")
        with pytest.raises(DeadlineExceeded, match="within 800 ms"):
            call("Which lake is seen in Lantern Row?", strategy="single", deadline_ms=800)
        service.endpoint.knowledge["Whose is the Glass Orchard?"] = ["nobody's"]
        service.endpoint.down.add("Whose is the Glass Orchard?")
        with pytest.raises(Unavailable, match="503"):
            call("Whose is the Glass Orchard?", strategy="single")


def test_the_command_asks_the_service_of_a_home_folder(service):
    asked = ["ask", QUESTION, "--plan", PLAN, "--home", str(service.home)]
    plain, streamed = (CliRunner().invoke(revelator, [*asked, *more]) for more in ([], ["--stream", "--json"]))
    assert plain.exit_code == 0 and "Port Velm" in plain.stdout
    assert replay(Event.from_json(json.loads(line)) for line in streamed.stdout.splitlines()).answers == ["Port Velm"]


def test_what_a_model_is_described_by_tells_nothing_of_the_deployment(triton, service):
    for model, batch in (("executor", 0), ("revelator", 64)):
        config = triton.get_model_config(model).config
        told = {field.name for field, _ in config.ListFields()} - {"max_batch_size"}
        assert told == {"name", "platform", "version_policy", "input", "output"}
        assert config.max_batch_size == batch and service.endpoint.url not in str(config)
