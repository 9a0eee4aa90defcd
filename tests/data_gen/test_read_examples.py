"""Rows of the task `read`: from rows for reading, and from questions with passages."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_gen.build import build
from data_gen.config import SetConfig, load_config
from data_gen.leakage import KEPT_BACK, is_kept_back
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from data_gen.read_examples import find_answers, list_readings
from data_gen.reading_rows import find_article, read_reading_rows
from data_gen.sources.rows import SkippedRow
from revelator.fingerprints import hash_question
from revelator.reading import Answer, ReadingRow
from revelator.rows import SPLITS, Row, stream_rows
from revelator.tasks import TASKS, ReadAnswer

READ = TASKS["read"]
TOWNS = [
    f"{first}{last}" for first in ("Orn", "Velm", "Kald", "Tess", "Obra") for last in ("el", "is", "ur", "ath", "o")
]


def make_row(number: int) -> ReadingRow:
    """Two questions a town, which has two passages; every fifth is not answered by its passage."""
    town, part = TOWNS[number // 2], number % 2
    fact, asked = (f"Rada{number} rules it", "Who rules") if part else (f"It lies by the river Sil{number}", "Where is")
    passage, answer = f"{town} is a town. {fact}.", fact.split()[0 if part else -1]
    answers = () if number % 5 == 4 else (Answer(answer, passage.index(answer)),)
    return ReadingRow(str(number), f"{asked} {town}?", passage, f"{town}: Part {part}", answers)


def write_rows(path: Path, rows: list[ReadingRow]) -> Path:
    path.write_bytes(gzip.compress("".join(f"{row.to_json()}\n" for row in rows).encode()))
    return path


def configured(path: Path, **fields) -> SetConfig:
    source = {"format": "reading", "path": str(path), "tasks": ["read"]}
    return SetConfig.model_validate({"name": "t", "sources": [source], "split": {"dev": 0.3}, **fields})


def list_passages(row: Row) -> list[str]:
    return [text for name, text in READ.read_values(row.prompt).items() if name != "question"]


@pytest.fixture
def rows(tmp_path: Path) -> list[ReadingRow]:
    return [make_row(number) for number in range(2 * len(TOWNS))]


def test_an_answer_stands_in_the_prompt_and_where_there_is_none_no_passage_says_it(
    rows: list[ReadingRow], tmp_path: Path
) -> None:
    build(configured(write_rows(tmp_path / "towns.jsonl.gz", rows)), tmp_path / "set")
    made = [row for split in ("train", "dev") for row in stream_rows(tmp_path / "set", split)]
    said = {row.question: [answer.text for answer in row.answers] for row in rows}
    numbers, kinds = set(), set()
    for row in made:
        gold, passages = READ.parse(row.completion), list_passages(row)
        assert READ.write(gold) == json.loads(row.gold)
        assert all(find_answers("\n".join(passages), [answer]) for answer in gold.answers)
        assert not (gold.verdict and find_answers("\n".join(passages), said[row.question]))
        numbers.add(len(passages))
        kinds.add((gold.verdict, bool(said[row.question])))
    assert numbers == {1, 2, 3}
    assert kinds == {("", True), ("unanswerable", True), ("unanswerable", False)}


def test_no_article_is_in_two_splits_and_what_is_held_out_is_in_none(rows: list[ReadingRow], tmp_path: Path) -> None:
    held = tmp_path / "held_out.sha256"
    held.write_text(f"{hash_question(rows[0].question)}  towns-held\n")
    path = write_rows(tmp_path / "towns.jsonl.gz", rows)
    manifest = build(configured(path, held_out=str(held)), tmp_path / "set")
    towns = {
        split: {
            town
            for row in stream_rows(tmp_path / "set", split)
            for town in TOWNS
            if any(town in text for text in list_passages(row))
        }
        for split in ("train", "dev")
    }
    assert towns["train"] and towns["dev"] and not towns["train"] & towns["dev"]
    assert manifest["dropped"] == {"held out (towns-held)": 1}
    assert all(row.question != rows[0].question for split in SPLITS for row in stream_rows(tmp_path / "set", split))


def test_what_is_kept_back_is_not_even_a_passage_beside_another(rows: list[ReadingRow], tmp_path: Path) -> None:
    path = write_rows(tmp_path / "towns.jsonl.gz", rows)
    found = list(read_reading_rows(path, configured(path, keep_back=0.5)))
    shown = {passage.title for one in found if isinstance(one, AnnotatedQuestion) for passage in one.passages}
    assert {one.reason for one in found if isinstance(one, SkippedRow)} == {KEPT_BACK}
    assert shown and not any(is_kept_back(title, 0.5) for title in shown)


def test_a_question_that_several_articles_are_asked_is_put_to_its_own_passage_alone(tmp_path: Path) -> None:
    rows = [replace(make_row(number), question="Who rules it?") for number in (1, 3, 5, 7)]
    path = write_rows(tmp_path / "towns.jsonl.gz", rows)
    questions = list(read_reading_rows(path, configured(path)))
    assert len(questions) == 4 and all(len(question.passages) == 1 for question in questions)
    assert build(configured(path), tmp_path / "set")["dropped"] == {}, "the passage tells such questions apart"


def test_of_rows_without_an_answer_there_are_a_third_as_many_as_of_the_others(tmp_path: Path) -> None:
    rows = [replace(make_row(number), answers=()) if number % 4 else make_row(number) for number in range(40)]
    path = write_rows(tmp_path / "towns.jsonl.gz", rows)
    found = list(read_reading_rows(path, configured(path)))
    questions = [one for one in found if isinstance(one, AnnotatedQuestion)]
    assert len(found) == 40 and sum(isinstance(one, SkippedRow) for one in found) == 40 - len(questions)
    answered = sum(bool(question.answers) for question in questions)
    assert 0 < len(questions) - answered <= 0.35 * answered + 1


HOPS = AnnotatedQuestion(
    id="h", source="s", licence="CC0-1.0", split="train", question="Who rules the country of Velm?", route="complex",
    answers=("Ivo Marek",),
    passages=(
        AnnotatedPassage("Velm", "Velm is a port in Sarnath.", True),
        AnnotatedPassage("Sarnath", "Sarnath is ruled by ivo marek.", True),
        AnnotatedPassage("Marek", "Ivo Marek is a poet.", False),
        AnnotatedPassage("Obra", "Obra has two rivers.", False),
    ),
)  # fmt: skip


@given(st.integers())
def test_a_question_of_several_hops_has_all_that_it_needs_or_lacks_what_tells(seed: int) -> None:
    for key, shown, gold in list_readings(HOPS, Random(seed)):
        titles = {title for title, _ in shown.passages}
        assert "Marek" not in titles and len(titles) <= 3
        if key == "answer":
            assert gold == ReadAnswer(("ivo marek",)) and {"Velm", "Sarnath"} <= titles, "as the passage spells it"
        else:
            assert gold == ReadAnswer(verdict="unanswerable") and "Sarnath" not in titles


@given(st.integers())
def test_a_yes_or_no_needs_all_its_passages(seed: int) -> None:
    for key, shown, gold in list_readings(replace(HOPS, answers=("no",)), Random(seed)):
        needed = {"Velm", "Sarnath"} & {title for title, _ in shown.passages}
        assert (
            gold.verdict == ("no" if len(needed) == 2 else "unanswerable")
            and key == ("answer", "none")[len(needed) < 2]
        )


def test_a_source_reads_only_where_its_tasks_say_so() -> None:
    config = configured(Path("rows"))
    plain = config.sources[0].model_copy(update={"tasks": ()})
    assert config.list_tasks(config.sources[0]) == ("read",)
    assert set(config.list_tasks(plain)) == set(TASKS) - {"read"}


def test_an_article_is_the_title_before_its_heading_or_the_passage() -> None:
    rows = [make_row(0), make_row(1), replace(make_row(0), title="")]
    assert [find_article(row) for row in rows] == ["ornel", "ornel", rows[2].passage.casefold()]


def test_the_shipped_configuration_loads() -> None:
    config = load_config(Path("data_gen/configs/read.yaml"))
    assert all(config.list_tasks(source) == ("read",) for source in config.sources)
