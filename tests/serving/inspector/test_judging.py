"""What a person says of a run is kept in MLflow, on the run's own trace; the page says it by buttons."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow
import pytest
from click.testing import CliRunner
from playwright.sync_api import expect

from data_gen.questions import AnnotatedQuestion
from revelator import spans
from revelator.cli import revelator
from tests.serving.inspector.test_page import ask, opened
from tests.serving.inspector.world import MODEL, PLAN, QUESTION, Asked, inspecting, runs_in
from tests.tracking_server import telling_spans


@pytest.fixture
def judged(tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An inspector whose spans go to a tracking server, which keeps what is said of them."""
    asked = [Asked("127.0.0.1:8001", "7").server()]
    with (
        telling_spans(tracking_server, tmp_path, monkeypatch),
        inspecting(asked, runs_in(tmp_path), tracking_uri=tracking_server) as url,
    ):
        yield url


def send(url: str, body: dict[str, Any] | None = None) -> tuple[int, list[dict[str, Any]]]:
    data = json.dumps(body).encode() if body is not None else None
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
    try:
        with urllib.request.urlopen(asked, timeout=60) as reply:
            return reply.status, [json.loads(line) for line in reply.read().splitlines()]
    except urllib.error.HTTPError as error:
        return error.code, [json.loads(error.read())]


def put_question(address: str) -> dict[str, Any]:
    _, events = send(f"{address}/api/runs", {"question": QUESTION})
    [run] = send(f"{address}/api/runs/{events[-1]['run']}")[1]
    return run


def leaf_of(run: dict[str, Any]) -> dict[str, Any]:
    return next(node for node in run["trace"]["nodes"] if node["kind"] == "atomic" and node["documents"])


