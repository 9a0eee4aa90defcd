"""`revelator eval run` as a person runs it: a run is whole or goes on; what does not fit is said before it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from evaluation.harness.folder import METRICS, QUESTIONS, read_metrics, read_questions, read_run
from evaluation.harness.systems import SharedModels, read_limits
from evaluation.run import evaluate, read_model_options, read_runs, set_models
from revelator.errors import ArtifactError, ConfigError, DataError, RevelatorError, ServingError, Unavailable
from revelator.limits import Limits
from serving.executor.judges import JudgeConfig
from serving.models.endpoint_revelator import PlannerConfig
from tests.chat_server import fails, running, says, write_reading
from tests.conftest import Endpoint
from tests.planner_server import PLAN, Planner

ASKED = {
    "Who directed Lantern Row?": "Ines Calloway",
    "Where was Ines Calloway born?": "Port Velm",
    "When was Port Velm founded?": "1402",
    "Who directed The Glass Orchard?": "Tobias Renn",
    "Where was Tobias Renn born?": "Sarnath",
    "When was Sarnath founded?": "1388",
}
PROGRAM = Path(sys.executable).with_name("revelator")


def benchmark(folder: Path) -> dict[str, Any]:
    rows = [{"id": str(n), "question": q, "answer": [a]} for n, (q, a) in enumerate(ASKED.items())]
    (folder / "nq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"format": "nq", "path": str(folder / "nq.jsonl")}


def config(folder: Path, searched: Path, **values: Any) -> Path:
    made = {"benchmark": benchmark(folder), "system": {"baseline": "naive-5"}, "index": str(searched), **values}
    (folder / "run.yaml").write_text(yaml.safe_dump(made))
    return folder / "run.yaml"


def call(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(evaluate, [str(path), *arguments], catch_exceptions=False)


def refused(path: Path, out: Path, *arguments: str) -> RevelatorError:
    with pytest.raises(RevelatorError) as error:
        call(path, "--out", str(out), *arguments)
    assert not out.exists(), "something was begun before the fault was found"
    return error.value


def test_a_run_has_every_answer_with_its_score_and_cost(tmp_path: Path, index: Path) -> None:
    path = config(tmp_path, index, concurrency=3)
    said = json.loads(call(path, "--out", str(tmp_path / "run"), "--json").stdout)
    rows = read_questions(tmp_path / "run")
    assert [row.question for row in rows] == list(ASKED)
    assert {row.status for row in rows} == {"answered"} and all(row.scores["em"] == 1 for row in rows)
    assert all(row.cost.retrievals == row.cost.generator_calls == row.cost.steps == 1 for row in rows)
    assert all(row.retrieved and row.trace and row.cost.wall_s > 0 for row in rows)
    assert said["figures"]["em"] == {"n": 6, "value": 1.0, "low": 1.0, "high": 1.0}
    assert read_metrics(tmp_path / "run")["normaliser"] == "squad"
    run = read_run(tmp_path / "run")
    assert run.system == {"kind": "baseline", "name": "naive-5"} and run.generator == "embedded"
    assert run.index["count"] == 6 and len(run.benchmark["files"]) == 1 and len(run.code) == 64
    again = call(path, "--out", str(tmp_path / "run"))
    assert "exact match" in again.stdout and read_questions(tmp_path / "run") == rows, "a whole run asks nothing again"


def test_a_run_that_is_killed_asks_only_what_was_in_flight_again(
    tmp_path: Path, index: Path, endpoint: Endpoint
) -> None:
    for question, answer in ASKED.items():
        endpoint.knowledge[question] = [answer]
    held = list(ASKED)[3]
    endpoint.gate(held, ASKED[held])
    path = config(tmp_path, index, generator={"url": endpoint.url, "model": "m"}, concurrency=1, seed=5)
    command = [str(PROGRAM), "eval", "run", str(path), "--out", str(tmp_path / "run")]
    process = subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL)
    try:
        assert endpoint.started[held].wait(240)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = (tmp_path / "run" / QUESTIONS).read_bytes()
    assert [json.loads(line)["question"] for line in before.splitlines()] == list(ASKED)[:3]
    assert not (tmp_path / "run" / METRICS).exists()
    endpoint.gates[held].set()
    call(path, "--out", str(tmp_path / "run"))
    assert (tmp_path / "run" / QUESTIONS).read_bytes().startswith(before)
    rows = read_questions(tmp_path / "run")
    assert [row.prediction for row in rows] == list(ASKED.values())
    assert all((row.cost.tokens_in, row.cost.tokens_out) == (11, 5) for row in rows)


def test_a_service_that_is_down_stops_the_run_and_the_same_command_goes_on(
    tmp_path: Path, index: Path, endpoint: Endpoint
) -> None:
    for question, answer in ASKED.items():
        endpoint.knowledge[question] = [answer]
    gone = list(ASKED)[2]
    endpoint.gates.pop(list(ASKED)[3], None)
    endpoint.down.add(gone)
    path = config(tmp_path, index, generator={"url": endpoint.url, "model": "m"}, concurrency=1)
    with pytest.raises(Unavailable, match="503") as error:
        call(path, "--out", str(tmp_path / "run"))
    assert "the same command goes on" in str(error.value)
    endpoint.down.clear()
    call(path, "--out", str(tmp_path / "run"))
    assert len(read_questions(tmp_path / "run")) == 6


def test_an_endpoint_that_refuses_every_question_stops_the_run_and_leaves_no_row(tmp_path: Path, index: Path) -> None:
    with running() as server:
        server.replies = [fails(404, "no model m")]
        path = config(tmp_path, index, generator={"url": server.url, "model": "m"})
        with pytest.raises(ServingError, match="answered 404: no model m") as error:
            call(path, "--out", str(tmp_path / "run"))
        assert "the same command goes on" in str(error.value)
        server.replies = [says(write_reading("Ada Quill"))]
        call(path, "--out", str(tmp_path / "run"))
        assert len(read_questions(tmp_path / "run")) == 6


def test_several_runs_of_one_file_have_their_own_folders_and_are_looked_at_before_any_is_asked(
    tmp_path: Path, index: Path
) -> None:
    runs = {"five": {}, "free": {"seed": 1}, "ten": {"system": {"baseline": "naive-10"}}}
    path, out = config(tmp_path, index, runs=runs), tmp_path / "all"
    *said, compared = (json.loads(line) for line in call(path, "--out", str(out), "--json").stdout.splitlines())
    assert [system["name"] for system in compared["systems"]] == ["five", "free", "naive-10"]
    assert [(Path(one["run"]).name, one["system"]) for one in said] == [
        ("five", "naive-5"), ("free", "naive-5"), ("ten", "naive-10")
    ]  # fmt: skip
    assert all(len(read_questions(out / name)) == 6 for name in runs)
    assert read_run(out / "free").seed == 1 and read_run(out / "ten").ids == read_run(out / "five").ids
    (out / "ten" / METRICS).unlink()
    five, ten = ((out / name / QUESTIONS).read_bytes() for name in ("five", "ten"))
    (out / "ten" / QUESTIONS).write_bytes(ten[: len(ten) // 2])
    assert call(path, "--out", str(out), "--run", "ten").stdout.count("naive-10 reaches") == 1
    assert len(read_questions(out / "ten")) == 6 and (out / "five" / QUESTIONS).read_bytes() == five
    with pytest.raises(ConfigError, match="no run 'six'"):
        call(path, "--run", "six")
    wrong = config(tmp_path, index, runs=runs | {"last": {"system": {"baseline": "self-ask"}}})
    assert "self-ask prompts a language model" in str(refused(wrong, tmp_path / "refused"))
    for bad in ({"a/b": {}}, {}, {"a": 5}):
        refused(config(tmp_path, index, runs=bad), tmp_path / "refused")


def test_runs_that_name_the_same_share_index_and_model(tmp_path: Path, base: Path, index: Path) -> None:
    shared = SharedModels()
    assert shared.open_index(index) is shared.open_index(Path(str(index)))
    assert shared.open_engine(str(base), None, 1) is shared.open_engine(str(base), None, 1)
    assert shared.open_engine(str(base), None, 2) is not shared.open_engine(str(base), None, 1)


def test_a_running_server_is_asked_as_this_process_is(tmp_path: Path, served: Any) -> None:
    for question, answer in ASKED.items():
        served.endpoint.knowledge[question] = [answer]
    made = {"benchmark": benchmark(tmp_path), "url": served.url, "home": str(served.home), "concurrency": 2}
    made["limits"] = {"relevance_threshold": 0.0}  # the served adapter is random: what it finds relevant is chance
    path = tmp_path / "strategy.yaml"
    path.write_text(yaml.safe_dump(made | {"system": {"strategy": "single"}}))
    call(path, "--out", str(tmp_path / "strategy"))
    rows = read_questions(tmp_path / "strategy")
    assert [row.prediction for row in rows] == list(ASKED.values())
    assert rows[0].cost.model_calls
    run = read_run(tmp_path / "strategy")
    assert run.adapter == {"version": "1"} and run.index["count"] == 6 and served.endpoint.url in run.generator
    path.write_text(yaml.safe_dump(made | {"system": {"baseline": "naive-5"}}))
    assert "naive-5 asks models itself" in str(refused(path, tmp_path / "baseline"))


def test_a_file_of_predictions_is_scored_by_the_same_rules(tmp_path: Path, index: Path) -> None:
    given = tmp_path / "theirs.jsonl"
    rows = [{"id": str(n), "prediction": answer} for n, answer in enumerate(ASKED.values())]
    given.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = config(tmp_path, index, system={"predictions": str(given)})
    call(path, "--out", str(tmp_path / "run"))
    figures = read_metrics(tmp_path / "run")["figures"]
    assert figures["f1"]["value"] == 1 and "wall_s" not in figures, "what they took is not known"
    given.write_text("".join(json.dumps({"id": f"nq:{n}", "predicted_answer": "x"}) + "\n" for n in range(6)))
    call(path, "--out", str(tmp_path / "others"))
    assert read_metrics(tmp_path / "others")["figures"]["f1"]["value"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("".join(f'{{"id": "{n}", "predicted_answer": "x"}}\n' for n in range(5)), "1 id (nq:5) missing"),
        ("".join(f'{{"id": "{n}", "prediction": "x"}}\n' for n in (0, 0, 1, 2, 3, 4, 5)), "1 id (nq:0) twice"),
        ("".join(f'{{"id": "{n}", "prediction": "x"}}\n' for n in range(7)), "1 id (6) of no question"),
        ('{"id": "1"}\n', "line 1: cannot be read: prediction: this field is needed"),
        (
            "".join(f'{{"id": "{n}", "answer": {{}}}}\n' for n in range(6)),
            "line 1: cannot be read: answer.0: a text is needed",
        ),
    ],
)
def test_predictions_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, index: Path, text: str, said: str
) -> None:
    (tmp_path / "theirs.jsonl").write_text(text)
    path = config(tmp_path, index, system={"predictions": str(tmp_path / "theirs.jsonl")})
    error = refused(path, tmp_path / "run")
    assert isinstance(error, DataError) and said in str(error)


def test_what_does_not_fit_is_said_before_anything_is_run(tmp_path: Path, index: Path) -> None:
    nq, out = benchmark(tmp_path), tmp_path / "run"

    def why(**values: Any) -> str:
        return str(refused(config(tmp_path, index, **values), out))

    assert "pinned 1111" in why(benchmark=nq | {"sha256": "1" * 64})
    assert "not an index" in why(index=str(tmp_path))
    assert "which index is searched" in why(index="")
    assert "there is no baseline 'naive-7'" in why(system={"baseline": "naive-7"})
    assert "prompts a language model" in why(system={"baseline": "ircot"})
    assert "name one of strategy, baseline, bound, predictions" in why(system={})
    assert "changes nothing for naive-5" in why(ablation={"refine": False})
    assert "ablation.relevance = True" in why(ablation={"relevance": True}).replace("\n", " ")
    assert "there is no limit 'leafs'" in why(limits={"leafs": 3})
    assert "cannot be switched so from outside" in why(
        index="", url="127.0.0.1:1", system={"strategy": "auto"}, ablation={"end": False}
    )
    assert "127.0.0.1:1" in why(index="", url="127.0.0.1:1", system={"strategy": "single"})
    with pytest.raises(ConfigError, match="revelator model grade latest"):
        call(Path("latest"))


def test_a_run_goes_on_only_with_what_it_was_begun_with(tmp_path: Path, index: Path) -> None:
    path = config(tmp_path, index)
    call(path, "--out", str(tmp_path / "run"))
    with pytest.raises(ArtifactError, match=r"system: \{'kind': 'baseline', 'name': 'naive-5'\} there"):
        call(config(tmp_path, index, system={"baseline": "naive-10"}), "--out", str(tmp_path / "run"))
    with pytest.raises(ArtifactError, match="ids: 6 questions there, 2 questions now"):
        call(config(tmp_path, index), "--out", str(tmp_path / "run"), "--sample", "2")
    assert "nothing was asked" in call(config(tmp_path, index), "--check").stdout


def test_the_template_benchmark_of_itlr_is_a_run_with_its_negations(tmp_path: Path) -> None:
    from tests.evaluation.test_logic_cases import write_corpus
    from tests.serving.retrieval.toy_encoder import write_encoder

    found, corpus = {}, str(write_corpus(tmp_path))
    model = str(write_encoder(tmp_path / "encoder"))
    for way, operators in (("logical", None), ("logical", {"negation": "reciprocal"}), ("random", None)):
        ranking = {"way": way, "per_template": 1, "model": model, "max_tokens": 0}
        made: dict[str, Any] = {
            "benchmark": {"format": "itlr", "path": corpus},
            "system": {"ranking": ranking},
        }
        made |= {"ablation": {"operators": operators}} if operators else {}
        out, path = tmp_path / f"{way} {operators}", tmp_path / "itlr.yaml"
        path.write_text(yaml.safe_dump(made))
        call(path, "--out", str(out))
        rows, metrics = read_questions(out), read_metrics(out)
        assert len(rows) == 32 and {row.negations for row in rows} == {0, 1, 2, 3}
        assert metrics["figures"]["ndcg@10"]["n"] == 32 and {"1", "2"} <= set(metrics["groups"]["negations"])
        found[out.name] = [row.scores["ndcg@10"] for row in rows]
    assert len(set(map(tuple, found.values()))) == 3, "operators and ways rank differently"
    with pytest.raises(ConfigError, match="changes nothing for random ranking"):
        path.write_text(yaml.safe_dump(made | {"ablation": {"operators": {"negation": "reciprocal"}}}))
        call(path, "--check")


def test_a_planner_at_an_endpoint_is_a_run_like_any_other_and_is_named(tmp_path: Path, index: Path) -> None:
    with running() as server:
        Planner(server)
        at_endpoint = {"url": server.url, "model": "m"}
        path = config(tmp_path, index, system={"strategy": "compile"}, planner=at_endpoint)
        call(path, "--out", str(tmp_path / "run"))
        assert read_run(tmp_path / "run").adapter == {"planner": f"m at {server.url}, chat prompt", "judge": "base"}
        rows = read_questions(tmp_path / "run")
        assert len(rows) == len(ASKED) and {row.plan for row in rows} == {PLAN}
        assert all(row.cost.tokens_in >= 31 for row in rows)
        server.replies = [fails(500)]
        with pytest.raises(Unavailable, match=f"{server.url}.*answered 500"):
            call(path, "--out", str(tmp_path / "down"))
    wrong = config(
        tmp_path, index, system={"strategy": "compile"}, planner=at_endpoint, url="127.0.0.1:1", adapter="base"
    )
    assert "a running service has its own" in str(refused(wrong, tmp_path / "refused"))


def test_options_set_the_models_of_each_run_that_can_take_them(tmp_path: Path, index: Path) -> None:
    listed = {
        "plain": {"system": {"baseline": "naive-5"}},
        "planned": {"system": {"strategy": "auto"}},
        "unjudged": {"system": {"strategy": "auto"}, "ablation": {"relevance": False}},
        "best": {"system": {"bound": "gold-passages"}},
        "planned-best": {"system": {"bound": "gold-plan"}},
        "served": {"system": {"strategy": "auto"}, "url": "127.0.0.1:1"},
    }
    path = config(tmp_path, index, runs=listed)
    judge = JudgeConfig(url="http://127.0.0.1:9/v1", model="j")
    given = read_model_options("http://127.0.0.1:9/v1", "r", judge)
    planner = PlannerConfig(url="http://127.0.0.1:9/v1", model="p")
    runs = set_models(read_runs(path, planner), given, "run.yaml")
    assert {name for name, run in runs.items() if run.generator} == {*listed} - {"served"}
    assert {name for name, run in runs.items() if run.judge == judge} == {"planned", "planned-best"}
    assert {name for name, run in runs.items() if run.planner} == {"planned", "unjudged"}


def test_a_question_has_at_least_as_long_as_a_call_of_an_endpoint_may_take(tmp_path: Path, index: Path) -> None:
    [run] = read_runs(config(tmp_path, index), None, timeout=200.0, sample=3, seed=7, unseen=True).values()
    assert (run.timeout, read_limits(run).deadline_ms) == (200, 200_000)
    assert read_limits(run.model_copy(update={"limits": {"deadline_ms": 5_000}})).deadline_ms == 5_000
    assert read_limits(run.model_copy(update={"timeout": 5.0})) == Limits()
    assert (run.seed, run.benchmark.sample, run.benchmark.seed, run.benchmark.unseen) == (7, 3, 7, True)
    served = config(tmp_path, index, url="127.0.0.1:1", system={"strategy": "auto"}, index="")
    assert "timeout: a running service has its own" in str(refused(served, tmp_path / "refused", "--timeout", "5"))


def test_one_command_compares_planners_and_an_endpoint_is_named_on_the_command_line(
    tmp_path: Path, index: Path
) -> None:
    listed = {
        "base": {"adapter": "base"},
        "language-model": {"planner": {"url": "http://127.0.0.1:1/v1", "model": "no"}},
    }
    path, out = config(tmp_path, index, system={"strategy": "compile"}, runs=listed), tmp_path / "out"
    with running() as server:
        Planner(server)
        given = ["--out", str(out), "--planner", server.url, "--planner-model", "m", "--sample", "2"]
        *_, said = map(json.loads, call(path, *given, "--json").stdout.splitlines())
        assert read_run(out / "language-model").adapter == {
            "planner": f"m at {server.url}, chat prompt",
            "judge": "base",
        }
        shown = call(path, *given).stdout
    base, language_model = said["systems"]
    assert (base["name"], language_model["name"]) == ("base", "language-model")
    costs = ("tokens_in", "tokens_out", "wall_s")
    assert all(system["n"] == 2 and 0 <= system["f1"] <= 1 for system in said["systems"])
    assert all(system[cost] > 0 for system in said["systems"] for cost in costs)
    assert "these 2 questions" in said["says"].lower() and said["says"] in shown
    assert all(label in shown for label in ("base", "language-model", "tokens in", "seconds"))
    assert said["says"] in (out / "report.html").read_text(encoding="utf-8")
    assert "--planner-model" in str(refused(path, tmp_path / "refused", "--planner", "http://127.0.0.1:1/v1"))
    plain = {"system": {"baseline": "naive-5"}}
    without = config(tmp_path, index, runs={"one": plain, "two": plain | {"seed": 1}})
    assert "no run plans in this process" in str(refused(without, tmp_path / "refused", *given[2:]))
