"""The cost model: its laws, and the way from a measured run to a prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from evaluation.costs.command import FORMAT, measure_command, predict_command, read_times
from evaluation.costs.model import (
    STATIONS,
    Demand,
    Load,
    Prices,
    ServiceTimes,
    analyse_mean_values,
    count_demand,
    predict,
    size_deployment,
)
from evaluation.costs.service_times import average_calls
from evaluation.harness.folder import Cost
from revelator.errors import ArtifactError, DataError
from revelator.files import write_json
from revelator.trace import Node, Trace

SECONDS = st.floats(0.001, 5)
ONE = dict.fromkeys(STATIONS, 1)


@given(st.lists(SECONDS, min_size=1, max_size=4), st.floats(0, 5), st.integers(1, 40))
def test_throughput_keeps_within_the_bounds_of_a_closed_network(
    demands: list[float], delay: float, customers: int
) -> None:
    throughput, latency = analyse_mean_values(demands, delay, customers)
    assert throughput * latency == pytest.approx(customers)  # Little's law
    assert throughput <= min(1 / max(demands), customers / (sum(demands) + delay)) * (1 + 1e-9)
    if customers > 1:
        assert throughput >= analyse_mean_values(demands, delay, customers - 1)[0] * (1 - 1e-9)


def test_the_classical_case_of_two_equal_stations() -> None:
    """N customers over two balanced stations without delay: N / (N + 1) of a station's rate (Lazowska et al. 1984)."""
    for customers in (1, 2, 5, 50):
        assert analyse_mean_values([0.5, 0.5], 0.0, customers)[0] == pytest.approx(2 * customers / (customers + 1))


@given(SECONDS, SECONDS, SECONDS, st.integers(1, 16), st.integers(1, 64))
def test_more_gpus_never_slow_a_question_and_the_bill_is_that_of_the_hours(
    revelator: float, retriever: float, generator: float, gpus: int, inside: int
) -> None:
    demand = Demand({"revelator": revelator, "retriever": retriever, "generator": generator}, 0.01, 2.0)
    one, more = (predict(demand, ONE | {"revelator": n}, inside, Prices(gpu_hour=3.6)) for n in (gpus, gpus + 1))
    assert more.throughput >= one.throughput * (1 - 1e-9) and 0 < one.utilisation <= 1
    assert one.cost == pytest.approx(gpus / one.throughput)  # 3.6 an hour is 1 for 1,000 seconds
    assert more.cost >= one.cost * (1 - 1e-9)


def test_demand_is_calls_times_seconds_and_an_unmeasured_task_is_named() -> None:
    times = ServiceTimes({"route": 0.1, "relevance": 0.02}, 0.5, 0.25, 0.01)
    counted = [Cost(model_calls={"route": 1, "relevance": 10}, retrievals=2, generator_calls=3), Cost()]
    demand = count_demand(counted, times)
    assert demand.seconds == pytest.approx({"revelator": 0.15, "retriever": 0.5, "generator": 0.375})
    assert demand.generator_calls == 1.5
    with pytest.raises(DataError, match="end, refine"):
        count_demand([Cost(model_calls={"end": 1, "refine": 1})], times)


def test_service_times_are_means_over_the_calls_of_traces_and_the_rest_is_overhead() -> None:
    def call(task: str, count: int, ms: float) -> dict[str, object]:
        return {"task": task, "count": count, "ms": ms}

    leaf = Node("1", "atomic", "q", detail={"calls": [call("search", 1, 10), call("relevance", 10, 50)]})
    read = Node("2", "merge", "q", detail={"calls": [call("read", 1, 30), call("merge", 1, 10)]})
    tree = Node("1", "atomic", "q", detail={"sources": [{"source": "text", "searches": 3, "ms": 50}]})
    copied = Node("2", "atomic", "q", detail={"shared_from": "1", "sources": [{"searches": 9, "ms": 900}]})
    one = Trace("q", "compile", nodes=[leaf, read], wall_ms=120)
    other = Trace("q", "atomic", nodes=[tree, copied], wall_ms=60)
    times = average_calls([one, other])
    assert times.tasks == pytest.approx({"relevance": 0.005})
    assert (times.search, times.reading, times.overhead) == pytest.approx((0.06 / 4, 0.02, 0.03 / 2))


