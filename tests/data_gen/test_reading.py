"""Published sets become rows for reading: invented rows in their published shapes."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import data_gen
from data_gen.commands import build
from data_gen.everyday.passages import PassageWriter
from data_gen.leakage import hash_question
from data_gen.reading import Bm25, ReadingConfig, convert, find_answers, word_step
from revelator.config import read_config
from revelator.errors import ConfigError, DataError
from revelator.reading import Answer, ReadingRow, load_rows

PARAGRAPHS = [
    {"idx": 0, "title": "Velm", "paragraph_text": "Velm is a port in Sarnath.", "is_supporting": True},
    {"idx": 1, "title": "Sarnath", "paragraph_text": "Sarnath is ruled by Ivo Marek.", "is_supporting": True},
    {"idx": 2, "title": "Obra", "paragraph_text": "Obra has two rivers.", "is_supporting": False},
]
MUSIQUE = {
    "id": "2hop",
    "paragraphs": PARAGRAPHS,
    "question_decomposition": [
        {"question": "Velm >> country", "answer": "Sarnath", "paragraph_support_idx": 0},
        {"question": "Who rules #1?", "answer": "Ivo Marek", "paragraph_support_idx": 1},
    ],
}
HOTPOT = {
    "_id": "h1",
    "question": "Who rules the country of Velm?",
    "answer": "Ivo Marek",
    "supporting_facts": [["Velm", 0], ["Sarnath", 0]],
    "context": [[p["title"], [p["paragraph_text"]]] for p in PARAGRAPHS],
}
QED = {
    "example_id": 7,
    "title_text": "Velm",
    "question_text": "who founded velm",
    "paragraph_text": "Velm was founded by Ama Oyelaran and Mei Watanabe .",
    "original_nq_answers": [[{"start": 20, "end": 32}, {"start": 37, "end": 49}]],
}
SINGLE = {"question": "who rules sarnath", "answer": ["Ivo Marek", "Marek"]}
CORPUS = [{"title": p["title"], "text": p["paragraph_text"]} for p in PARAGRAPHS]


def rows_of(*published: dict[str, Any], corpus: Bm25 | None = None) -> list[ReadingRow]:
    return list(convert(published, corpus, Counter()))


def said(row: ReadingRow) -> list[str]:
    assert all(row.passage[answer.start : answer.end] == answer.text for answer in row.answers)
    return [answer.text for answer in row.answers]


def test_each_step_of_musique_is_a_row_with_its_paragraph_and_one_with_another() -> None:
    rows = rows_of(MUSIQUE)
    assert [(row.question, said(row), row.title) for row in rows] == [
        ("What is the country of Velm?", ["Sarnath"], "Velm"),
        ("What is the country of Velm?", [], "Obra"),
        ("Who rules Sarnath?", ["Ivo Marek"], "Sarnath"),
        ("Who rules Sarnath?", [], "Obra"),
    ]


def test_a_question_of_hotpot_has_the_paragraph_that_says_the_answer_and_one_that_supports_nothing() -> None:
    answered, silent = rows_of(HOTPOT)
    assert (said(answered), answered.title) == (["Ivo Marek"], "Sarnath")
    assert (said(silent), silent.title) == ([], "Obra")


def test_a_question_of_yes_and_no_has_all_that_supports_it() -> None:
    (row,) = rows_of(HOTPOT | {"answer": "yes"})
    assert row.verdict == "yes"
    assert row.passage == "Velm is a port in Sarnath. Sarnath is ruled by Ivo Marek."


def test_several_answers_of_one_annotator_are_a_list() -> None:
    (row,) = rows_of(QED)
    assert said(row) == ["Ama Oyelaran", "Mei Watanabe"]
    assert row.is_list


def test_a_question_without_a_passage_takes_one_of_the_corpus_that_says_the_answer() -> None:
    (row,) = rows_of(SINGLE, corpus=Bm25(CORPUS))
    assert (row.title, "Ivo Marek" in said(row)) == ("Sarnath", True)
    assert rows_of(SINGLE) == []
    assert rows_of(SINGLE | {"answer": "Rosa Quispe"}, corpus=Bm25(CORPUS)) == []


def test_another_passage_of_the_article_is_read_without_an_answer() -> None:
    asked = {"id": "s1", "question": "Who rules Sarnath?", "title": "Sarnath", "passage": "Ivo Marek rules it."}
    other = {"id": "s2", "question": "How many rivers?", "title": "Sarnath", "passage": "It has two rivers."}
    answered, silent, unanswerable = rows_of(
        asked | {"answers": [{"text": "Ivo Marek", "start": 0}]}, other | {"answers": []}
    )
    assert (said(answered), answered.passage) == (["Ivo Marek"], asked["passage"])
    assert (silent.question, said(silent), silent.passage) == (asked["question"], [], other["passage"])
    assert unanswerable.id == "s2"


def test_each_step_of_an_annotated_question_is_a_row_with_the_passage_that_states_its_answers() -> None:
    step = {"question": "Who founded Velm?", "answers": ["Mei Watanabe", "Ama Oyelaran"], "title": "Velm"}
    passages = [{"title": "Velm", "text": QED["paragraph_text"]}, {"title": "Obra", "text": "Obra has two rivers."}]
    unread = {"question": "Who rules Sarnath?", "answers": ["Ivo Marek"], "title": "Sarnath"}
    answered, silent = rows_of({"id": "a", "steps": [step, unread], "passages": passages})
    assert said(answered) == ["Ama Oyelaran", "Mei Watanabe"]
    assert answered.is_list
    assert (said(silent), silent.title) == ([], "Obra")


def test_a_step_that_refers_to_none_is_left_out() -> None:
    assert word_step("Who rules #3?", ["Sarnath"]) is None


def test_a_row_without_the_fields_of_its_kind_is_counted() -> None:
    dropped: Counter[str] = Counter()
    broken = {name: value for name, value in HOTPOT.items() if name != "context"}
    assert len(list(convert([HOTPOT, broken], None, dropped))) == 2
    assert dropped == {"not a row of the file's kind": 1}


@given(before=st.text(max_size=50), after=st.text(max_size=50))
def test_answers_are_found_as_whole_words_in_any_text(before: str, after: str) -> None:
    passage = f"{before} Ivo Marek {after}"
    found = find_answers(passage, ["ivo marek"])
    assert found
    assert all(passage[answer.start : answer.end] == answer.text for answer in found)
    assert find_answers("Ivo Mareks", ["Ivo Marek"]) == ()
    assert find_answers("a (b) c", ["(b)"]) == (Answer("(b)", 2),)


def write_jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_bytes(gzip.compress("".join(f"{json.dumps(row)}\n" for row in rows).encode()))
    return path


def run_build(folder: Path, out: Path, **config: Any) -> Result:
    file = folder / "reading.yaml"
    file.write_text(yaml.safe_dump(config))
    return CliRunner().invoke(build, [str(file), "--out", str(out), "--json"])


def test_the_command_writes_a_file_a_set_and_no_held_out_question(tmp_path: Path) -> None:
    plain = {"id": "1", "title": "", "question": "Who?", "passage": "Ada.", "answers": [{"text": "Ada", "start": 0}]}
    plain_file = write_jsonl(tmp_path / "plain.jsonl.gz", plain, plain | {"question": "Held, out!"})
    musique = write_jsonl(tmp_path / "musique.jsonl.gz", MUSIQUE)
    held = tmp_path / "held_out.sha256"
    held.write_text(f"{hash_question('held out')}  squad-held\n")
    out = tmp_path / "out"
    config = {"reading": [str(plain_file), str(musique)], "held_out": str(held)}
    manifest = json.loads(run_build(tmp_path, out, **config).output)
    assert manifest["counts"] == {"plain": {"span": 1, "held out (squad-held)": 1}, "musique": {"none": 2, "span": 2}}
    assert [row.question for row in load_rows(out / "plain.jsonl.gz")] == ["Who?"]
    first = (out / "musique.jsonl.gz").read_bytes()
    run_build(tmp_path, out, **config)
    assert (out / "musique.jsonl.gz").read_bytes() == first


def test_a_file_that_gives_no_row_stops_the_command_and_leaves_its_folder(tmp_path: Path) -> None:
    single = write_jsonl(tmp_path / "nq.jsonl.gz", SINGLE)
    with pytest.raises(DataError, match="no row for reading"):
        raise run_build(tmp_path, tmp_path / "out", reading=[str(single)]).exception
    assert not (tmp_path / "out").exists()


TITLES = [f"{first} {last}" for first in ("Una", "Marn", "Tin", "Lake") for last in ("Vale", "Comet", "Ira", "Quill")]


@given(st.integers(0, 2**32))
def test_an_everyday_passage_says_an_answer_once_where_the_row_says_it_stands(seed: int) -> None:
    for row in PassageWriter(TITLES, Random(seed)).draw("x"):
        assert "{" not in row.passage + row.question and row.passage[0] in "-" + row.passage[0].upper()
        for answer in row.answers:
            assert row.passage[answer.start : answer.end] == answer.text and row.passage.count(answer.text) == 1
            assert answer.text not in row.question


def test_some_everyday_questions_are_not_answered_by_their_passage() -> None:
    teller = PassageWriter(TITLES, Random(5))
    rows = [row for number in range(200) for row in teller.draw(str(number))]
    assert 0.15 < sum(not row.is_answerable for row in rows) / len(rows) < 0.45


def test_the_command_draws_the_same_everyday_rows_for_a_seed_without_what_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("".join(f"Name of {i // 26 * 'a'}{chr(97 + i % 26)}\n" for i in range(120)))
    config = {"reading": [], "everyday": 20, "names": str(tmp_path / "names.txt")}
    assert run_build(tmp_path, tmp_path / "one", **config).exit_code == 0
    rows = load_rows(tmp_path / "one" / "everyday.jsonl.gz")
    held = tmp_path / "held.sha256"
    held.write_text(f"{hash_question(rows[0].question)}  test-set\n")
    assert run_build(tmp_path, tmp_path / "two", **config, held_out=str(held)).exit_code == 0
    assert load_rows(tmp_path / "two" / "everyday.jsonl.gz") == [r for r in rows if r.question != rows[0].question]


@pytest.mark.parametrize("config", [{"reading": []}, {"reading": [], "everyday": 3}])
def test_nothing_to_read_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reading: name files|names: everyday"):
        raise run_build(tmp_path, tmp_path / "out", **config).exception


def test_the_shipped_configuration_loads() -> None:
    for path in (Path(data_gen.__file__).parent / "configs" / "reading").glob("*.yaml"):
        assert read_config(path, ReadingConfig).reading
