"""Sources become rows for reading: invented rows in their published shapes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import data_gen
from data_gen.commands.build import build
from data_gen.everyday.passages import PassageWriter, find_whole
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from data_gen.read_examples import find_answers
from data_gen.reading import ReadingConfig, build_reading
from revelator.config import read_config
from revelator.errors import ConfigError, DataError
from revelator.fingerprints import hash_question
from revelator.reading import Answer, ReadingRow, load_rows

PARAGRAPHS = [
    {"idx": 0, "title": "Velm", "paragraph_text": "Velm is a port in Sarnath.", "is_supporting": True},
    {"idx": 1, "title": "Sarnath", "paragraph_text": "Sarnath is ruled by Ivo Marek.", "is_supporting": True},
    {"idx": 2, "title": "Obra", "paragraph_text": "Obra has two rivers.", "is_supporting": False},
]
MUSIQUE = {
    "id": "2hop",
    "question": "Who rules the country of Velm?",
    "answer": "Ivo Marek",
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
    "original_nq_answers": [
        [{"string": "Mei Watanabe"}],
        [{"string": "Ama Oyelaran"}, {"string": "Mei Watanabe"}],
    ],
}
SINGLE = {"question": "who rules sarnath", "answer": ["Ivo Marek", "Marek"]}
CORPUS = [{"title": p["title"], "text": p["paragraph_text"]} for p in PARAGRAPHS]


class Sources:
    """A folder in which sources are written and read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, format: str, *rows: dict[str, Any], **config: Any) -> list[ReadingRow]:
        source = {"path": str(write_jsonl(self.folder / "rows.jsonl.gz", *rows)), "format": format}
        build_reading(ReadingConfig(rows="reading", sources=(source,), **config), self.folder / "out")  # type: ignore[arg-type]
        return load_rows(self.folder / "out" / "rows.jsonl.gz")


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path)


def said(row: ReadingRow) -> list[str]:
    assert all(row.passage[answer.start : answer.end] == answer.text for answer in row.answers)
    return [answer.text for answer in row.answers]


def test_each_step_of_musique_is_a_row_with_its_paragraph_and_one_with_another(sources: Sources) -> None:
    rows = sources.read("musique", MUSIQUE)
    assert [(said(row), row.title) for row in rows[::2]] == [(["Sarnath"], "Velm"), (["Ivo Marek"], "Sarnath")]
    assert rows[2].question == "Who rules Sarnath?"
    for answered, silent in zip(rows[::2], rows[1::2], strict=True):
        assert (silent.question, silent.answers) == (answered.question, ())
        assert answered.answers[0].text not in silent.passage


@pytest.mark.parametrize("format", ["hotpotqa", "2wiki"])
def test_a_question_without_steps_has_the_paragraph_that_says_the_answer_and_another(
    sources: Sources, format: str
) -> None:
    answered, silent = sources.read(format, HOTPOT | {"evidences": [["Velm", "country", "Sarnath"]]})
    assert (said(answered), answered.title) == (["Ivo Marek"], "Sarnath")
    assert (answered.question, silent.question) == (HOTPOT["question"],) * 2
    assert said(silent) == [] and "Ivo Marek" not in silent.passage


def test_a_question_of_yes_and_no_has_all_that_supports_it(sources: Sources) -> None:
    (row,) = sources.read("hotpotqa", HOTPOT | {"answer": "yes"})
    assert row.verdict == "yes"
    assert row.passage == "Velm is a port in Sarnath. Sarnath is ruled by Ivo Marek."


def test_several_answers_of_one_annotator_are_a_list(sources: Sources) -> None:
    (row,) = sources.read("qed", QED)
    assert said(row) == ["Ama Oyelaran", "Mei Watanabe"]
    assert row.is_list


def test_one_answer_in_the_words_of_several_annotators_is_no_list(sources: Sources) -> None:
    words = [[{"string": "Ama Oyelaran and Mei Watanabe"}], [{"string": "Ama Oyelaran"}]]
    (row,) = sources.read("qed", QED | {"original_nq_answers": words})
    assert said(row) == ["Ama Oyelaran and Mei Watanabe", "Ama Oyelaran"]
    assert not row.is_list


def test_a_question_without_a_passage_takes_one_of_the_corpus_that_says_the_answer(sources: Sources) -> None:
    corpus = str(write_jsonl(sources.folder / "corpus.jsonl.gz", *CORPUS))
    (row,) = sources.read("nq", SINGLE, SINGLE | {"question": "who is it", "answer": "Rosa Quispe"}, corpus=corpus)
    assert (row.title, "Ivo Marek" in said(row)) == ("Sarnath", True)
    with pytest.raises(DataError, match="no row for reading"):
        sources.read("nq", SINGLE)


def test_another_passage_of_the_article_is_read_without_an_answer(sources: Sources) -> None:
    asked = {"id": "s1", "question": "Who rules Sarnath?", "title": "Sarnath", "passage": "Ivo Marek rules it."}
    other = {"id": "s2", "question": "How many rivers?", "title": "Sarnath", "passage": "It has two rivers."}
    answers = [{"text": "Ivo Marek", "start": 0}]
    answered, silent, unanswerable = sources.read("reading", asked | {"answers": answers}, other | {"answers": []})
    assert (said(answered), answered.passage) == (["Ivo Marek"], asked["passage"])
    assert (silent.question, said(silent), silent.passage) == (asked["question"], [], other["passage"])
    assert unanswerable.id == "s2"