def collect(tmp_path: Path, server: str) -> list[AnnotatedQuestion]:
    out = tmp_path / "out"
    config = tmp_path / "collect.yaml"
    config.write_text(json.dumps({"rows": "collected", "experiment": tmp_path.name}))
    ran = CliRunner().invoke(revelator, ["data", "build", str(config), "--out", str(out)])
    assert ran.exit_code == 0, ran.output
    lines = (out / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [AnnotatedQuestion.from_json(json.loads(line)) for line in lines]


def read_assessments(run: dict[str, Any]) -> dict[str, Any]:
    trace = mlflow.get_trace(f"tr-{run['trace_id']}")
    return {said.name: said for said in trace.info.assessments}


def test_a_verdict_its_comment_and_the_right_plan_are_kept_on_the_trace_of_the_run(judged: str) -> None:
    run = put_question(judged)
    status, [after] = send(f"{judged}/api/runs/{run['id']}/judgement", {"right": False, "comment": "Detroit, Texas"})
    assert status == 200 and after["judged"] == {"right": False, "comment": "Detroit, Texas"}
    status, [after] = send(f"{judged}/api/runs/{run['id']}/judgement", {"plan": PLAN})
    assert after["judged"] == {"right": False, "comment": "Detroit, Texas", "plan": PLAN}
    assert send(f"{judged}/api/runs/{run['id']}")[1] == [after]
    said = read_assessments(run)
    assert (said["correct"].value, said["correct"].rationale) == (False, "Detroit, Texas")
    assert said["plan"].value == PLAN and said["plan"].source.source_type == "HUMAN"


def test_a_right_plan_alone_is_a_judgement_and_the_list_of_runs_goes_on(judged: str) -> None:
    run = put_question(judged)
    status, [after] = send(f"{judged}/api/runs/{run['id']}/judgement", {"plan": PLAN})
    assert (status, after["judged"]) == (200, {"plan": PLAN})
    status, [listed] = send(f"{judged}/api/runs")
    assert status == 200 and [one["id"] for one in listed] == [run["id"]]


def test_a_query_is_corrected_in_its_own_language_and_collected_in_it(
    judged: str, tmp_path: Path, tracking_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    _, events = send(f"{judged}/api/runs", {"question": QUESTION, "plan": '"UHF"', "language": "logic"})
    run = send(f"{judged}/api/runs/{events[-1]['run']}")[1][0]
    assert (run["trace"]["strategy"], run["trace"]["plan_language"]) == ("logic", "logic")
    say = f"{judged}/api/runs/{run['id']}/judgement"
    assert send(say, {"plan": PLAN})[0] == 400, "this is no logical query"
    assert send(say, {"plan": '"director" AND "UHF"'})[0] == 200
    [row] = collect(tmp_path, tracking_server)
    assert (row.query, row.expression, row.tasks) == ('"director" AND "UHF"', "", ("relevance", "translate_logic"))


def test_a_judgement_that_cannot_be_kept_is_refused_and_nothing_is(judged: str) -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({}, "says nothing"),
        ({"comment": "nice"}, "says nothing"),
        ({"plan": "Where was {director} born?"}, "cannot be run"),
        ({"right": "yes"}, "right"),
        ({"right": True, "comment": "x" * 2_001}, "comment"),
        ({"relevant": {"2": {"no such document": True}}}, "found no document"),
        ({"relevant": {"nowhere": {"1": True}}}, "found no document"),
        ({"relevant": {"2": {"1": "yes"}}}, "relevant"),
    ]
    run = put_question(judged)
    for body, reason in refusals:
        status, [refusal] = send(f"{judged}/api/runs/{run['id']}/judgement", body)
        assert status == 400 and reason in json.dumps(refusal), body
    assert read_assessments(run) == {} and send(f"{judged}/api/runs/{run['id']}")[1][0]["judged"] is None


def test_what_is_said_of_documents_is_kept_with_their_text_and_collected(
    judged: str, tmp_path: Path, tracking_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    run = put_question(judged)
    leaf = leaf_of(run)
    first, second = leaf["documents"]
    say = f"{judged}/api/runs/{run['id']}/judgement"
    send(say, {"relevant": {leaf["id"]: {first["id"]: False}}})
    status, [after] = send(say, {"relevant": {leaf["id"]: {first["id"]: True, second["id"]: False}}})
    assert status == 200 and after["judged"] == {"relevant": {leaf["id"]: {first["id"]: True, second["id"]: False}}}
    [row] = collect(tmp_path, tracking_server)
    assert row.tasks == ("relevance",), "nobody said that the plan is right"
    assert [(p.asked, p.id, p.text, p.relevant) for p in row.passages] == [
        (leaf["asked"], first["id"], first["text"], True),
        (leaf["asked"], second["id"], second["text"], False),
    ]


def test_a_question_whose_server_was_killed_before_it_told_its_spans_is_collected_once(
    judged: str, tmp_path: Path, tracking_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor of these tests tells no span of the whole question, as a server that dies within seconds of its
    answer does. The second word finds the question told by the first; saying it again makes no second row."""
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    run = put_question(judged)
    for said in ({"right": True}, {"right": True}, {"plan": PLAN}):
        assert send(f"{judged}/api/runs/{run['id']}/judgement", said)[0] == 200
    told = mlflow.get_trace(f"tr-{run['trace_id']}").data.spans
    assert sum(spans.ROUTE in span.attributes for span in told) == 1
    experiment = mlflow.MlflowClient().get_experiment_by_name(tmp_path.name).experiment_id
    [linked] = mlflow.MlflowClient().search_traces([experiment], model_id=MODEL)
    assert linked.info.trace_id == f"tr-{run['trace_id']}", "MLflow lists it under the version that answered"
    [row] = collect(tmp_path, tracking_server)
    assert (row.question, row.expression, row.teacher) == (QUESTION, PLAN, "person:7")


def test_a_judgement_that_is_killed_at_any_moment_and_made_again_is_kept_once(
    judged: str, tmp_path: Path, tracking_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    run = put_question(judged)
    leaf = leaf_of(run)
    documents = {passage["id"]: number == 0 for number, passage in enumerate(leaf["documents"])}
    said = {"right": False, "comment": "Detroit, Texas", "plan": PLAN, "relevant": {leaf["id"]: documents}}
    experiment = mlflow.MlflowClient().get_experiment_by_name(tmp_path.name).experiment_id
    command = [sys.executable, "-m", "tests.serving.inspector.kill_judgements", tracking_server, experiment]
    command += [str(tmp_path / "inspected"), run["id"], json.dumps(said)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    *kills, ended = map(json.loads, ran.stdout.splitlines())
    assert len(kills) > 5 and all(kill["status"] == -signal.SIGKILL for kill in kills)
    assert ended == {"status": 0, "judged": said}, ran.stderr
    trace = mlflow.get_trace(f"tr-{run['trace_id']}")
    assert sorted(word.name for word in trace.info.assessments) == ["correct", "plan", "relevance", "relevance"]
    assert sum(spans.ROUTE in span.attributes for span in trace.data.spans) == 1
    assert trace.info.trace_metadata[spans.MODEL_ID] == MODEL
    [row] = collect(tmp_path, tracking_server)
    assert (row.expression, len(row.passages)) == (PLAN, 2)


def test_words_that_are_said_at_once_are_all_kept_and_a_second_click_adds_none(judged: str) -> None:
    run = put_question(judged)
    said = [{"right": True}, {"plan": PLAN}, {"right": True}]
    with ThreadPoolExecutor(len(said)) as people:
        list(people.map(lambda word: send(f"{judged}/api/runs/{run['id']}/judgement", word), said))
    [after] = send(f"{judged}/api/runs/{run['id']}")[1]
    assert after["judged"] == {"right": True, "plan": PLAN}
    words = mlflow.get_trace(f"tr-{run['trace_id']}").info.assessments
    assert sorted(word.name for word in words) == ["correct", "plan"]


def test_what_is_said_again_after_another_word_is_the_last_word(judged: str) -> None:
    run = put_question(judged)
    for right in (True, True, False, True):
        assert send(f"{judged}/api/runs/{run['id']}/judgement", {"right": right})[0] == 200
    words = mlflow.get_trace(f"tr-{run['trace_id']}").info.assessments
    assert [word.value for word in sorted(words, key=lambda word: word.create_time_ms)] == [True, False, True]


@pytest.mark.parametrize("texts", ["1", "0"])
def test_mlflows_list_of_traces_shows_question_and_answer_where_spans_may_hold_texts(
    judged: str, monkeypatch: pytest.MonkeyPatch, texts: str
) -> None:
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, texts)
    told = mlflow.get_trace(f"tr-{put_question(judged)['trace_id']}").info
    shown = f"{told.request_preview} {told.response_preview}"
    assert all((text in shown) == (texts == "1") for text in (QUESTION, "Detroit"))
    assert told.tags[spans.VERSION] == "7", "traces of a version are found by it"


def test_a_run_that_mlflow_was_not_told_of_says_how_it_would_be(address: str) -> None:
    run = put_question(address)
    status, [refusal] = send(f"{address}/api/runs/{run['id']}/judgement", {"right": True})
    assert status == 400 and "OTEL_EXPORTER_OTLP_ENDPOINT" in refusal["error"]["hint"] and run["trace_id"] == ""


@pytest.fixture
def page(browser, judged: str) -> Iterator[Any]:
    yield from opened(browser, judged)


def test_the_page_says_it_by_buttons_and_shows_what_was_said(page: Any) -> None:
    ask(page)
    page.get_by_label("Comment").fill("as the book has it")
    page.get_by_role("button", name="✓ Right").click()
    expect(page.locator(".judging [aria-pressed=true]")).to_have_text("✓ Right")
    page.get_by_role("combobox", name="Filter runs").select_option("judged right")
    expect(page.locator(".runs [aria-current]")).to_contain_text("judged right")
    page.reload()
    expect(page.locator(".judging [aria-pressed=true]")).to_have_text("✓ Right")
    expect(page.get_by_label("Comment")).to_have_value("as the book has it")


def test_a_plan_is_corrected_by_writing_it_and_one_click(page: Any) -> None:
    ask(page)
    right, run = "Who directed UHF? * When was {director} born?", page.url.partition("?run=")[2]
    button = page.get_by_role("button", name="This plan is right")
    expect(button).to_have_attribute("aria-pressed", "false")
    page.evaluate("window.clicks = 0; addEventListener('click', () => (window.clicks += 1), true)")
    page.get_by_label("Comment").fill("asked for a place")
    page.get_by_role("textbox", name="Plan").fill("Who directed {film}?")
    expect(button).to_be_disabled()
    page.get_by_role("textbox", name="Plan").fill(right)
    expect(page.locator(".fine")).to_be_visible()
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".corrected code")).to_have_text(right)
    assert page.evaluate("window.clicks") == 1, "what docs/loop.md says that a correction costs"
    expect(page.get_by_label("Comment")).to_have_value("asked for a place")
    page.get_by_role("combobox", name="Filter runs").select_option("plan judged")
    expect(page.locator(".runs [aria-current]")).to_contain_text("plan judged")
    page.reload()
    expect(page.locator(".corrected code")).to_have_text(right)
    address = page.url.partition("/?")[0]
    [kept] = send(f"{address}/api/runs")[1][0]
    assert kept["id"] == run, "nothing ran again"
    assert read_assessments(send(f"{address}/api/runs/{run}")[1][0])["plan"].value == right


def test_undoing_an_edit_leaves_the_button_that_keeps_the_plan(page: Any) -> None:
    ask(page)
    page.get_by_role("textbox", name="Plan").fill("Who directed UHF?")
    page.get_by_role("button", name="As it was").click()
    page.get_by_role("button", name="This plan is right").click()
    expect(page.get_by_role("button", name="This plan is right")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".corrected")).to_have_count(0)


def test_documents_are_not_judged_where_traces_hold_no_texts(judged: str) -> None:
    run = put_question(judged)
    leaf = leaf_of(run)
    said = {"relevant": {leaf["id"]: {leaf["documents"][0]["id"]: True}}}
    status, [refusal] = send(f"{judged}/api/runs/{run['id']}/judgement", said)
    assert status == 400 and "REVELATOR_LOG_QUESTIONS" in refusal["error"]["hint"] and read_assessments(run) == {}


def test_each_document_of_a_step_is_marked_as_relevant_or_not(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spans.QUESTIONS_VARIABLE, "1")
    ask(page)
    page.locator(".row", has_text="Who directed UHF? → Jay Levey").click()
    documents = page.locator(".detail details.document")
    expect(documents).to_have_count(2)
    documents.nth(0).get_by_role("button", name="relevant", exact=True).click()
    expect(documents.nth(0).locator("[aria-pressed=true]")).to_have_text("relevant")
    documents.nth(1).locator("summary").click()
    documents.nth(1).get_by_role("button", name="not relevant").click()
    expect(documents.nth(1).locator("[aria-pressed=true]")).to_have_text("not relevant")
    page.reload()
    page.locator(".row", has_text="Who directed UHF? → Jay Levey").click()
    expect(page.locator(".detail .document [aria-pressed=true]")).to_have_text(["relevant", "not relevant"])


def test_the_page_asks_for_no_judgement_that_nobody_would_keep(browser: Any, address: str) -> None:
    for page in opened(browser, address):
        ask(page)
        expect(page.locator(".judging")).to_have_count(0)
        expect(page.get_by_role("button", name="This plan is right")).to_be_hidden()
