"""Benchmarks in their published forms: every question is kept, pinned, and what does not fit is refused by name."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from data_gen.build import build
from data_gen.config import SetConfig
from evaluation.harness.benchmarks import Benchmark, open_benchmark
from evaluation.harness.config import BenchmarkConfig
from evaluation.harness.formats import FORMATS
from revelator.config import DATA_DEFAULT, DATA_VARIABLE
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import sha256_file
from revelator.rows import stream_rows

CONTEXT = [["Tin Comet", ["Harrow Pictures distributed it."]], ["Quill", ["A feather."]]]
HOTPOT = {
    "_id": "h1",
    "question": "Who founded the distributor of Tin Comet?",
    "answer": "Ada Quill",
    "type": "bridge",
    "supporting_facts": [["Tin Comet", 0]],
    "context": CONTEXT,
}
EVIDENCES = [["Tin Comet", "distributed by", "Harrow Pictures"], ["Harrow Pictures", "founded by", "Ada Quill"]]
MUSIQUE = {
    "id": "2hop__1_2",
    "question": "Who founded the distributor of Tin Comet?",
    "answer": "Ada Quill",
    "answer_aliases": ["A. Quill"],
    "answerable": True,
    "paragraphs": [],
    "question_decomposition": [
        {"id": 1, "question": "Tin Comet >> distributor", "answer": "Harrow Pictures"},
        {"id": 2, "question": "Who founded #1?", "answer": "Ada Quill"},
    ],
}
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Tin_Comet",
            "paragraphs": [
                {
                    "context": "Harrow Pictures distributed Tin Comet.",
                    "qas": [{"id": "s1", "question": "Who distributed it?", "answers": [{"text": "Harrow Pictures"}]}],
                }
            ],
        }
    ],
}
CRAG = {
    "interaction_id": "c1",
    "query": "who founded harrow pictures?",
    "answer": "ada quill",
    "alt_ans": ["a. quill"],
    "question_type": "simple",
    "static_or_dynamic": "static",
}
COMPOUND = {"id": "1", "question": "Who founded it, and when?", "answers": ["Ada Quill", "1941"], "parts": ["a?", "b?"]}
OWN = {
    "id": "w1",
    "source": "world",
    "licence": "",
    "split": "test",
    "route": "single",
    "question": "Who made it?",
    "answers": ["Ada"],
}
PUBLISHED: dict[str, tuple[list[dict[str, Any]], str, dict[str, Any]]] = {
    "hotpotqa": ([HOTPOT], "hotpotqa", {"kind": "bridge", "route": "complex", "titles": 2}),
    "2wiki": (
        [{**HOTPOT, "type": "compositional", "evidences": EVIDENCES}],
        "hotpotqa",
        {"kind": "compositional", "plan": True, "titles": 2},
    ),
    "musique": ([MUSIQUE], "musique", {"kind": "2hop", "plan": True, "answers": ("Ada Quill", "A. Quill")}),
    "bamboogle": ([{"Question": "Who?", "Answer": "Ada"}], "squad", {"route": "complex"}),
    "nq": ([{"question": "who made it", "answer": ["Ada", "A."]}], "squad", {"answers": ("Ada", "A.")}),
    "triviaqa": ([{"question": "Who?", "answer": ["Ada"]}], "squad", {"route": "single"}),
    "compound": ([COMPOUND], "squad", {"kind": "2 parts", "route": "compound", "answers": ("Ada Quill", "1941")}),
    "blendqa": ([{"id": "b", "question": "Who?", "answer": "Ada", "type": "KG-Web"}], "atomr", {"kind": "KG-Web"}),
    "crag": ([CRAG], "atomr", {"kind": "static/simple", "answers": ("ada quill", "a. quill")}),
    "metaqa": (
        [{"question": "what does [Tom Cullen] act in", "answers": ["Weekend", "Black Mirror"]}],
        "squad",
        {"kind": "rows.jsonl", "answers": ("Weekend", "Black Mirror")},
    ),
    "world": ([OWN], "squad", {"kind": "single"}),
}


def read(format: str, path: str, **values: Any) -> Benchmark:
    return open_benchmark(BenchmarkConfig.model_validate({"format": format, "path": path, **values}))


def lines(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_row_becomes_a_question_with_its_gold(name: str, tmp_path: Path) -> None:
    rows, normaliser, wanted = PUBLISHED[name]
    found = read(name, lines(tmp_path / "rows.jsonl", rows))
    [question] = found.questions
    gold = question.gold
    assert found.normaliser == normaliser
    assert question.kind == wanted.get("kind", "")
    assert gold.route == wanted.get("route", gold.route)
    assert gold.answers == wanted.get("answers", gold.answers) and gold.answers
    assert bool(gold.expression) >= wanted.get("plan", False)
    assert len(gold.passages) == wanted.get("titles", len(gold.passages))


def test_squad_is_read_from_its_one_object(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(SQUAD))
    [question] = read("squad", str(path)).questions
    assert question.gold.answers == ("Harrow Pictures",) and question.gold.passages[0].relevant


def test_files_may_be_compressed_as_they_are_published(tmp_path: Path) -> None:
    data = json.dumps(CRAG).encode() + b"\n"
    (tmp_path / "a.jsonl.bz2").write_bytes(bz2.compress(data))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(data))
    for name in ("a.jsonl.bz2", "a.jsonl.gz"):
        assert len(read("crag", str(tmp_path / name)).questions) == 1


def test_a_question_without_a_plan_is_asked_all_the_same(tmp_path: Path) -> None:
    odd = {**HOTPOT, "_id": "h2", "type": "compositional", "evidences": [["Nobody", "is", "there"]]}
    found = read("2wiki", lines(tmp_path / "a.jsonl", [odd]))
    assert [q.gold.expression for q in found.questions] == [""]
    whole = {**MUSIQUE, "id": "2hop__3_4", "answerable": False}
    assert len(read("musique", lines(tmp_path / "b.jsonl", [MUSIQUE, whole])).questions) == 1


def test_a_row_that_cannot_be_read_is_named_with_its_line(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", [HOTPOT, {"question": "Who?"}])
    with pytest.raises(DataError, match=r"a\.jsonl, line 2"):
        read("hotpotqa", path)


def test_the_answers_of_compound_parts_are_a_list_and_one_text_is_refused(tmp_path: Path) -> None:
    titled = {**COMPOUND, "answers": ["Ada; or, The Quill", "1941"]}
    [question] = read("compound", lines(tmp_path / "a.jsonl", [titled])).questions
    assert question.gold.answers == ("Ada; or, The Quill", "1941")
    with pytest.raises(DataError, match=r"one text for all parts, 'Ada Quill; 1941'"):
        read("compound", lines(tmp_path / "b.jsonl", [{**COMPOUND, "answers": "Ada Quill; 1941"}]))


def many(tmp_path: Path, **options: Any) -> Benchmark:
    rows = [{"id": f"q{n}", "question": f"Who made {n}?", "answer": "Ada"} for n in range(9)]
    return read("nq", lines(tmp_path / "many.jsonl", [*rows, rows[0]]), **options)


def test_only_questions_that_training_left_out_are_asked(tmp_path: Path) -> None:
    whole = many(tmp_path)
    source = {"format": "nq", "path": str(tmp_path / "many.jsonl")}
    made = tmp_path / "set"
    build(SetConfig.model_validate({"name": "t", "sources": [source], "split": {"dev": 0.4}}), made)
    found = many(tmp_path, dev_of=str(made))
    trained = {record.group for record in stream_rows(made, "train")}
    assert {q.id for q in found.questions} == {q.id for q in whole.questions} - trained
    assert 0 < len(found.questions) < len(whole.questions) and str(made) in found.files
    with pytest.raises(ArtifactError, match="not an instruction set"):
        many(tmp_path, dev_of=str(tmp_path / "none"))


def test_a_sample_is_pinned_by_the_hash_of_the_ids(tmp_path: Path) -> None:
    three, five = (many(tmp_path, sample=n) for n in (3, 5))
    assert {q.id for q in three.questions} < {q.id for q in five.questions}
    assert [q.id for q in many(tmp_path).questions] == [f"nq:q{n}" for n in range(9)]  # a repeated row counts once
    with pytest.raises(DataError, match="no question is left"):
        many(tmp_path, split="test")


def test_a_changed_file_is_refused_by_its_digest(tmp_path: Path) -> None:
    many(tmp_path)
    pinned = [sha256_file(tmp_path / "many.jsonl")]
    assert many(tmp_path, sha256=pinned).files == {str(tmp_path / "many.jsonl"): pinned[0]}
    with pytest.raises(ArtifactError, match=r"benchmark changed:\n.*many\.jsonl: sha256 .*, pinned 0000"):
        many(tmp_path, sha256=["0" * 64])
    with pytest.raises(ConfigError, match="no benchmark format 'nqq'"):
        read("nqq", "rows.jsonl")
    with pytest.raises(DataError, match="no such file"):
        read("nq", str(tmp_path / "gone.jsonl"))


CONFIGS = sorted((Path(__file__).parents[2] / "evaluation" / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_example_is_a_configuration_of_a_known_format(path: Path) -> None:
    from evaluation.baselines.methods import BASELINES
    from evaluation.harness.ablations import check_ablation
    from evaluation.harness.config import load_runs

    for config in load_runs(path, concurrency=3).values():
        assert config.benchmark.format in FORMATS or config.system.ranking
        assert config.system.baseline is None or config.system.baseline in BASELINES
        assert config.concurrency == 3
        check_ablation(config.ablation, config.system.name, served=bool(config.url))


@pytest.mark.parametrize("format", ["musique", "2wiki", "hotpotqa", "nq", "triviaqa"])
def test_published_files_are_read_whole(format: str) -> None:
    places = {
        "musique": "musique/musique_decomposed.jsonl.gz",
        "2wiki": "2wikimultihopqa/2wiki_dev_with_context.jsonl.gz",
        "hotpotqa": "hotpotqa/hotpot_dev_with_context.jsonl.gz",
        "nq": "nq/nq_train_8757.jsonl.gz",
        "triviaqa": "triviaqa/triviaqa_8837.jsonl.gz",
    }
    path = Path(os.environ.get(DATA_VARIABLE, DATA_DEFAULT)) / places[format]
    if not path.is_file():
        pytest.skip(f"{path} is not here: REVELATOR_DATA names the published files")
    found = read(format, str(path))
    rows = len(gzip.decompress(path.read_bytes()).splitlines())
    assert 0.8 * rows <= len(found.questions) <= rows and all(q.gold.answers for q in found.questions)
