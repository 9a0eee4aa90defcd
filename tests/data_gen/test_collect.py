"""Judged questions of a deployment become questions to learn from: a real tracking server holds traces and verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from click.testing import CliRunner
from mlflow.entities import AssessmentSource

from data_gen.questions import AnnotatedQuestion
from revelator import spans
from revelator.cli import revelator
from tests.tracking_server import telling_spans

PERSON = AssessmentSource(source_type="HUMAN", source_id="ana")
MODEL = AssessmentSource(source_type="LLM_JUDGE", source_id="judge")
PLAN = "Who directed A? * Where was {director} born?"
Ask = Callable[..., str]


@pytest.fixture
def ask(tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """Tells the tracking server of one served question, and gives the id of its trace."""
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    with telling_spans(tracking_server, tmp_path, monkeypatch) as number:

        def tell(question: str, plan: str = PLAN, route: str = "complex") -> str:
            before = {trace.info.trace_id for trace in mlflow.MlflowClient().search_traces([number])}
            with spans.span("executor", "server"):
                for asked, answer in (("Who directed A?", "Ada Quill"), ("Where was Ada Quill born?", "Ayr")):
                    with spans.span("atomic"):
                        spans.describe(asked, [answer])
                spans.describe(question, ["Ayr"], plan, {spans.ROUTE: route, spans.VERSION: "7"})
            [made] = {trace.info.trace_id for trace in mlflow.MlflowClient().search_traces([number])} - before
            return made

        yield tell


def collect(tmp_path: Path, server: str, *more: str, code: int = 0) -> Any:
    command = ["data", "collect", "--out", str(tmp_path / "out"), "--experiment", tmp_path.name]
    run = CliRunner().invoke(revelator, [*command, "--tracking-uri", server, "--json", *more])
    assert run.exit_code == code, run.output
    return json.loads(run.stdout) if code == 0 else run


def read_questions(tmp_path: Path) -> dict[str, AnnotatedQuestion]:
    lines = (tmp_path / "out" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [AnnotatedQuestion.from_json(json.loads(line)) for line in lines]
    return {row.question: row for row in rows}


def test_what_people_judged_is_collected_and_nothing_else(ask: Ask, tmp_path: Path, tracking_server: str) -> None:
    right, wrong, unjudged, mended = (ask(f"{name} question?") for name in ("Right", "Wrong", "Unjudged", "Mended"))
    mlflow.log_feedback(trace_id=right, name="correct", value=True, source=PERSON)
    mlflow.log_feedback(trace_id=wrong, name="correct", value=False, source=PERSON)
    mlflow.log_feedback(trace_id=unjudged, name="correct", value=True, source=MODEL)
    mlflow.log_expectation(trace_id=mended, name="plan", value="Who made it? + Who sold it?", source=PERSON)

    manifest = collect(tmp_path, tracking_server)
    rows = read_questions(tmp_path)
    assert set(rows) == {"Right question?", "Mended question?"} and manifest["questions"] == 2
    assert manifest["left_out"] == {"judged wrong, and not corrected": 1, "not judged by a person": 1}
    kept = rows["Right question?"]
    assert (kept.expression, kept.route, kept.answers, kept.teacher) == (PLAN, "complex", ("Ayr",), "served:7")
    assert [step.question for step in kept.steps] == ["Who directed A?", "Where was Ada Quill born?"]
    corrected = rows["Mended question?"]
    assert (corrected.expression, corrected.steps) == ("Who made it? + Who sold it?", ())
    assert (corrected.teacher, corrected.answers) == ("person", ())
    assert collect(tmp_path, tracking_server, "--feedback", "corrected")["questions"] == 1


def test_a_question_that_was_asked_twice_is_one_row_of_the_later_verdict(
    ask: Ask, tmp_path: Path, tracking_server: str
) -> None:
    for name, value in (("early", "Who made it?"), ("late", "Who sold it?")):
        mlflow.log_expectation(trace_id=ask("Same  question?" if name == "early" else "same question"), name="plan",
                               value=value, source=PERSON)  # fmt: skip
    assert collect(tmp_path, tracking_server)["left_out"] == {"asked again later": 1}
    assert [row.expression for row in read_questions(tmp_path).values()] == ["Who sold it?"]


@pytest.mark.parametrize(
    ("served", "plan", "route", "parts"),
    [
        ("complex", "Who made it?", "single", ()),
        ("compound", "Who made it? + Who sold it?", "compound", ("Who made it?", "Who sold it?")),
        ("single", "Who made it? + Who sold it?", "complex", ()),
    ],
)
def test_a_corrected_plan_corrects_the_route(
    ask: Ask, tmp_path: Path, tracking_server: str, served: str, plan: str, route: str, parts: tuple[str, ...]
) -> None:
    mlflow.log_expectation(trace_id=ask("A question?", route=served), name="plan", value=plan, source=PERSON)
    collect(tmp_path, tracking_server)
    [row] = read_questions(tmp_path).values()
    assert (row.route, row.parts, row.expression) == (route, parts, plan)


def test_a_correction_that_cannot_be_run_is_named_and_left_out(ask: Ask, tmp_path: Path, tracking_server: str) -> None:
    trace = ask("A question?")
    mlflow.log_expectation(trace_id=trace, name="plan", value="Where was {director} born?", source=PERSON)
    refused = collect(tmp_path, tracking_server, code=1).exception
    assert f"the plan of {trace} cannot be run: 1" in str(refused) and not (tmp_path / "out").exists()


def test_traces_without_texts_say_how_to_have_them(
    ask: Ask, tmp_path: Path, tracking_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(spans.QUESTIONS_VARIABLE)
    ask("A question?")
    refused = collect(tmp_path, tracking_server, code=1).exception
    assert "serve with --log-questions: 1" in str(refused)
