"""OpenTelemetry spans of one question from the client to the leaf, off unless an endpoint is named:

    OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318     # or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, whole
    OTEL_EXPORTER_OTLP_HEADERS=x-mlflow-experiment-id=1   # an MLflow server takes them, and lists them under Traces

The W3C header `traceparent` carries the trace through gRPC. While it is off a span is one shared object that does
nothing, and OpenTelemetry is not imported. Each span has a type of MLflow's (CHAIN, RETRIEVER, LLM). Spans hold
questions and answers only where REVELATOR_LOG_QUESTIONS=1 says so.

The spans of a question (`invoke_agent`), of each search in a source (`retrieval`) and of each model's answer (`chat`,
`text_completion`) have OpenTelemetry's attributes for generative AI, `gen_ai.*`. Tokens stand on the model's span
alone, so that a sum over a trace counts each once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from revelator.trace import Trace

ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
HEADER = "traceparent"
QUESTIONS_VARIABLE = "REVELATOR_LOG_QUESTIONS"  # whether spans and logs hold questions, plans and answers
SPAN_TYPE, INPUTS, OUTPUTS = "mlflow.spanType", "mlflow.spanInputs", "mlflow.spanOutputs"
PLAN, ROUTE, VERSION = "revelator.plan", "revelator.route", "revelator.version"  # of the span of a served question
PLAN_LANGUAGE = "revelator.plan_language"  # of the same span: of the plan, or of that which the model could not write
READER = "revelator.reader"  # of the same span: the language models that read documents, as their endpoints named them
MODEL_ID = "mlflow.modelId"  # of the same span: MLflow's model of the version; of a trace, what MLflow finds it by
TAG = "mlflow.traceTag."  # before the name of a tag of the whole trace, an attribute of its first span
OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
AGENT, DATA_SOURCE = "gen_ai.agent.name", "gen_ai.data_source.id"
REQUEST_MODEL, RESPONSE_MODEL = "gen_ai.request.model", "gen_ai.response.model"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
ERROR = "error.type"
OWN = "revelator"  # the agent, and the provider of its own models
AGENT_SPANS = ("ask", "executor")  # of the client and of the service

Completing = Literal["chat", "text_completion"]  # what a model is asked to do
NO_ATTRIBUTES: Mapping[str, str] = {}
Block = AbstractContextManager[Any]
_tracer: Tracer | None = None
_NOTHING: Block = nullcontext()


def find_endpoint() -> str | None:
    """Where spans go, as the environment says."""
    if whole := os.environ.get(TRACES_ENDPOINT):
        return whole
    base = os.environ.get(ENDPOINT)
    return f"{base.rstrip('/')}/v1/traces" if base else None


def find_tracking_server() -> str | None:
    """The MLflow server that spans are sent to, by the environment: the address before the path of OTLP."""
    found = find_endpoint()
    return found.removesuffix("/v1/traces") if found else None


def start(service: str, tracer: Tracer | None = None) -> None:
    """From now on this process sends spans, with `tracer` or to the endpoint in the environment; without either it
    does nothing. `OTEL_SERVICE_NAME` and the other variables of the SDK hold."""
    global _tracer
    if tracer is not None:
        _tracer = tracer
    elif _tracer is None and (address := find_endpoint()):
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from revelator.span_exporter import LinkingExporter

        provider = TracerProvider(resource=Resource.create({"service.name": service}))
        provider.add_span_processor(BatchSpanProcessor(LinkingExporter(address, MODEL_ID)))
        _tracer = provider.get_tracer("revelator")


def may_hold_texts(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get(QUESTIONS_VARIABLE, "") not in ("", "0")


def describe_root(trace: Trace, span: Any = None) -> None:
    """Describes the root span of a finished question, by default the current span, so that MLflow's list of traces
    shows question and answer, and finds them by the version that planned (a tag of the trace)."""
    version = str(trace.versions.get("revelator", ""))
    describe(trace.question, trace.answers, attributes={f"{TAG}{VERSION}": version} if version else {}, span=span)


def describe_served(trace: Trace) -> None:
    """Describes the span of a served question, by which `rows: collected` knows it: the route, the plan and its
    language, what planned and what read, and MLflow's model of the version, to which the trace is linked."""
    about = {
        ROUTE: trace.route or "",
        VERSION: trace.versions.get("revelator", ""),
        PLAN_LANGUAGE: trace.plan_language,
        READER: ", ".join(trace.list_language_models()),
        MODEL_ID: trace.versions.get(MODEL_ID, ""),
    }
    sent = {name: said for name, said in about.items() if said or name in (ROUTE, VERSION)}
    describe(trace.question, trace.answers, trace.plan or "", sent)


