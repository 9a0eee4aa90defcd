"""Spans and logs: one trace from the client to the leaf, one line a question, and no question's words in either."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from revelator import spans
from revelator.client import AsyncClient, Client
from revelator.errors import InvalidRequest
from serving.service.telemetry import Arrival, EventLog
from tests.serving.operations.conftest import Operated
from tests.serving.operations.receiver import Span

PLAN = "Who directed Lantern Row? * Where was {director} born?"
QUESTION = "Where was the director of Lantern Row born?"
QUESTIONS = 6
LEAF = {"search", "relevance", "read"}
MODELS = {"revelator", "generator"}  # of the Triton server behind the service


@pytest.fixture
def traced(operated: Operated) -> Iterator[Operated]:
    """This process tells its spans as well, as a client with the endpoint in its environment does."""
    provider = TracerProvider(resource=Resource.create({"service.name": "revelator-client"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{operated.receiver.url}/v1/traces")))
    spans.start("revelator-client", provider.get_tracer("revelator"))
    yield operated
    spans._tracer = None
    provider.shutdown()


class Trace:
    """The spans of one trace."""

    def __init__(self, spans: list[Span]):
        self.spans = spans
        self._by_id = {span.id: span for span in spans}

    @classmethod
    def of_questions(cls, found: list[Span]) -> list[Trace]:
        ids = {span.trace for span in found if span.name == "ask"}
        return [cls([span for span in found if span.trace == id]) for id in ids]

    def named(self, service: str, name: str) -> list[Span]:
        return [span for span in self.spans if (span.service, span.name) == (service, name)]

    def above(self, span: Span) -> list[str]:
        """Names from a span's parent to the root, as far as they have arrived."""
        names = []
        while span.parent in self._by_id:
            span = self._by_id[span.parent]
            names.append(span.name)
        return names

    def is_told(self, leaves: int) -> bool:
        """Whether each leaf's search has arrived, and all between it and the client's span."""
        searches = self.named("revelator-executor", "search")
        return len(searches) == leaves and all(self.above(span)[-1:] == ["ask"] for span in searches)

    def is_whole(self) -> bool:
        """Whether every model's own span has arrived, the revelator's below the executor's."""
        below = self.named("revelator-triton", "revelator")
        models = {span.name for span in self.spans if span.service == "revelator-triton"}
        return models >= MODELS and all("ask" in self.above(span) for span in below)


async def test_one_trace_goes_from_the_client_through_the_executor_to_each_leaf_s_calls_and_models(traced: Operated):
    """Of some requests, one in ten beside other work, Triton 2.51 makes no span: one of six traces has those of all
    models. The executor's own are never lost."""
    begun = len(traced.receiver.spans)
    async with AsyncClient(traced.running.grpc, 60, tls=traced.tls) as client:
        for _ in range(QUESTIONS):
            answer = await client.ask(QUESTION, plan=PLAN, fresh=True)
    leaves = [node for node in answer.trace.nodes if node.kind == "atomic"]

    def arrived(found: list[Span]) -> bool:
        traces = Trace.of_questions(found[begun:])
        told = len(traces) == QUESTIONS and all(trace.is_told(len(leaves)) for trace in traces)
        return told and any(trace.is_whole() for trace in traces)

    traces = Trace.of_questions(traced.receiver.when(arrived)[begun:])
    for trace in traces:
        assert {span.name for span in trace.spans} >= LEAF
        for span in trace.named("revelator-executor", "search"):
            assert trace.above(span)[0] == "atomic" and "executor" in trace.above(span)
    whole = next(trace for trace in traces if trace.is_whole())
    for span in whole.named("revelator-triton", "generator"):
        assert {"read", "atomic", "executor"} <= set(whole.above(span))
    assert not any(word in body for body in traced.receiver.bodies for word in (b"Lantern", b"Calloway"))


def test_without_an_endpoint_a_span_is_one_object_that_does_nothing_and_nothing_is_imported():
    assert spans.open_span("a") is spans.open_span("b") and spans.make_headers() == {}
    code = (
        "import sys, revelator.client as c; c.Client('127.0.0.1:1').close(); sys.exit('opentelemetry' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, env={"PATH": ""}).returncode == 0


def test_each_question_and_each_error_is_one_line_with_ids_code_and_times_and_without_its_words(traced: Operated):
    with Client(traced.running.grpc, 60, tls=traced.tls) as client:
        with caller() as trace:
            answer = client.ask(QUESTION, plan=PLAN, fresh=True)
        with pytest.raises(InvalidRequest):
            client.ask(QUESTION, strategy="sideways")
    log = traced.home / "logs" / "events.jsonl"
    end = time.monotonic() + 30
    while not (found := [line for line in lines(log) if line.get("trace") == trace and line["model"] == "executor"]):
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    [line] = found
    assert line["event"] == "question" and line["code"] == "OK" and line["leaves"] == 2 and len(line["request"]) == 32
    assert line["ms"] == round(answer.trace.wall_ms, 1) and set(line["spent_ms"]) >= LEAF
    errors = [line for line in lines(log) if line["event"] == "error" and line["error"] == "InvalidRequest"]
    assert errors and all(e["code"] == "INVALID_ARGUMENT" and "ms" in e and "message" not in e for e in errors)
    assert not any(word in log.read_text() for word in ("Lantern", "Calloway", "sideways"))


def test_a_switch_asks_for_the_words_and_a_rotated_file_is_opened_anew(tmp_path):
    log = tmp_path / "events.jsonl"
    events = EventLog("executor", {"REVELATOR_EVENTS": str(log), "REVELATOR_LOG_QUESTIONS": "1"})
    assert events.writes_texts and not EventLog("executor", {"REVELATOR_EVENTS": str(log)}).writes_texts
    events.write("question", question="Wer?\nWo?", plan=None)
    log.rename(tmp_path / "events.jsonl.1")
    events.write("question", code="OK")
    [old], [new] = lines(tmp_path / "events.jsonl.1"), lines(log)
    assert old["question"] == "Wer?\nWo?" and "plan" not in old and new["code"] == "OK"
    EventLog("executor", {}).write("question")


@pytest.mark.parametrize("sent", [7, True, "", "00-zz-1", "1", "é" * 55])
def test_a_trace_of_the_client_s_that_is_none_is_dropped(sent: object):
    assert Arrival.of("q-1", {"traceparent": sent}).traceparent is None


def test_a_request_has_the_client_s_trace_and_its_id_or_one_of_its_own():
    sent = f"00-{'1' * 32}-{'2' * 16}-01"
    arrival = Arrival.of("x" * 3_000, {"traceparent": sent})
    assert (arrival.traceparent, arrival.trace_id, len(arrival.id)) == (sent, "1" * 32, 128)
    assert len(Arrival.of("", {}).id) == 32 and Arrival.of("", {}).trace_id is None


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def caller() -> Iterator[str]:
    """A span of the caller's own around a question: its trace id."""
    with spans.open_span("caller"):
        yield spans.make_headers()["traceparent"].split("-")[1]
