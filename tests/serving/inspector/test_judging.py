"""What a person says of a run is kept in MLflow, on the run's own trace; the page says it by buttons."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest

from tests.serving.inspector.test_page import ask, browser, expect, needs_browser, opened  # noqa: F401  a fixture
from tests.serving.inspector.world import PLAN, QUESTION, Asked, inspecting, runs_in
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


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "says nothing"),
        ({"comment": "nice"}, "says nothing"),
        ({"plan": "Where was {director} born?"}, "cannot be run"),
        ({"right": "yes"}, "right"),
        ({"right": True, "comment": "x" * 2_001}, "comment"),
    ],
)
def test_a_judgement_that_cannot_be_kept_is_refused_and_nothing_is(judged: str, body: Any, reason: str) -> None:
    run = put_question(judged)
    status, [refusal] = send(f"{judged}/api/runs/{run['id']}/judgement", body)
    assert status == 400 and reason in json.dumps(refusal)
    assert read_assessments(run) == {} and send(f"{judged}/api/runs/{run['id']}")[1][0]["judged"] is None


def test_a_run_that_mlflow_was_not_told_of_says_how_it_would_be(address: str) -> None:
    run = put_question(address)
    status, [refusal] = send(f"{address}/api/runs/{run['id']}/judgement", {"right": True})
    assert status == 400 and "OTEL_EXPORTER_OTLP_ENDPOINT" in refusal["error"]["hint"] and run["trace_id"] == ""


@pytest.fixture
def page(browser, judged: str) -> Iterator[Any]:  # noqa: F811
    yield from opened(browser, judged)


@needs_browser
def test_the_page_says_it_by_buttons_and_shows_what_was_said(page: Any) -> None:
    ask(page)
    page.get_by_label("Comment").fill("as the book has it")
    page.get_by_role("button", name="Right", exact=False).first.click()
    expect(page.locator(".judging [aria-pressed=true]")).to_have_text("✓ Right")
    page.get_by_role("combobox", name="Filter runs").select_option("judged right")
    expect(page.locator(".runs [aria-current]")).to_contain_text("judged right")
    page.get_by_role("button", name="This plan is right").click()
    expect(page.locator(".judging [aria-pressed=true]")).to_have_count(2)
    page.reload()
    expect(page.locator(".judging [aria-pressed=true]")).to_have_count(2)
    expect(page.get_by_label("Comment")).to_have_value("as the book has it")


@needs_browser
def test_the_page_asks_for_no_judgement_that_nobody_would_keep(browser: Any, address: str) -> None:  # noqa: F811
    for page in opened(browser, address):
        ask(page)
        expect(page.locator(".judging")).to_have_count(0)
