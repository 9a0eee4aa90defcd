"""Retrieval alone: equal documents for each way to ask, no answer in a query, and a measurement that goes on."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from data_gen.build import build
from data_gen.config import SetConfig, SourceConfig
from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from evaluation.retrieval.command import Plan, begin, recall
from evaluation.retrieval.corpora import Corpus, pool
from evaluation.retrieval.page import metrics_of
from evaluation.retrieval.queries import (
    Ranked,
    compiled_queries,
    gold_answers,
    interleaved,
    ndcg_at,
    recall_at,
)
from evaluation.rows import append_rows, read_rows
from revelator.errors import ConfigError, RevelatorError
from serving.retrieval import IndexSettings, build_index

RANKINGS = st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4)
COUNT = 20
NAMES = ["Orn", "Sedge", "Marn", "Wick", "Tarn", "Fell", "Brook", "Holm", "Garth", "Beck"]


@given(RANKINGS, st.integers(1, 8))
def test_rankings_take_turns_without_repeats_and_a_smaller_budget_is_a_beginning(
    rankings: list[list[str]], budget: int
) -> None:
    merged = interleaved(rankings, 8)
    assert sorted(merged) == sorted({item for ranking in rankings for item in ranking})
    assert interleaved(rankings, budget) == merged[:budget]
    firsts = [ranking[0] for ranking in rankings if ranking]
    assert merged[: len(set(firsts))] == list(dict.fromkeys(firsts))


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.sets(st.sampled_from("abcdef"), min_size=1))
def test_recall_and_ndcg_lie_between_0_and_1_and_more_documents_lose_nothing(found: list[str], gold: set[str]) -> None:
    row = ranked({"question": found}, sorted(gold))
    recalls = [recall_at(row, "question", budget) for budget in range(1, 8)]
    assert recalls == sorted(recalls) and recalls[0] >= 0 and recalls[-1] <= 1
    assert all(0 <= ndcg_at(row, "question", budget) <= 1 for budget in range(1, 8))
    if found[: len(gold)] == sorted(gold):
        assert ndcg_at(row, "question", 6) == 1


def ranked(found: dict[str, list[str]], gold: list[str], id: str = "q", split: str = "dev") -> Ranked:
    return Ranked(id, "musique", split, "pooled", "A * B", 2, gold, found, dict.fromkeys(found, 1))


def question() -> AnnotatedQuestion:
    steps = (
        AnnotatedStep("Who wrote Belt?", "Ana Sorel", "Belt"),
        AnnotatedStep("Where was Ana Sorel born?", "Lima", "Ana Sorel"),
    )
    expression = "Who wrote Belt? * Where was {writer} born?"
    about = ("q", "musique", "CC0-1.0", "", "Where was Belt's writer born?", "complex", expression)
    return AnnotatedQuestion(*about, steps=steps, answers=("Lima",))


def test_compiled_leaves_are_asked_with_the_gold_answers_of_the_steps_that_they_stand_for() -> None:
    assert compiled_queries("Who is the author of Belt? * In which city was {a} born?", question()) == [
        "Who is the author of Belt?",
        "In which city was Ana Sorel born?",
    ]


def test_the_answer_that_is_asked_for_is_in_no_query() -> None:
    plan = "Where was the writer of Belt born? * What is {city} known for? * Who wrote Belt?"
    assert "Lima" not in " ".join(compiled_queries(plan, question()))
    assert set(gold_answers(["Where was he born?", "Who wrote Belt?"], question()).values()) == {"Ana Sorel"}


@pytest.mark.parametrize("plan", ["((", "Who wrote {nobody}?", ""])
def test_a_plan_that_cannot_be_run_is_the_question_itself(plan: str) -> None:
    assert compiled_queries(plan, question()) == [question().question]


def test_figures_are_paired_and_carry_n_and_interval() -> None:
    rows = [ranked({"question": ["x", "a"], "gold": ["a", "b"]}, ["a", "b"], f"q{n}") for n in range(12)]
    rows += [ranked({"question": ["a", "b"], "gold": ["a", "b"]}, ["a", "b"], "q12")]
    found = metrics_of(rows)
    [gain] = [d for d in found["differences"] if (d["group"], d["measure"], d["budget"]) == ("all", "recall", 2)]
    assert gain["n"] == 13 and gain["value"] == pytest.approx(12 * 0.5 / 13)
    assert 0 < gain["low"] <= gain["value"] <= gain["high"] <= 0.5
    assert {curve["way"] for curve in found["curves"]} == {"question", "gold"}


def rows_of_musique(count: int) -> list[dict]:
    """Two-hop questions in MuSiQue's published form, three paragraphs each."""
    rows = []
    for n in range(count):
        place, town = NAMES[n % 10] + str(n), NAMES[(n + 3) % 10] + "ton" + str(n)
        texts = [
            (place, f"{place} is a lake near {town}."),
            (town, f"{town} is led by Una {n}."),
            (f"Reed {n}", "A reed."),
        ]
        rows.append(
            {
                "id": f"2hop__{n}",
                "question": f"Who leads the town near {place}?",
                "question_decomposition": [
                    {"question": f"Which town is {place} near?", "answer": town, "paragraph_support_idx": 0},
                    {"question": "Who leads #1?", "answer": f"Una {n}", "paragraph_support_idx": 1},
                ],
                "answer": f"Una {n}",
                "answer_aliases": [],
                "paragraphs": [
                    {"idx": i, "title": title, "paragraph_text": text, "is_supporting": i < 2}
                    for i, (title, text) in enumerate(texts)
                ],
            }
        )
    return rows


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of invented questions, the files beside it, and an index of all their paragraphs."""
    folder = tmp_path_factory.mktemp("recall")
    published = write(folder / "data" / "musique.jsonl.gz", rows_of_musique(COUNT))
    passages = [
        {"title": p["title"], "text": p["paragraph_text"]} for r in rows_of_musique(COUNT) for p in r["paragraphs"]
    ]
    for name in ("corpora/musique_passages.jsonl.gz", "2wikimultihopqa/2wiki_corpus.jsonl.gz"):
        write(folder / "data" / name, passages)
    source = SourceConfig(format="musique", path=str(published), sub_questions=0)
    build(SetConfig(name="t", sources=(source,), split={"dev": 0.2}), folder / "sets" / "real")
    build_index([folder / "data" / "corpora" / "musique_passages.jsonl.gz"], folder / "indexes" / "real")
    return folder


def measured(home: Path, base: Path, out: Path) -> dict:
    given = ["--home", str(home), "--base", str(base), "--data", str(home / "data"), "--out", str(out), "--more", "9"]
    done = CliRunner().invoke(recall, ["base", *given, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plan_of(n: int) -> Plan:
    return Plan(f"musique:2hop__{n}", f"Which town is {NAMES[n % 10]}{n} near? * Who leads {{town}}?")


def test_a_measurement_goes_on_from_what_a_kill_left_and_ends_in_the_same_figures(
    home: Path, base: Path, tmp_path: Path
) -> None:
    append_rows(tmp_path / "plans.jsonl", [plan_of(n) for n in range(COUNT)])  # as if these had been compiled
    figures = measured(home, base, tmp_path)
    assert {line["way"] for line in figures["means"]} == {"question", "gold", "compiled", "executed"}
    lines = (tmp_path / "ranked.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "ranked.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:20])  # a line cut short
    (tmp_path / "metrics.json").unlink()
    kept = read_rows(tmp_path / "ranked.jsonl", Ranked)
    assert measured(home, base, tmp_path) == figures == json.loads((tmp_path / "metrics.json").read_text())
    rows = read_rows(tmp_path / "ranked.jsonl", Ranked)
    assert rows[: len(kept)] == kept and len({(row.id, row.corpus) for row in rows}) == len(rows)
    with pytest.raises(ConfigError, match="a measurement of another questions stands there"):
        begin(tmp_path, {"kind": "retrieval", "questions": 3}, {})


def test_a_home_without_a_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RevelatorError, match="nothere"):
        CliRunner().invoke(recall, ["base", "--home", str(tmp_path / "nothere")], catch_exceptions=False)


def test_its_own_paragraphs_are_ranked_among_themselves(home: Path, tmp_path: Path) -> None:
    from data_gen.sources.multi_hop import read_musique

    read = [q for q in read_musique(home / "data" / "musique.jsonl.gz") if isinstance(q, AnnotatedQuestion)]
    index = pool(read, [home / "data" / "corpora" / "musique_passages.jsonl.gz"], tmp_path, IndexSettings())
    assert len(index) == 3 * COUNT
    own = Corpus("own", index)
    for q in read[:5]:
        titles = {p.title for p in q.passages}
        found = own.of(q)(q.question, 20)
        assert {p.title for p in found} == titles and found[0].title == q.steps[0].title
        assert len(own.gold(q)) == 2
    assert own.gold(replace(read[0], passages=())) == []