def test_a_run_of_this_machine_is_measured_and_its_own_throughput_predicted(tmp_path: Path, index: Path) -> None:
    from tests.evaluation.test_evaluate import call, config

    call(config(tmp_path, index), "--out", str(tmp_path / "run"))
    arguments = [str(tmp_path / "run"), "--out", str(tmp_path / "t.json"), "--questions", "3", "--concurrency", "2"]
    done = CliRunner().invoke(measure_command, arguments, catch_exceptions=False)
    assert "questions in flight" in done.output
    times = read_times(tmp_path / "t.json")
    assert times.tasks == {} and times.search > 0 and times.reading > 0
    [checked] = json.loads((tmp_path / "t.json").read_text())["checks"]
    assert checked["questions"] == 3 and checked["measured"] > 0 and checked["predicted"] > 0


def test_a_file_that_is_no_service_times_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "t.json", {"format": "other"})
    with pytest.raises(ArtifactError, match="no service times"):
        arguments = [str(tmp_path), "--times", str(tmp_path / "t.json")]
        CliRunner().invoke(predict_command, arguments, catch_exceptions=False)


def test_each_strategy_is_predicted_from_the_calls_that_its_run_counted(tmp_path: Path) -> None:
    from tests.evaluation.report_runs import write_runs

    auto, rag, *_ = write_runs(tmp_path / "runs", "0" * 64, count=6)
    times = {"tasks": {"route": 0.01, "relevance": 0.02}, "search": 0.01, "reading": 0.05, "overhead": 0.001}
    write_json(tmp_path / "t.json", {"format": FORMAT, "times": times})
    arguments = [str(auto), str(rag), "--times", str(tmp_path / "t.json"), "--gpus", "1", "--gpus", "4"]
    done = CliRunner().invoke(predict_command, [*arguments, "--gpu-hour", "2", "--json"], catch_exceptions=False)
    lines = json.loads(done.output)
    assert [(line["system"], line["gpus"], line["concurrency"]) for line in lines] == [
        (system, gpus, inside) for system in ("auto", "naive RAG, k=5") for gpus in (1, 4) for inside in (1, 16)
    ]
    alone = lines[0]
    assert alone["latency"] == pytest.approx(0.01 + 10 * 0.02 + 2 * 0.01 + 2 * 0.05 + 0.001)
    assert lines[1]["bottleneck"] == "revelator" and lines[3]["bottleneck"] == "generator"


def test_searches_and_the_index_grow_with_the_corpus_and_servers_with_the_rate() -> None:
    demand = Demand({"revelator": 1.0, "retriever": 0.01, "generator": 0.0}, 0.01, 2.0)
    index = {"passages": 100_000, "bytes": 1_000_000_000}
    few = size_deployment(demand, Load(1), Prices(), index)
    assert (few.servers, few.passages, few.index_gb) == ({"revelator": 2, "retriever": 2}, 100_000, 1.0)
    many = size_deployment(demand, Load(100, passages=10_000_000), Prices(gpu_hour=2, calls=1), index)
    assert many.servers == {"revelator": 167, "retriever": 167}  # 100 a second at 1 s each, 60 % of the time at work
    assert many.index_gb == 100 and many.month == 167 * 2 * 730 + 2 * 100 * 730 * 3600 / 1000


def test_servers_for_a_rate_are_printed_for_each_system(tmp_path: Path) -> None:
    from tests.evaluation.report_runs import write_runs

    auto, *_ = write_runs(tmp_path / "runs", "0" * 64, count=6)
    times = {"tasks": {"route": 0.01, "relevance": 0.02}, "search": 0.01, "reading": 0.05, "machine": "this one"}
    write_json(tmp_path / "t.json", {"format": FORMAT, "times": times})
    arguments = [str(auto), "--times", str(tmp_path / "t.json"), "--rate", "1", "--rate", "100"]
    done = CliRunner().invoke(predict_command, [*arguments, "--json"], catch_exceptions=False)
    assert [(line["rate"], line["servers"]["revelator"]) for line in json.loads(done.output)] == [(1, 2), (100, 35)]
    assert "this one" in CliRunner().invoke(predict_command, arguments, catch_exceptions=False).output