def describe(
    asked: str,
    answers: Sequence[str],
    plan: str = "",
    attributes: Mapping[str, str] = NO_ATTRIBUTES,
    span: Any = None,
) -> None:
    """Adds attributes to a span, by default the current one; what was asked, planned and answered where spans may hold
    texts."""
    if _tracer is None:
        return
    from opentelemetry.trace import get_current_span

    span = span or get_current_span()
    span.set_attributes(dict(attributes))
    if may_hold_texts():
        span.set_attributes({INPUTS: asked, OUTPUTS: list(answers)})
        if plan:  # MLflow reads a text that is JSON, as a tree is, as its value: of a JSON string it keeps the text
            span.set_attribute(PLAN, json.dumps(plan, ensure_ascii=False))


def open_span(
    name: str, kind: str = "internal", parent: str | None = None, *, ends: bool = True, **attributes: str
) -> Block:
    """Opens a span for the block, below the current one or the one that the header `parent` names; `kind` as
    OpenTelemetry has it (internal, client, server). An exception marks it failed by its type alone. Unless it `ends`
    with the block, the caller ends what the block is given, which is None while spans are off."""
    if _tracer is None:
        return _NOTHING
    if name in AGENT_SPANS:
        attributes |= {OPERATION: "invoke_agent", AGENT: OWN, PROVIDER: OWN}
    return _start_span(_tracer, name, kind, parent, ends, {SPAN_TYPE: "CHAIN"} | attributes)


def open_retrieval(source: str) -> Block:
    """Opens a span for the search in a source of that name."""
    if _tracer is None:
        return _NOTHING
    attributes = {SPAN_TYPE: "RETRIEVER", OPERATION: "retrieval", PROVIDER: OWN, DATA_SOURCE: source}
    return _start_span(_tracer, f"retrieval {source}", "client", None, True, attributes)


def open_completion(operation: Completing, model: str, provider: str = OWN) -> Block:
    """Opens a span for one answer of a model; give what the block is given to `describe_completion`."""
    if _tracer is None:
        return _NOTHING
    attributes = {SPAN_TYPE: "LLM", OPERATION: operation, PROVIDER: provider, REQUEST_MODEL: model}
    return _start_span(_tracer, f"{operation} {model}", "client", None, True, attributes)


def describe_completion(span: Any, model: str, tokens_in: int, tokens_out: int) -> None:
    """Writes into the span of `open_completion` which model answered, and its tokens where they are known."""
    if span is None:
        return
    if model:
        span.set_attribute(RESPONSE_MODEL, model)
    if tokens_in or tokens_out:
        span.set_attributes({INPUT_TOKENS: tokens_in, OUTPUT_TOKENS: tokens_out})


@contextmanager
def _start_span(
    tracer: Tracer, name: str, kind: str, parent: str | None, ends: bool, attributes: dict[str, str]
) -> Iterator[Any]:
    from opentelemetry.trace import SpanKind, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContextTextMapPropagator().extract({HEADER: parent}) if parent else None
    with tracer.start_as_current_span(
        name,
        context,
        SpanKind[kind.upper()],
        attributes,
        record_exception=False,
        set_status_on_exception=False,
        end_on_exit=ends,
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)  # the error's text may quote a question
            span.set_attribute(ERROR, type(error).__name__)
            raise


def flush() -> None:
    """Sends the spans that have ended so far, and waits until they are there or 30 s are over."""
    if _tracer is not None:
        _tracer.span_processor.force_flush()  # type: ignore[attr-defined]  # the SDK's, the only one that is used


def make_headers() -> dict[str, str]:
    """Returns the header that continues the current trace in another process; nothing without a trace."""
    if _tracer is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return {HEADER: carrier[HEADER]} if HEADER in carrier else {}


def find_trace_id() -> str:
    """The id of the current trace, 32 hexadecimal digits; "" without one. MLflow calls the trace `tr-` and the id."""
    return make_headers().get(HEADER, "--").split("-")[1]
