"""Spans of a question in MLflow's own trace store: a real tracking server takes what the executor tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from revelator import spans
from tests.serving.executor.world import Toy
from tests.tracking_server import telling_spans

QUESTION, PLAN = "Where was A's director born?", "Who directed A? * Where was {director} born?"


@pytest.fixture
def experiment(tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with telling_spans(tracking_server, tmp_path, monkeypatch) as number:
        yield number


async def ask(toy: type[Toy]) -> None:
    world = toy({"Who directed A?": ["Ada Quill"], "Where was Ada Quill born?": ["Ayr"]})
    with spans.span("executor", "server"):
        trace = await world.executor().run(QUESTION, plan=PLAN)
        spans.describe(trace.question, trace.answers, PLAN, {spans.VERSION: "7"})
    assert trace.answers == ["Ayr"]


def read_trace(experiment: str) -> Any:
    [trace] = mlflow.MlflowClient().search_traces([experiment])
    return trace


async def test_mlflow_lists_a_question_as_a_trace_of_typed_spans_without_its_words(
    toy: type[Toy], experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(spans.QUESTIONS_VARIABLE, raising=False)
    await ask(toy)
    trace = read_trace(experiment)
    found = {(span.name, span.span_type) for span in trace.data.spans}
    assert {("executor", "CHAIN"), ("atomic", "CHAIN"), ("search", "RETRIEVER"), ("relevance", "LLM")} <= found
    [root] = [span for span in trace.data.spans if span.parent_id is None]
    assert root.attributes[spans.VERSION] == "7"
    told = json.dumps(trace.to_dict())
    assert "Ada Quill" not in told and "director" not in told


async def test_with_the_switch_spans_hold_what_was_asked_and_answered(
    toy: type[Toy], experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    await ask(toy)
    asked = {span.inputs: span.outputs for span in read_trace(experiment).data.spans if span.inputs}
    assert asked[QUESTION] == ["Ayr"] and asked["Where was Ada Quill born?"] == ["Ayr"]
