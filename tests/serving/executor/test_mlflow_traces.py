"""Spans of a question in MLflow's own trace store: a real tracking server takes what the executor tells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pytest

from revelator import registry, spans
from serving.deploy.deploy import deploy
from serving.models.releases import Canary, Traffic, VersionChoice, read_release, write_release
from tests.serving.executor.world import Toy
from tests.serving.inspector.world import MODEL
from tests.serving.toy_model import write_adapter
from tests.tracking_server import telling_spans

QUESTION, PLAN = "Where was A's director born?", "Who directed A? * Where was {director} born?"


@pytest.fixture
def experiment(tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with telling_spans(tracking_server, tmp_path, monkeypatch) as number:
        yield number


async def ask(toy: type[Toy]) -> None:
    world = toy({"Who directed A?": ["Ada Quill"], "Where was Ada Quill born?": ["Ayr"]})
    with spans.open_span("executor", "server"):
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
    assert {("executor", "CHAIN"), ("atomic", "CHAIN"), ("search", "CHAIN"), ("relevance", "CHAIN")} <= found
    assert ("retrieval retriever", "RETRIEVER") in found
    [root] = [span for span in trace.data.spans if span.parent_id is None]
    assert root.attributes[spans.VERSION] == "7"
    told = json.dumps(trace.to_dict())
    assert "Ada Quill" not in told and "director" not in told


@pytest.mark.parametrize("canary", [False, True])
async def test_a_trace_is_found_by_the_model_of_the_version_that_answered(
    toy: type[Toy], experiment: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: bool
) -> None:
    """By MLflow's own search, which is what its page of a version shows. What the spans tell of the trace stays."""
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    for seed in (1, 2):
        registry.register_adapter(write_adapter(tmp_path / str(seed), base, seed), tmp_path.name)
    first, second = (registry.resolve(tmp_path.name, number) for number in (1, 2))
    deploy(tmp_path / "home", first)
    if canary:
        beside = Canary(2, 1.0, "", second.model_id)
        write_release(tmp_path / "home", replace(read_release(tmp_path / "home"), canary=beside))
    answering, other = (second, first) if canary else (first, second)
    world = toy({"Who directed A?": ["Ada Quill"], "Where was Ada Quill born?": ["Ayr"]})
    with spans.open_span("ask", "client"):
        with Traffic(tmp_path / "home").choose_version("a") as choice, spans.open_span("executor", "server"):
            trace = await world.executor().run(QUESTION, plan=PLAN)
            choice.answered["revelator"].add(choice.version)  # as each call to a real one notes
            spans.describe_served(replace(trace, versions=choice.versions()))
        spans.describe_root(trace)
    client = mlflow.MlflowClient()
    [found] = client.search_traces([experiment], model_id=answering.model_id)
    assert client.search_traces([experiment], model_id=other.model_id) == []
    assert found.info.trace_id == read_trace(experiment).info.trace_id and found.info.state == "OK"
    assert QUESTION in found.info.request_preview and "Ayr" in found.info.response_preview
    assert {"ask", "executor", "search"} <= {span.name for span in found.data.spans}


async def test_a_question_that_two_versions_answered_is_linked_to_neither() -> None:
    choice = VersionChoice("1", model_id=MODEL)
    choice.answered["revelator"] |= {"1", "2"}
    assert choice.versions() == {"revelator": "1, 2"}


async def test_with_the_switch_spans_hold_what_was_asked_and_answered(
    toy: type[Toy], experiment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    await ask(toy)
    asked = {span.inputs: span.outputs for span in read_trace(experiment).data.spans if span.inputs}
    assert asked[QUESTION] == ["Ayr"] and asked["Where was Ada Quill born?"] == ["Ayr"]
