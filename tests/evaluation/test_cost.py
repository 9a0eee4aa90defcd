"""From the calls that traces hold to the servers that a rate of questions needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluation.cost import Demand, cost, size_deployment, sum_work
from evaluation.harness.run_metrics import measure_parts
from revelator.errors import DataError
from revelator.trace import Node, Trace


def call(task: str, count: int, ms: float) -> dict[str, object]:
    return {"task": task, "count": count, "ms": ms}


def test_the_work_of_a_question_is_the_mean_over_the_calls_of_traces() -> None:
    leaf = Node("1", "atomic", "q", detail={"calls": [call("search", 1, 10), call("relevance", 10, 50)]})
    spent = {"tokens_in": 300, "tokens_out": 20}
    read = Node("2", "merge", "q", detail={"calls": [call("read", 1, 30) | spent, call("merge", 1, 10) | spent]})
    tree = Node("1", "atomic", "q", detail={"sources": [{"source": "text", "searches": 3, "ms": 50}]})
    copied = Node("2", "atomic", "q", detail={"shared_from": "1", "sources": [{"searches": 9, "ms": 900}]})
    one = Trace("q", "compile", nodes=[leaf, read], wall_ms=120)
    other = Trace("q", "atomic", nodes=[tree, copied], wall_ms=60)
    parts = measure_parts([one, other])
    found = sum_work(parts)
    assert (found.revelator, found.retriever, found.generator) == pytest.approx((0.025, 0.03, 0.02))
    assert (found.tokens_in, found.tokens_out) == (
        300,
        20,
    )  # two calls in two questions
    assert parts["relevance"] == pytest.approx(
        {"calls": 5, "tokens_in": 0, "tokens_out": 0, "seconds": 0.025, "share": 1 / 3}
    )
    assert (parts["search"]["calls"], parts["reader"]["tokens_in"], parts["plan"]["calls"]) == (2, 300, 0)
    assert sum(part["share"] for part in parts.values()) == pytest.approx(1)
    with pytest.raises(DataError, match="no question of this run has a trace"):
        sum_work({})


def test_servers_grow_with_the_rate_and_the_bill_is_that_of_hours_and_calls() -> None:
    demand = Demand(revelator=1.0, retriever=0.01, generator=0.0, tokens_in=2_000, tokens_out=100)
    few = size_deployment(demand, 1, 0.6)
    assert (few.revelator, few.retriever, few.generator, few.month, few.question) == (2, 2, 0, 0, 0)
    many = size_deployment(demand, 100, 0.6, server_hour=2, tokens_in=0.5, tokens_out=2)
    assert (many.revelator, many.retriever) == (167, 2)  # 100 a second at 1 s each, 60 % of the time at work
    asked = 100 * 730 * 3600
    assert many.month == pytest.approx(167 * 2 * 730 + asked * (2_000 * 0.5 + 100 * 2) / 1e6)
    assert many.question == pytest.approx(many.month / asked)


def test_a_run_says_how_many_servers_each_rate_needs(tmp_path: Path, index: Path) -> None:
    from tests.evaluation.test_evaluate import call, config

    call(config(tmp_path, index), "--out", str(tmp_path / "run"))
    arguments = [str(tmp_path / "run"), "--rate", "1", "--rate", "1000"]
    found = json.loads(CliRunner().invoke(cost, [*arguments, "--json"], catch_exceptions=False).output)
    assert found["seconds"]["retriever"] > 0 and found["seconds"]["generator"] > 0 == found["seconds"]["revelator"]
    assert [(size["rate"], size["revelator"]) for size in found["sizes"]] == [(1, 0), (1000, 0)]
    assert found["sizes"][1]["generator"] >= found["sizes"][0]["generator"] >= 2
    assert "seconds of work a question" in CliRunner().invoke(cost, arguments, catch_exceptions=False).output
