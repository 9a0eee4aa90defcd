"""Closed corpora and bounds: every gold passage can be found, and what a bound is told is gold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from data_gen.questions import AnnotatedQuestion
from data_gen.sources.formats import READERS
from evaluation.harness.benchmarks import CLOSED_INDEX_KINDS
from evaluation.harness.folder import QuestionRow, read_metrics, read_questions, read_run
from evaluation.report.page import build_report, render_html
from evaluation.report.runs import compare_runs, load_run_folders
from evaluation.run import evaluate
from revelator.errors import ConfigError, DataError
from serving.retrieval.index import Index
from tests.chat_server import running, says, write_reading

PARAGRAPHS = {
    "Lantern Row": "Lantern Row is a film directed by Ines Calloway.",
    "Ines Calloway": "Ines Calloway was born in Port Velm.",
    "Sarnath": "Sarnath is a town on the river Obra.",
}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Where was the director of Lantern Row born?",
    "answer": "Port Velm",
    "answer_aliases": [],
    "answerable": True,
    "paragraphs": [
        {"idx": n, "title": title, "paragraph_text": text, "is_supporting": title != "Sarnath"}
        for n, (title, text) in enumerate(PARAGRAPHS.items())
    ],
    "question_decomposition": [
        {"id": 1, "question": "Who directed Lantern Row?", "answer": "Ines Calloway", "paragraph_support_idx": 0},
        {"id": 2, "question": "Where was #1 born?", "answer": "Port Velm", "paragraph_support_idx": 1},
    ],
}


def run(
    folder: Path,
    *rows: dict[str, Any],
    sample: int | None = None,
    index: str = "closed",
    format: str = "musique",
    ablation: dict[str, str] | None = None,
    **system: str,
) -> list[QuestionRow]:
    (folder / "musique.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = {"format": format, "path": str(folder / "musique.jsonl"), "sample": sample}
    made = {
        "benchmark": benchmark,
        "system": system,
        "index": index,
        "adapter": "base",
        "home": str(folder / "home"),
        "ablation": ablation or {},
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(made))
    out = folder / "-".join(system.values())
    CliRunner().invoke(evaluate, [str(folder / "run.yaml"), "--out", str(out)], catch_exceptions=False)
    return read_questions(out)


@pytest.mark.parametrize("kind", CLOSED_INDEX_KINDS)
def test_a_closed_index_holds_each_passage_of_all_questions_once(tmp_path: Path, kind: str) -> None:
    other = MUSIQUE | {"id": "2hop__3_4", "question": "Where was Lantern Row's director born?"}
    rows = run(tmp_path, MUSIQUE, other, sample=1, index=kind, baseline="naive-5")
    assert len(rows) == 1
    index = Index.open(Path(read_run(tmp_path / "naive-5").index["folder"]))
    found = index.search("Lantern Row, Ines Calloway or Sarnath", k=10)
    assert index.settings.kind == CLOSED_INDEX_KINDS[kind]
    assert sorted((passage.title, passage.text) for passage in found) == sorted(PARAGRAPHS.items())
    assert rows[0].scores["recall@5"] == 1


def test_the_bounds_are_told_what_is_gold(tmp_path: Path) -> None:
    [planned] = run(tmp_path, MUSIQUE, bound="gold-plan")
    assert planned.plan == planned.gold_plan == "Who directed Lantern Row? * Where was {1} born?"
    [read] = run(tmp_path, MUSIQUE, bound="gold-passages")
    assert {p["title"] for p in read.trace["nodes"][0]["documents"]} == {"Lantern Row", "Ines Calloway"}
    assert read.cost.retrievals == 0 and read.cost.generator_calls == 1


HOTPOT = {
    "_id": "h1",
    "question": "Where was the director of Lantern Row born?",
    "answer": "Port Velm",
    "type": "bridge",
    "supporting_facts": [["Lantern Row", 0], ["Ines Calloway", 0]],
    "context": [[title, [text]] for title, text in PARAGRAPHS.items()],
}


def test_one_command_has_a_language_model_read_the_gold_passages_of_samples_of_several_benchmarks(
    tmp_path: Path,
) -> None:
    runs = {}
    for name, row in (("musique", MUSIQUE), ("hotpotqa", HOTPOT)):
        rows = [row | {("_id" if name == "hotpotqa" else "id"): f"2hop__{n}"} for n in range(9)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        runs[name] = {"benchmark": {"format": name, "path": str(tmp_path / f"{name}.jsonl")}}
    path, out = tmp_path / "gold.yaml", tmp_path / "out"
    made = {"system": {"bound": "gold-passages"}, "home": str(tmp_path), "runs": runs}
    path.write_text(yaml.safe_dump(made, sort_keys=False))
    with running() as server:
        server.replies = [says(write_reading()), says(write_reading("Port Velm", sentence=2))]
        given = ["--generator", server.url, "--generator-model", "m", "--sample", "2", "--seed", "3"]
        shown = CliRunner().invoke(evaluate, [str(path), "--out", str(out), *given], catch_exceptions=False).stdout
        assert len(server.requests) == 4
    for text in ("musique: Quality", "hotpotqa: Quality", "answer given", "tokens in", "tokens out", "seconds"):
        assert text in shown
    figures = {name: read_metrics(out / name)["figures"] for name in runs}
    assert [figures[name]["given"]["value"] for name in runs] == [0.5, 1.0]
    assert figures["hotpotqa"]["f1"]["value"] == 1 and figures["hotpotqa"]["tokens_in"]["value"] == 31
    assert {read_run(out / name).seed for name in runs} == {3}


def test_plain_retrieval_reads_as_many_documents_as_another_run_did(tmp_path: Path) -> None:
    [planned] = run(tmp_path, MUSIQUE, bound="gold-plan")
    assert planned.cost.documents == sum(len(n["detail"].get("kept", ())) for n in planned.trace["nodes"]) == 2
    [plain] = run(tmp_path, MUSIQUE, baseline="naive", ablation={"read_as": str(tmp_path / "gold-plan")})
    assert plain.cost.documents == len(plain.trace["nodes"][0]["documents"]) == 2
    with pytest.raises(ConfigError, match="changes nothing for single"):
        run(tmp_path, MUSIQUE, strategy="single", ablation={"read_as": str(tmp_path / "gold-plan")})
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=r"was not asked 'Who else\?'"):
        run(
            tmp_path / "other",
            MUSIQUE | {"question": "Who else?"},
            baseline="naive",
            ablation={"read_as": str(tmp_path / "gold-plan")},
        )


def test_an_oracle_sends_a_question_its_gold_route_and_needs_one(tmp_path: Path) -> None:
    [row] = run(tmp_path, MUSIQUE, ablation={"route": "oracle"}, strategy="auto")
    assert row.route == row.gold_route == "complex" and "route" not in row.cost.model_calls
    own = {"question": MUSIQUE["question"], "answer": MUSIQUE["answer"]}
    with pytest.raises(ConfigError, match="does not say the route"):
        index = str(read_run(tmp_path / "auto").index["folder"])
        run(tmp_path, own, format="own", index=index, ablation={"route": "oracle"}, baseline="hanrag")


@pytest.mark.parametrize("bound", ["gold-passages", "gold-plan"])
def test_a_bound_is_not_asked_a_question_without_gold_and_the_comparison_is_on_the_others(
    tmp_path: Path, bound: str
) -> None:
    plain = {name: MUSIQUE[name] for name in ("question", "answer", "paragraphs")} | {"id": "2hop__3_4"}
    plain["paragraphs"] = [paragraph | {"is_supporting": False} for paragraph in MUSIQUE["paragraphs"]]
    rows = run(tmp_path, MUSIQUE, plain | {"question": "Where was Sarnath's founder born?"}, bound=bound)
    assert [row.id for row in rows] == ["musique:2hop__1_2"] and rows[0].status != "error"
    assert len(run(tmp_path, MUSIQUE, plain, baseline="naive-5")) == 2
    told, asked = load_run_folders([tmp_path / bound, tmp_path / "naive-5"])
    assert compare_runs(told, asked, ["f1"])["f1"]["n"] == 1
    assert [each.run.without_gold for each in (told, asked)] == [1, 0]
    assert [each.metrics["without_gold"] for each in (told, asked)] == [1, 0]
    built = build_report([told, asked])
    [section] = built.sections
    counts = {name: str(count) for table in section.tables for name, count, _ in table.rows if table.title == "Quality"}
    assert "left out: 1 without gold" in counts[bound] and "left out" not in counts["naive-5"]
    assert f"{bound} was not asked 1 without the gold that it is given" in section.about
    assert "left out: 1 without gold" in render_html(built)
    with pytest.raises(DataError, match=f"no question of musique has what {bound} is given"):
        run(tmp_path, plain, bound=bound)


def test_with_the_gold_index_each_search_finds_all_gold_passages_of_its_own_question(tmp_path: Path) -> None:
    sarnath = [{"is_supporting": p["title"] == "Sarnath"} for p in MUSIQUE["paragraphs"]]
    other = MUSIQUE | {"id": "2hop__3_4", "question": "Which river does Sarnath lie on?", "answer": "Obra"}
    other["paragraphs"] = [p | own for p, own in zip(MUSIQUE["paragraphs"], sarnath, strict=True)]
    bare = MUSIQUE | {"id": "2hop__5_6", "question": "Who founded Sarnath?", "paragraphs": []}
    for system in ({"strategy": "auto"}, {"baseline": "naive-5"}, {"bound": "gold-plan"}):
        rows = run(tmp_path, MUSIQUE, other, bare, index="gold", **system)
        found = {row.id[-3:]: {p["title"] for node in row.trace["nodes"] for p in node["documents"]} for row in rows}
        assert found == {"1_2": {"Lantern Row", "Ines Calloway"}, "3_4": {"Sarnath"}}
        for node in (node for row in rows for node in row.trace["nodes"]):  # a passage is known by its id
            assert len({p["id"] for p in node["documents"]} - {""}) == len(node["documents"])
        [told] = load_run_folders([tmp_path / "-".join(system.values())])
        assert told.run.without_gold == 1 and told.run.index == {"folder": "gold"}


def test_a_plan_that_gave_the_gold_answer_over_the_gold_passages_becomes_a_gold_plan(tmp_path: Path) -> None:
    [row] = run(tmp_path, MUSIQUE, index="gold", strategy="compile")
    [kept] = READERS["executed"](tmp_path / "compile")
    assert isinstance(kept, AnnotatedQuestion)
    assert (kept.expression, kept.answers, kept.teacher) == (row.plan, ("Port Velm",), "executed:mini")
    assert [step.answers for step in kept.steps] == [("Ines Calloway",), ("Port Velm",)]
    file = tmp_path / "compile" / "questions.jsonl"
    made = json.loads(file.read_text())
    faults: dict[str, dict[str, Any]] = {
        "executed: answered without a plan": {"plan": ""},
        "executed: another answer than gold's": {"scores": made["scores"] | {"em": 0.0}},
        "executed: the plan did not give the answer": {"trace": made["trace"] | {"degraded": True}},
        "executed: a plan that today's language does not read": {"plan": "Who directed Lantern Row? *"},
        "a plan of one step, which says the question again": {"plan": MUSIQUE["question"]},
    }
    file.write_text("".join(json.dumps(made | fault) + "\n" for fault in faults.values()))
    assert [outcome.reason for outcome in READERS["executed"](file)] == [*faults]

    first = next(node["id"] for node in made["trace"]["nodes"] if node["kind"] == "atomic")
    nodes = [node | {"answers": []} if node["id"] == first else node for node in made["trace"]["nodes"]]
    file.write_text(json.dumps(made | {"trace": made["trace"] | {"nodes": nodes}}))
    [kept] = READERS["executed"](file)
    assert isinstance(kept, AnnotatedQuestion) and kept.steps == (), "a list of steps has no gap"
    record = json.loads((tmp_path / "compile" / "run.json").read_text())
    asked = {"planner": "big-model at http://127.0.0.1:8080/v1, chat prompt"}
    (tmp_path / "compile" / "run.json").write_text(json.dumps(record | {"adapter": asked}))
    assert [one.teacher for one in READERS["executed"](file)] == ["executed:big-model"]
    for broken in ("{", "[]", "{}"):
        (tmp_path / "compile" / "run.json").write_text(broken)
        with pytest.raises(DataError, match=r"run\.json: the run's record cannot be read"):
            list(READERS["executed"](file))
    (tmp_path / "compile" / "run.json").unlink()
    assert [one.teacher for one in READERS["executed"](file)] == ["executed:unknown"]


def test_a_gold_index_without_gold_names_the_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="what gold-passages is given") as caught:
        run(tmp_path, MUSIQUE | {"paragraphs": []}, index="gold", strategy="auto")
    assert caught.value.where == "index: gold"


def test_questions_without_passages_have_no_closed_corpus(tmp_path: Path) -> None:
    plain = {name: MUSIQUE[name] for name in ("id", "question", "answer")}
    with pytest.raises(DataError, match="without passages"):
        run(tmp_path, plain, baseline="naive-5")
