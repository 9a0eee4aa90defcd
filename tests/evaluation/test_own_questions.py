"""`revelator eval run --questions`: one's own questions in any form of file, asked plainly and with plans."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from evaluation.harness.benchmarks import open_benchmark
from evaluation.harness.config import BenchmarkConfig, OwnColumns, read_columns
from evaluation.harness.folder import read_metrics, read_run
from evaluation.harness.formats import read_own_questions
from evaluation.harness.question_scores import score_answers
from evaluation.run import evaluate, has_champion
from revelator import registry
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.trace import join_answers
from serving.retrieval import build_index, update_index
from tests.chat_server import running, says
from tests.conftest import Endpoint
from tests.planner_server import Planner

ROWS: list[dict[str, Any]] = [
    {"question": "Who directed Lantern Row?", "answer": "Ines Calloway", "titles": "Lantern Row"},
    {"question": "Who directed Lantern Row and The Glass Orchard?", "answer": "Ines Calloway|Tobias Renn"},
    {"question": "Where was Ines Calloway born?", "answer": "Port Velm", "plan": "Where was Ines Calloway born?"},
]


def write(folder: Path, form: str, rows: list[dict[str, Any]] = ROWS) -> Path:
    path, table = folder / f"qa.{form}", pd.DataFrame(rows).fillna("")
    if form == "parquet":
        table.to_parquet(path)
    elif form == "jsonl":
        listed = [row | {"answer": row["answer"].split("|")} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in listed))
    else:
        table.to_csv(path, index=False, sep="\t" if form == "tsv" else ",")
    return path


def read(path: Path, **more: Any) -> list[tuple[Any, ...]]:
    config = BenchmarkConfig.model_validate({"format": "own", "path": str(path)} | more)
    golds = [question.gold for question in open_benchmark(config).questions]
    return [(g.question, g.answers, g.expression, g.route, [p.title for p in g.passages]) for g in golds]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_every_form_of_file_gives_the_same_questions(tmp_path: Path, form: str) -> None:
    assert read(write(tmp_path, form)) == [
        ("Who directed Lantern Row?", ("Ines Calloway",), "", "", ["Lantern Row"]),
        ("Who directed Lantern Row and The Glass Orchard?", ("Ines Calloway", "Tobias Renn"), "", "", []),
        ("Where was Ines Calloway born?", ("Port Velm",), "Where was Ines Calloway born?", "", []),
    ]


def test_columns_may_stand_between_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "qa.csv"
    path.write_text("question;answer\nWho signs, and where?;Ana\n", encoding="utf-8")
    assert read(path) == [("Who signs, and where?", ("Ana",), "", "", [])]


def test_the_kind_of_a_question_is_kept(tmp_path: Path) -> None:
    rows = [{"question": "Who?", "answer": "Ana", "kind": "table"}, {"question": "Where?", "answer": "Holm"}]
    for form in ("csv", "jsonl", "parquet"):
        assert [question.kind for question in read_own_questions(str(write(tmp_path, form, rows)))] == ["table", ""]
    path = write(tmp_path, "csv", [{"question": "Who?", "answer": "Ana", "Art": "date"}])
    [question] = read_own_questions(str(path), OwnColumns(kind="Art"))
    assert question.kind == "date"


def test_columns_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "csv", [{"Frage": "Who?", "Antwort": "Ana", "Weg": "single"}])
    columns = {"question": "Frage", "answer": "Antwort", "route": "Weg"}
    assert read(path, columns=columns) == [("Who?", ("Ana",), "", "single", [])]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"ask": "Who?", "answer": "Ana"}, "line 2: there is no column 'question'; columns are ask, answer"),
        ({"question": "", "answer": "Ana"}, "line 2: field 'question' must be a non-empty text"),
        ({"question": "Who?", "answer": "Ana", "plan": "Who? * ("}, "line 2: the plan cannot be read"),
        ({"question": "Who?", "answer": "Ana", "route": "easy"}, "line 2: field 'route'"),
        ({"question": "Who?", "answer": "Ana|Jo", "also": "J."}, "line 2: 1 other spellings for 2 answers"),
    ],
)
def test_a_row_that_cannot_be_asked_is_refused_with_its_line(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as error:
        read(write(tmp_path, "csv", [row]))
    assert said in str(error.value)


def test_a_question_with_two_answers_in_two_rows_is_refused(tmp_path: Path) -> None:
    rows = [{"question": "Who?", "answer": "Ana"}, {"question": "Who?", "answer": "Ana"}]
    assert len(read(write(tmp_path, "csv", rows))) == 1
    with pytest.raises(DataError, match="line 3: the question was asked before, with another answer"):
        read(write(tmp_path, "csv", [rows[0], {"question": "Who?", "answer": "Jo"}]))


def test_a_field_that_no_column_can_be_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as error:
        read_columns(["ask=Frage"])
    assert error.value.hint == "question, answer, also, titles, plan, route, kind"


@pytest.mark.parametrize(
    ("row", "said", "score"),
    [
        ({"answer": "Lantern Row", "also": "The Lantern Row film|LR"}, ("LR",), 1.0),
        ({"answer": ["Ines Calloway", "Tobias Renn"], "also": ["", "T. Renn"]}, ("T. Renn", "Ines Calloway"), 1.0),
        ({"answer": "Ines Calloway|Tobias Renn", "also": "|T. Renn"}, ("T. Renn",), 0.0),
        ({"answer": "Lantern Row"}, ("LR",), 0.0),
    ],
)
def test_either_spelling_of_an_answer_is_right(
    tmp_path: Path, row: dict[str, Any], said: tuple[str, ...], score: float
) -> None:
    (tmp_path / "qa.jsonl").write_text(json.dumps({"question": "What?", **row}), encoding="utf-8")
    [question] = read_own_questions(str(tmp_path / "qa.jsonl"))
    golds, more = question.gold.answers, question.spellings
    assert score_answers(join_answers(said), said, golds, "squad", is_list=True, spellings=more)["em"] == score


@pytest.mark.parametrize("row", [{"answer": ""}, {"answer": " | "}, {"answer": []}, {"answer": None}])
def test_an_empty_answer_says_that_there_is_none(tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "qa.jsonl").write_text(json.dumps({"question": "What?", **row}), encoding="utf-8")
    [question] = read_own_questions(str(tmp_path / "qa.jsonl"))
    assert question.gold.answers == ()


def test_refusals_are_counted_apart_from_answers(tmp_path: Path, index: Path) -> None:
    asked = [*ROWS, {"question": "How old is the parrot of Zuzanna Krzywicka?", "answer": ""}]
    call = ["--questions", str(write(tmp_path, "csv", asked)), "--index", str(index), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(evaluate, [*call, "--home", str(tmp_path / "home")], catch_exceptions=False)
    assert "4 questions" in done.stdout and "1 have no answer" in done.stdout and "wrongly refused" in done.stdout
    measured = json.loads((tmp_path / "out" / "plain" / "metrics.json").read_text(encoding="utf-8"))
    assert {name: measured["figures"][name]["n"] for name in ("f1", "given", "refused")} == {
        "f1": 3,
        "given": 3,
        "refused": 1,
    }
    assert sum(measured["outcomes"].values()) == 4


def test_plain_retrieval_and_plans_are_compared(tmp_path: Path, index: Path) -> None:
    out, given = tmp_path / "out", ["--home", str(tmp_path / "home")]
    call = ["--questions", str(write(tmp_path, "csv")), "--index", str(index), "--out", str(out), *given]
    done = CliRunner().invoke(evaluate, [*call, "--json"], catch_exceptions=False)
    said = json.loads(done.stdout)
    assert [(system["name"], system["n"]) for system in said["systems"]] == [("plain", 3), ("auto", 3)]
    assert all(0 <= system[score] <= 1 for system in said["systems"] for score in ("em", "acc", "f1"))
    assert "these 3 questions" in said["says"].lower()
    page = Path(said["report"]).read_text(encoding="utf-8")
    assert escape(said["says"]) in page
    shown = CliRunner().invoke(evaluate, call, catch_exceptions=False).stdout
    assert said["says"] in shown and "plain" in shown and "auto" in shown


def test_a_collection_of_milvus_is_asked_as_a_folder_is(tmp_path: Path, index: Path) -> None:
    pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
    passages, collection = index.parent / "passages.jsonl", f"milvus:{tmp_path / 'lite.db'}/lantern"
    build_index([passages], collection)

    def ask(place: Path | str, out: str) -> dict[tuple[str, str], list[Any]]:
        call = ["--questions", str(write(tmp_path, "csv")), "--index", str(place), "--out", str(tmp_path / out)]
        CliRunner().invoke(evaluate, [*call, "--home", str(tmp_path / "home")], catch_exceptions=False)
        rows = {
            (system, row["question"]): [row[name] for name in ("predictions", "retrieved", "scores")]
            for system in ("plain", "auto")
            for row in map(json.loads, (tmp_path / out / system / "questions.jsonl").read_text().splitlines())
        }
        assert len(rows) == 2 * len(ROWS)
        return rows

    assert ask(collection, "milvus") == ask(index, "folder")
    found = read_run(tmp_path / "milvus" / "plain").index
    assert (found["folder"], found["count"]) == (collection, 6) and found["digest"]
    (tmp_path / "more.md").write_text("Lantern Row was shot in Port Velm.")
    update_index([tmp_path / "more.md"], collection)
    with pytest.raises(ArtifactError, match=r"index\.digest"):
        ask(collection, "milvus")


def test_a_language_model_plans_beside_the_base_on_own_questions(tmp_path: Path, index: Path) -> None:
    call = ["--questions", str(write(tmp_path, "csv")), "--index", str(index), "--home", str(tmp_path / "home")]
    with running() as server:
        Planner(server)
        more = ["--planner", server.url, "--planner-model", "m", "--out", str(tmp_path / "out"), "--json"]
        said = json.loads(CliRunner().invoke(evaluate, [*call, *more], catch_exceptions=False).stdout)
    assert [system["name"] for system in said["systems"]] == ["plain", "auto", "planner"]
    assert read_run(tmp_path / "out" / "planner").adapter["planner"].startswith("m at ")


def test_one_language_model_reads_for_plain_retrieval_and_for_plans(
    tmp_path: Path, index: Path, endpoint: Endpoint
) -> None:
    endpoint.knowledge |= {row["question"]: row["answer"].split("|") for row in ROWS}
    out = tmp_path / "out"
    call = ["--questions", str(write(tmp_path, "csv")), "--index", str(index), "--home", str(tmp_path / "home")]
    with running() as judging:
        judging.replies = [says('{"numbers": [1]}')]
        models = ["--generator", endpoint.url, "--generator-model", "m"]
        models += ["--judge", judging.url, "--judge-model", "j", "--out", str(out)]
        said = json.loads(CliRunner().invoke(evaluate, [*call, *models, "--json"], catch_exceptions=False).stdout)
    plain, auto = (read_run(out / name) for name in ("plain", "auto"))
    assert plain.generator == auto.generator == f"m at {endpoint.url}"
    assert auto.adapter["judge"] == f"j at {judging.url}" and judging.requests
    assert all(system[cost] > 0 for system in said["systems"] for cost in ("tokens_in", "tokens_out", "wall_s"))
    parts = read_metrics(out / "auto")["parts"]
    assert all(parts[part]["tokens_in"] > 0 for part in ("reader", "relevance")), "each model's tokens apart"
    assert parts["relevance"]["calls"] <= parts["search"]["calls"], "one call a leaf"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--generator", "http://127.0.0.1:9/v1"], "an endpoint needs an address and a model"),
        (["--generator-model", "m"], "an endpoint needs an address and a model"),
        (["--judge", "http://127.0.0.1:9/v1"], "an endpoint needs the name of a model"),
        (["--judge", "none", "--run", "plain"], "no run can take --judge"),
        (["--judge", "none", "--url", "127.0.0.1:1"], "no run can take --judge"),
    ],
)
def test_options_that_no_run_can_take_are_refused(tmp_path: Path, index: Path, options: list[str], said: str) -> None:
    call = ["--questions", str(write(tmp_path, "csv")), "--index", str(index), "--home", str(tmp_path / "home")]
    done = CliRunner().invoke(evaluate, [*call, *options, "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_registry_without_a_champion_leaves_planning_to_the_base(tmp_path: Path) -> None:
    assert not has_champion(tmp_path) and not list(tmp_path.iterdir())
    registry.connect(tmp_path)
    assert not has_champion(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["run.yaml", "--questions", "qa.csv"], ["--questions", "qa.csv"]])
def test_what_is_asked_and_where_must_be_said(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        CliRunner().invoke(evaluate, arguments, catch_exceptions=False)