def test_each_step_of_an_annotated_question_is_a_row_with_the_passage_that_states_its_answers(sources: Sources) -> None:
    found = AnnotatedStep("Who founded Velm?", ("Mei Watanabe", "Ama Oyelaran"), "Velm")
    unread = AnnotatedStep("Who rules Sarnath?", ("Ivo Marek",), "Sarnath")
    texts = {"Velm": QED["paragraph_text"], "Obra": "Obra has two rivers."}
    passages = tuple(AnnotatedPassage(title, text, title == "Velm") for title, text in texts.items())
    question = AnnotatedQuestion(
        "a", "own", "own", "train", "Who?", "complex", steps=(found, unread), passages=passages
    )
    answered, silent = sources.read("world", question.to_json())
    assert said(answered) == ["Ama Oyelaran", "Mei Watanabe"]
    assert answered.is_list
    assert (said(silent), silent.title) == ([], "Obra")


def test_a_row_without_the_fields_of_its_format_is_counted(tmp_path: Path) -> None:
    broken = {name: value for name, value in HOTPOT.items() if name != "answer"}
    file = write_jsonl(tmp_path / "hotpot.jsonl.gz", HOTPOT, broken)
    made = run_build(tmp_path, tmp_path / "out", sources=[{"path": str(file), "format": "hotpotqa"}])
    counts = json.loads(made.output)["counts"]["hotpot"]
    assert {reason: count for reason, count in counts.items() if "malformed" in reason} == {
        f"malformed row: {file}, line 2: field 'answer' is missing; there are {', '.join(broken)}": 1
    }


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
    file.write_text(yaml.safe_dump({"rows": "reading", **config}))
    return CliRunner().invoke(build, [str(file), "--out", str(out), "--json"])


def test_the_command_writes_a_file_a_set_and_no_held_out_question(tmp_path: Path) -> None:
    plain = {"id": "1", "title": "", "question": "Who?", "passage": "Ada.", "answers": [{"text": "Ada", "start": 0}]}
    plain_file = write_jsonl(tmp_path / "plain.jsonl.gz", plain, plain | {"question": "Held, out!"})
    musique = write_jsonl(tmp_path / "musique.jsonl.gz", MUSIQUE)
    held = tmp_path / "held_out.sha256"
    held.write_text(f"{hash_question('held out')}  squad-held\n")
    out = tmp_path / "out"
    sources = [{"path": str(plain_file), "format": "reading"}, {"path": str(musique), "format": "musique"}]
    config = {"sources": sources, "held_out": str(held)}
    manifest = json.loads(run_build(tmp_path, out, **config).output)
    assert manifest["counts"] == {"plain": {"span": 1, "held out (squad-held)": 1}, "musique": {"none": 2, "span": 2}}
    assert [row.question for row in load_rows(out / "plain.jsonl.gz")] == ["Who?"]
    first = (out / "musique.jsonl.gz").read_bytes()
    run_build(tmp_path, out, **config)
    assert (out / "musique.jsonl.gz").read_bytes() == first


def test_a_file_that_gives_no_row_stops_the_command_and_leaves_its_folder(tmp_path: Path) -> None:
    single = write_jsonl(tmp_path / "nq.jsonl.gz", SINGLE)
    with pytest.raises(DataError, match="no row for reading"):
        raise run_build(tmp_path, tmp_path / "out", sources=[{"path": str(single), "format": "nq"}]).exception
    assert not (tmp_path / "out").exists()


SOURCE = {"path": "rows.jsonl", "format": "nq"}
TITLES = [f"{first} {last}" for first in ("Una", "Marn", "Tin", "Lake") for last in ("Vale", "Comet", "Ira", "Quill")]


@given(st.integers(0, 2**32))
def test_an_everyday_passage_says_an_answer_once_where_the_row_says_it_stands(seed: int) -> None:
    for row in PassageWriter(TITLES, Random(seed)).draw("x"):
        assert "{" not in row.passage + row.question and row.passage[0] in "-" + row.passage[0].upper()
        for answer in row.answers:
            assert row.passage[answer.start : answer.end] == answer.text and find_whole(answer.text, row.passage) == [
                answer.start
            ]
            assert answer.text not in row.question


def test_some_everyday_questions_are_not_answered_by_their_passage() -> None:
    teller = PassageWriter(TITLES, Random(5))
    rows = [row for number in range(200) for row in teller.draw(str(number))]
    assert 0.15 < sum(not row.is_answerable for row in rows) / len(rows) < 0.45


def test_the_command_draws_the_same_everyday_rows_for_a_seed_without_what_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("".join(f"Name of {i // 26 * 'a'}{chr(97 + i % 26)}\n" for i in range(120)))
    config = {"everyday": 20, "names": str(tmp_path / "names.txt")}
    assert run_build(tmp_path, tmp_path / "one", **config).exit_code == 0
    rows = load_rows(tmp_path / "one" / "everyday.jsonl.gz")
    held = tmp_path / "held.sha256"
    held.write_text(f"{hash_question(rows[0].question)}  test-set\n")
    assert run_build(tmp_path, tmp_path / "two", **config, held_out=str(held)).exit_code == 0
    assert load_rows(tmp_path / "two" / "everyday.jsonl.gz") == [r for r in rows if r.question != rows[0].question]


@pytest.mark.parametrize("config", [{}, {"everyday": 3}, {"sources": [SOURCE, SOURCE]}])
def test_nothing_to_read_or_two_sources_of_one_name_are_refused(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sources: name some|names: everyday|two are called 'rows'"):
        raise run_build(tmp_path, tmp_path / "out", **config).exception


def test_the_shipped_configurations_load() -> None:
    for path in (Path(data_gen.__file__).parent / "configs" / "reading").glob("*.yaml"):
        config = read_config(path, ReadingConfig)
        assert config.sources or config.everyday
