"""From unit costs to the machines and dollars of so many questions a second over so many passages."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from evaluation.cost import (
    FAISS,
    PARTS,
    CostConfig,
    Sizing,
    choose_engine,
    cost,
    list_figures,
    measure_work,
    read_costs,
    size_deployment,
    write_notes,
    write_table,
)
from evaluation.harness.run_metrics import measure_parts
from revelator.errors import ConfigError, DataError
from revelator.trace import Node, Trace
from serving.retrieval import neighbours
from serving.retrieval.dense import write_neighbours

DOCS = Path(__file__).parents[2] / "docs"
OURS = read_costs(None)
COUNTS = ("executors", "cpu_servers", "gpus", "engine_nodes")
DOLLARS = ("dollars_day_cpu", "dollars_day_gpu")

rates = st.floats(0.001, 1e6)
engines = st.sampled_from(sorted(OURS.engines))
passages = st.integers(1, 10**10)


def change(**values: Any) -> CostConfig:
    """Our figures with others, such as `load={"busy": 1}`."""
    ours = OURS.model_dump()
    return CostConfig.model_validate({**ours, **{name: {**ours[name], **value} for name, value in values.items()}})


configs = st.builds(
    lambda busy, peak, fewest, searches, at: change(
        load={"busy": busy, "peak_over_mean": peak, "fewest": fewest},
        work={"searches": searches, "reader": {**OURS.work.reader.model_dump(), "at": at}},
    ),
    st.floats(0.05, 1),
    st.floats(1, 10),
    st.integers(1, 4),
    st.floats(0, 10),
    st.sampled_from(["servers", "endpoint"]),
)


def size_or_skip(config: CostConfig, rate: float, count: int, engine: str) -> Sizing:
    """A sizing; the example is left out where a node cannot hold so many passages."""
    try:
        return size_deployment(config, rate, count, engine)
    except ConfigError:
        assume(False)
        raise


@given(configs, rates, rates, passages, engines)
def test_more_questions_never_take_less(config: CostConfig, one: float, other: float, count: int, engine: str) -> None:
    few, many = (size_or_skip(config, rate, count, engine) for rate in sorted((one, other)))
    for name in (*COUNTS, *DOLLARS, "memory_gib"):
        assert getattr(few, name) <= getattr(many, name), name


@given(configs, rates, passages, engines)
def test_twice_the_questions_take_at_most_twice_as_much_and_at_least_that_less_one(
    config: CostConfig, rate: float, count: int, engine: str
) -> None:
    once, twice = (size_or_skip(config, rate * times, count, engine) for times in (1, 2))
    for name in (*COUNTS, *DOLLARS, "memory_gib"):
        assert getattr(twice, name) <= 2 * getattr(once, name) * (1 + 1e-12), name
    for name in ("cpu_servers", "gpus"):
        if getattr(once, name) > config.load.fewest.value:
            assert getattr(twice, name) >= 2 * getattr(once, name) - 1, name


@given(configs, rates, passages, passages, engines)
def test_more_passages_never_take_less_of_one_engine(
    config: CostConfig, rate: float, one: int, other: int, engine: str
) -> None:
    few, many = (size_or_skip(config, rate, count, engine) for count in sorted((one, other)))
    for name in (*COUNTS, *DOLLARS):
        assert getattr(few, name) <= getattr(many, name), name


@given(rates, passages, engines, st.sampled_from(["dollars_hour", "units"]))
def test_a_dearer_machine_is_never_cheaper_and_a_larger_one_never_takes_more(
    rate: float, count: int, engine: str, field: str
) -> None:
    ours = OURS.model_dump()["cpu"]
    more = change(cpu={"machine": {**ours["machine"], field: 3 * ours["machine"][field]["value"]}})
    before, after = (size_or_skip(config, rate, count, engine) for config in (OURS, more))
    if field == "units":
        assert after.cpu_servers <= before.cpu_servers and after.dollars_day_cpu <= before.dollars_day_cpu
    else:
        assert after.cpu_servers == before.cpu_servers and after.dollars_day_cpu > before.dollars_day_cpu


def test_the_bill_is_that_of_machines_disk_and_tokens() -> None:
    config = change(
        load={"peak_over_mean": 2, "busy": 0.5, "memory_share": 1},
        executor={"core_seconds": 0.01, "core_seconds_a_search": 0.02, "memory_gib": 1},
        work={"searches": 2, "reader": {"at": "endpoint", "tokens_in": 1000, "tokens_out": 100}},
        endpoint={"dollars_a_million_in": 1, "dollars_a_million_out": 10},
        cpu={"plan": 90, "relevance": 2900},
        disk={"bytes_a_passage": 24, "dollars_gib_month": 365 / 12},
    )
    engine = {"bytes": 1024, "disk_bytes": 1000, "core_seconds": 0.05, "core_seconds_a_million": 0}
    engine |= {"sharded": True, "fixed_dollars_hour": 7, "machine": {"units": 4, "memory_gib": 1, "dollars_hour": 3}}
    config = CostConfig.model_validate({**config.model_dump(), "engines": {"own": engine}})
    found = size_deployment(config, 10, 3 * 2**20, "own")  # 3 GiB: three shards of one node
    assert (found.executors, found.cpu_servers, found.engine_nodes) == (2, 5, 6)  # 2 s of a core a question for models
    assert found.memory_gib == pytest.approx(2 * 3 + 2 * 1)
    hourly = 6 * 3 + 7 + 2 * 0.05 + 5 * 0.71
    tokens = 10 * 86_400 * (1000 * 1 + 100 * 10) / 1e6
    assert found.dollars_day_cpu == pytest.approx(24 * hourly + tokens + 2 * 3)
    many = size_deployment(config, 100, 3 * 2**20, "own")
    assert (many.executors, many.engine_nodes) == (20, 30)  # 100 * 2 * 2 searches of 3 * .05 s, on 4 cores half at work


def test_executors_run_on_the_nodes_of_an_index_that_is_not_a_service() -> None:
    alone = size_deployment(OURS, 1000, 10**9, "IVF-PQ")
    assert alone.executors == alone.engine_nodes > size_deployment(OURS, 1000, 10**9, "milvus").executors
    dear = change(executor={"machine": {"units": 1, "dollars_hour": 1000}})
    assert size_deployment(dear, 1000, 10**9, "IVF-PQ").dollars_day_cpu == alone.dollars_day_cpu


@pytest.mark.parametrize("count", [1, 99_999, 100_000, 1_999_999, 2_000_000, 10**9])
def test_faiss_is_the_index_that_a_build_chooses(count: int) -> None:
    chosen = neighbours.choose_factory(count, 384)
    assert choose_engine(OURS, FAISS, count) == ("IVF-PQ" if chosen.startswith("IVF") else chosen)
    assert not chosen.startswith("IVF") or chosen.endswith("PQ48")


@pytest.mark.parametrize(("factory", "engine"), [("HNSW32", "HNSW32"), ("IVF1,PQ48", "IVF-PQ")])
def test_the_bytes_of_a_passage_are_those_of_the_file(tmp_path: Path, factory: str, engine: str) -> None:
    vectors = np.random.default_rng(5).normal(size=(2_000, 384)).astype(np.float32)
    sizes = []
    for count in (1_000, 2_000):  # the difference leaves out what is there once, such as the centres
        write_neighbours(tmp_path, vectors[:count], factory, lambda *_: None)
        sizes.append((tmp_path / neighbours.FILE).stat().st_size)
    assert (sizes[1] - sizes[0]) / 1_000 == pytest.approx(OURS.engines[engine].bytes.value, abs=1)


def run_cost(*arguments: object) -> Any:
    return CliRunner().invoke(cost, [str(argument) for argument in arguments])


def test_json_says_what_the_table_says() -> None:
    asked = "--questions-per-second", "0.5", "--questions-per-second", 300, "--passages", 12_345_678, "--engine"
    found = json.loads(run_cost(*asked, "milvus", "--engine", "IVF-PQ", "--json").output)
    sizings = [Sizing(**one) for one in found["sizings"]]
    printed = run_cost(*asked, "milvus", "--engine", "IVF-PQ").output.splitlines()
    assert printed[: len(sizings) + 2] == write_table(sizings).splitlines()
    rows = [[cell.strip().replace(",", "") for cell in line.split("|")[1:-1]] for line in printed[2:6]]
    for row, one in zip(rows, sizings, strict=True):
        assert (float(row[0]), float(row[1]) * 1e6, row[2]) == (one.questions_per_second, one.passages, one.engine)
        values = [getattr(one, field.name) for field in fields(Sizing)[3:]]
        assert [int(cell) for cell in row[3:]] == [round(value) for value in values]
    assert found["figures"]["cpu.machine.units"] == OURS.cpu.machine.units.model_dump()


def test_the_notes_name_each_figure_of_the_engines_in_the_table_once() -> None:
    notes = write_notes(OURS, ["milvus"]).splitlines()
    named = [line.split()[0] for line in notes if line.startswith("  ")]
    wanted = [name for name, _ in list_figures(OURS) if not name.startswith(("engines.F", "engines.H", "engines.I"))]
    assert sorted(named) == sorted(wanted)


def test_the_page_shows_what_the_command_prints(tmp_path: Path) -> None:
    page = (DOCS / "operations.md").read_text(encoding="utf-8").partition("## What a deployment takes")[2]
    table = run_cost().output.partition("\n\n")[0]
    assert table.count("\n") == 19 and table in page
    read = {
        name: getattr(OURS.work, name).tokens_in.value + getattr(OURS.work, name).tokens_out.value for name in PARTS
    }
    plan, judge, reader = (tokens / getattr(OURS.cpu, name).value for name, tokens in read.items())
    text = " ".join(page.replace("0.", ".").split())
    said = (
        f"{plan + judge + reader:.2f} s of a core for a question of two steps, to plan {plan:.2f}, to judge {judge:.2f}"
    )
    assert f"{said}, to read {reader:.2f}".replace(" 0.", " .") in text
    assert "{:,.0f} to plan, {:,.0f} to judge, {:,.0f} to read".format(*read.values()) in text
    example = page.partition("```yaml\n")[2].partition("```")[0]
    assert read_costs(write(tmp_path, example)).work.reader.at == "endpoint"


def write(folder: Path, text: str) -> Path:
    (folder / "mine.yaml").write_text(text)
    return folder / "mine.yaml"


def test_a_file_replaces_figures_and_says_where_they_are_from(tmp_path: Path) -> None:
    text = """
        load: {busy: 0.5, peak_over_mean: 1e0}
        gpu: {reader: {value: 150_000, source: "measured: our load test"}}
        engines:
          own:
            bytes: 100
            disk_bytes: 0
            core_seconds: 0.001
            core_seconds_a_million: 0
            machine: {units: 8, memory_gib: 64, dollars_hour: 0.4}
    """
    found = read_costs(write(tmp_path, text))
    assert (found.load.busy.value, found.load.busy.source) == (0.5, "given: without a source")
    assert (found.load.peak_over_mean.value, found.load.fewest) == (1, OURS.load.fewest)
    assert found.gpu.reader.source == "measured: our load test" and found.gpu.plan == OURS.gpu.plan
    assert size_deployment(found, 1, 10**6, "own").engine_nodes == 2 and found.engines.keys() > OURS.engines.keys()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("load: {busy: 0}", "load.busy"),
        ("load: {busy: 1.5}", "is a share: at most 1"),
        ("load: {peak_over_mean: 0.5}", "must be 1 or more"),
        ("cpu: {plan: -3}", "cpu.plan = -3"),
        ("cpu: {plan: .nan}", "cpu.plan = nan"),
        ("cpu: {plan: .inf}", "cpu.plan = inf"),
        ("cpu: {plan: many}", "cpu.plan = 'many'"),
        ("cpu: {plan: true}", "cpu.plan = True: a mapping is needed"),
        ("cpu: {plan: {value: 3}}", "cpu.plan.source: this field is needed"),
        ("cpu: {plan: {value: 3, source: a hunch}}", "cpu.plan.source = 'a hunch'"),
        ("cpu: {plans: 3}", "cpu.plans = 3: there is no such field"),
        ("work: {plan: {at: home}}", "work.plan.at = 'home'"),
        ("engines: {own: {bytes: 3}}", "engines.own.machine: this field is needed"),
        ("- 3", "a mapping is needed"),
        ("", "a mapping is needed"),
    ],
)
def test_a_figure_that_is_none_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_costs(write(tmp_path, text))
    assert said in str(caught.value) and caught.value.where == str(tmp_path / "mine.yaml") and caught.value.hint


@pytest.mark.parametrize("option", ["--questions-per-second", "--passages"])
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "many", "1e40"])
def test_a_load_that_is_none_is_refused(option: str, value: str) -> None:
    done = run_cost(option, value)
    assert done.exit_code == 2 and f"Invalid value for '{option}'" in done.output


def test_a_size_that_no_node_holds_and_an_engine_that_nobody_described_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="IVF-PQ holds all passages on each node: 10,000,000,000 take 522 GiB"
    ) as caught:
        size_deployment(OURS, 1, 10**10)
    assert caught.value.where == "engines.IVF-PQ" and "--engine milvus" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="there is no engine 'lucene'") as caught:
        size_deployment(OURS, 1, 1, "lucene")
    assert "faiss, Flat, HNSW32, IVF-PQ, milvus" in str(caught.value.hint)
    late = read_costs(write(tmp_path, "engines: {Flat: {from_passages: 5}}"))
    with pytest.raises(ConfigError, match="no engine of FAISS takes 4 passages"):
        size_deployment(late, 1, 4)


def call(task: str, count: int, ms: float, **tokens: int) -> dict[str, object]:
    return {"task": task, "count": count, "ms": ms, **tokens}


def write_run(folder: Path, config: dict[str, Any], traces: list[Trace]) -> Path:
    """A run of these traces on a machine of four cores."""
    from evaluation.harness.folder import METRICS, QUESTIONS, RUN, Run
    from revelator.files import sha256_file

    run = Run(
        config, "", {}, {"kind": "strategy", "name": "auto"}, {}, ("a", "b"), machine="CPU, 4 cores, 8 GiB, Linux"
    )
    (folder / RUN).write_text(json.dumps(run.to_json()))
    (folder / QUESTIONS).write_text("")
    metrics = {"questions_sha256": sha256_file(folder / QUESTIONS), "parts": measure_parts(traces) if traces else {}}
    (folder / METRICS).write_text(json.dumps(metrics))
    return folder


def make_traces() -> list[Trace]:
    plan = [
        call("route", 1, 20, tokens_in=30, tokens_out=0),
        call("translate_bnf", 1, 180, tokens_in=50, tokens_out=20),
    ]
    leaf = [call("search", 3, 10), call("relevance", 10, 500, tokens_in=2_000, tokens_out=0), call("read", 1, 100)]
    return [
        Trace("q", "compile", nodes=[Node("1", "atomic", "q", detail={"calls": plan + leaf})]),
        Trace("q", "atomic"),
    ]


def test_a_run_says_what_its_questions_needed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {}, make_traces())
    found = read_costs(None, folder)  # means of two questions, of which one needed nothing
    assert (found.work.searches.value, found.work.plan.tokens_in.value, found.work.plan.tokens_out.value) == (
        1.5,
        40,
        10,
    )
    assert (found.work.relevance.tokens_in.value, found.work.reader) == (1_000, OURS.work.reader)
    assert found.cpu.plan.value == pytest.approx(50 / (0.1 * 4))
    assert found.cpu.reader.value == pytest.approx(2_000 / (0.05 * 4))  # it counted no tokens: ours stand for them
    assert f"{folder}, n = 2, CPU, 4 cores" in found.cpu.plan.source and found.gpu == OURS.gpu
    seconds = sum((0.1, 0.25, 0.05)) * 4
    needed = size_deployment(found, 100, 1)
    assert needed.cpu_servers == -(-100 * 2 * seconds // (16 * 0.6))
    asked = "--questions-per-second", 100, "--passages", 1, "--engine", FAISS, "--json"
    assert json.loads(run_cost("--run", folder, *asked).output)["sizings"] == [asdict(needed)]


def test_what_an_endpoint_did_in_a_run_is_paid_by_the_token(tmp_path: Path) -> None:
    traces = make_traces()
    traces[0].nodes[0].detail["calls"].append(call("read", 1, 100, tokens_in=800, tokens_out=40))
    folder = write_run(tmp_path, {"planner": {"url": "u", "model": "m"}}, traces)
    found = read_costs(None, folder)
    assert (found.work.plan.at, found.work.relevance.at, found.work.reader.at) == ("endpoint", "servers", "endpoint")
    assert (found.work.reader.tokens_in.value, found.work.reader.tokens_out.value) == (400, 20)
    assert found.cpu.plan == OURS.cpu.plan


def test_a_run_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no question of this run has a trace"):
        measure_work(write_run(tmp_path, {}, []), OURS)


def test_a_run_of_the_harness_can_be_read(tmp_path: Path, index: Path) -> None:
    from tests.evaluation.test_evaluate import call, config

    call(config(tmp_path, index), "--out", str(tmp_path / "run"))
    found = read_costs(None, tmp_path / "run")
    assert found.work.searches.value > 0 and found.work.plan.tokens_in.value == 0
    assert str(tmp_path / "run") in found.work.searches.source
