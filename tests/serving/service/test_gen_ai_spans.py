"""OpenTelemetry's attributes for generative AI on the spans of a question, at an OTLP receiver and in MLflow. A real
service plans and judges by the embedded base, and reads at an endpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlflow
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from revelator import spans
from revelator.client import Client
from revelator.errors import Unavailable
from revelator.trace import Trace
from serving.deploy.deploy import release_embedded_base
from serving.home.configure import configure
from tests.conftest import Endpoint
from tests.service_thread import serve_in_thread
from tests.serving.inspector.world import MODEL
from tests.serving.operations.receiver import Receiver, Span, receiving
from tests.tracking_server import telling_spans

QUESTION = "Who directed Lantern Row?"
KEY = "sk-never-in-a-span"


@dataclass
class Asked:
    url: str
    endpoint: Endpoint

    def ask(self) -> Trace:
        with Client(self.url, timeout=60) as client:
            return client.ask(QUESTION).trace


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory, index: Path, endpoint: Endpoint) -> Iterator[Asked]:
    home = tmp_path_factory.mktemp("gen-ai")
    release_embedded_base(home)
    endpoint.knowledge[QUESTION] = ["Ines Calloway"]
    reader = {"generator": endpoint.url, "generator_model": "asked-by-this-name", "text": False}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_API_KEY", KEY)
        environment.delenv(spans.QUESTIONS_VARIABLE, raising=False)
        config = configure(home, index=index, answer_cache=False, **reader)
        with serve_in_thread(home, config) as (_, running):
            yield Asked(running.grpc, endpoint)


@contextmanager
def telling(receiver: Receiver) -> Iterator[None]:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    spans.start("test", provider.get_tracer("test"))
    yield
    spans._tracer = None
    provider.shutdown()


def find(found: list[Span], operation: str) -> list[Span]:
    return [span for span in found if span.attributes.get(spans.OPERATION) == operation]


def test_the_names_are_those_of_opentelemetry_s_own_package() -> None:
    named = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")}
    ours = {value for value in vars(spans).values() if isinstance(value, str) and value.startswith("gen_ai.")}
    assert len(ours) == 8 and ours <= named
    values = gen_ai_attributes.GenAiOperationNameValues
    assert {"chat", "text_completion", "retrieval", "invoke_agent"} <= {value.value for value in values}
    assert spans.ERROR == "error.type"


def test_a_collector_gets_agent_models_tokens_and_sources_of_a_question_and_none_of_its_words(asked: Asked) -> None:
    with receiving() as receiver, telling(receiver):
        trace = asked.ask()
        found = receiver.when(lambda spans: any(span.name == "ask" for span in spans))
    agents = find(found, "invoke_agent")
    assert {span.name for span in agents} == {"ask", "executor"}
    assert all(span.attributes["gen_ai.agent.name"] == "revelator" for span in agents)
    [search] = find(found, "retrieval")
    assert search.attributes["gen_ai.data_source.id"] == "retriever"
    [read] = find(found, "chat")
    assert read.name == "chat asked-by-this-name" and read.attributes["gen_ai.provider.name"] == "openai"
    assert read.attributes["gen_ai.request.model"] == "asked-by-this-name"
    assert read.attributes["gen_ai.response.model"] == "m"
    assert (read.attributes["gen_ai.usage.input_tokens"], read.attributes["gen_ai.usage.output_tokens"]) == (11, 5)
    own = find(found, "text_completion")
    models = {(s.attributes["gen_ai.request.model"], s.attributes["gen_ai.response.model"]) for s in own}
    assert ("revelator", "revelator/0") in models
    assert {span.attributes["gen_ai.provider.name"] for span in own} == {"revelator"}
    counted = [span for span in found if "gen_ai.usage.input_tokens" in span.attributes]
    assert {id(span) for span in counted} <= {id(span) for span in (read, *own)}
    of_revelator = [span for span in own if span.attributes["gen_ai.request.model"] == "revelator"]
    for name, count in ((spans.INPUT_TOKENS, trace.usage.tokens_in), (spans.OUTPUT_TOKENS, trace.usage.tokens_out)):
        assert sum(span.attributes[name] for span in (read, *of_revelator)) == count
    told = json.dumps([span.attributes for span in found]) + str(receiver.bodies)
    assert not any(word in told for word in ("Lantern", "Calloway", "directed", KEY, asked.endpoint.url))


def test_the_span_of_a_model_that_fails_names_the_model_and_the_kind_of_error(asked: Asked) -> None:
    asked.endpoint.down.add(QUESTION)
    try:
        with receiving() as receiver, telling(receiver):
            with pytest.raises(Unavailable):
                asked.ask()
            found = receiver.when(lambda spans: any(span.name == "ask" for span in spans))
    finally:
        asked.endpoint.down.clear()
    failed = find(found, "chat")
    assert failed and all(span.attributes["error.type"] == "Unavailable" for span in failed)
    assert all(span.attributes["gen_ai.request.model"] == "asked-by-this-name" for span in failed)
    assert not any("gen_ai.usage.input_tokens" in span.attributes for span in failed)


def test_mlflow_counts_the_tokens_of_a_question_and_names_each_model(
    asked: Asked, tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with telling_spans(tracking_server, tmp_path, monkeypatch) as experiment:
        usage = asked.ask().usage
        [found] = mlflow.MlflowClient().search_traces([experiment])
    total = {"input_tokens": usage.tokens_in, "output_tokens": usage.tokens_out}
    assert usage.tokens_in > 0 < usage.tokens_out
    assert found.info.token_usage == {**total, "total_tokens": sum(total.values())}
    named = {(span.span_type, span.model_name) for span in found.data.spans if span.model_name}
    assert named == {("LLM", "m"), ("LLM", "revelator/0"), ("LLM", "generator/1")}


def test_mlflow_counts_tokens_that_come_in_the_batch_of_the_span_that_links_the_trace(
    tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow adds no more tokens to a trace that has some once it is told of the trace itself."""
    with telling_spans(tracking_server, tmp_path, monkeypatch, BatchSpanProcessor) as experiment:
        with spans.open_span("executor", "server"):
            for _ in range(2):
                with spans.open_completion("chat", "m") as span:
                    spans.describe_completion(span, "m", 7, 3)
                spans.flush()
            with spans.open_completion("chat", "m") as span:
                spans.describe_completion(span, "m", 70, 30)
            spans.describe("", [], attributes={spans.MODEL_ID: MODEL})
        spans.flush()
        [found] = mlflow.MlflowClient().search_traces([experiment])
    assert found.info.trace_metadata[spans.MODEL_ID] == MODEL
    assert found.info.token_usage == {"input_tokens": 84, "output_tokens": 36, "total_tokens": 120}
