from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from data_gen.sources.multi_hop import read_musique, read_two_wiki
from data_gen.sources.rows import RefusedRow, SkippedRow, read_world
from revelator.errors import DataError
from revelator.plans import parse, to_letters
from revelator.row_files import MalformedRow, read_rows
from tests.data_gen.published import ANNOTATED


def questions(outcomes) -> dict[str, AnnotatedQuestion]:
    return {outcome.id: outcome for outcome in outcomes}


def test_a_short_form_becomes_a_question_in_the_words_of_the_whole_one(musique: Path) -> None:
    question = questions(read_musique(musique))["musique:2hop__1_2"]
    asked = "Who distributed the film Tin Comet?", "Which company distributed the film Tin Comet?"
    assert question.expression in [f"{first} * Who founded {{1}}?" for first in asked]
    assert question.route == "complex"
    assert question.answers == ("Ada Quill", "A. Quill")
    assert question.steps[1] == AnnotatedStep("Who founded Harrow Pictures?", ("Ada Quill",), "Harrow Pictures")
    assert question.entities == ("Tin Comet",)
    assert [passage.relevant for passage in question.passages] == [False, True, True, False]


def test_references_to_two_steps_make_a_group_and_free_words_are_kept(musique: Path) -> None:
    question = questions(read_musique(musique))["musique:3hop2__3_4_5"]
    assert to_letters(parse(question.expression)) == "(A + B) * C"
    assert question.expression.startswith("(Who made the Plover? + ")
    assert question.steps[-1].question == "When did Morrow Works and Stane Ltd merge?"


@pytest.mark.parametrize(
    ("identity", "expression"),
    [
        (
            "2wiki:bc1",
            "Who is the director of Salt Road? * When was {1} born? + "
            "Who is the director of The Blue Kiln (1934 Film)? * When was {3} born?",
        ),
        ("2wiki:c1", "Which country is Orn Fell located in? + Which country is Lake Sedge located in?"),
        ("2wiki:i1", "Who is Odo Of Marn's father? * Who is {1}'s father?"),
        ("2wiki:p1", "Who is the performer of the song Ember Lane (Ria Sol Song)? * Where was {1} born?"),
    ],
)
def test_evidences_become_plans_in_the_order_and_spelling_of_the_question(
    two_wiki: Path, identity: str, expression: str
) -> None:
    assert questions(read_two_wiki(two_wiki))[identity].expression == expression


def test_steps_of_evidences_carry_answers_and_the_titles_that_support_them(two_wiki: Path) -> None:
    steps = questions(read_two_wiki(two_wiki))["2wiki:bc1"].steps
    assert [(step.answers, step.title) for step in steps] == [
        (("Mila Tross",), "Salt Road"),
        (("7 June 1901",), "Mila Tross"),
        (("Eno Vard",), "The Blue Kiln (1934 film)"),
        (("3 May 1899",), "Eno Vard"),
    ]


def test_a_malformed_row_is_handed_on_with_file_line_and_reason(write) -> None:
    good = {"id": "q", "question": "Who made X?", "question_decomposition": [], "answer": "Y"}
    path = write("m.jsonl", [json.dumps({"id": "a"}), "{oops", json.dumps([1]), json.dumps(good)])
    outcomes = list(read_musique(path))
    assert all(isinstance(outcome, RefusedRow) and outcome.file == str(path) for outcome in outcomes)
    assert [outcome.line for outcome in outcomes] == [1, 2, 3, 4]
    reasons = ["field 'question' is missing", "not JSON", "expected an object, found [", "must be a list of steps"]
    assert all(reason in outcome.reason for reason, outcome in zip(reasons, outcomes, strict=True))


def latin(place: str) -> bytes:
    """Rows of which every tenth holds a Latin-1 letter, far enough apart to lie in several blocks of the reader."""
    rows = [json.dumps(ANNOTATED | {"id": f"w:{i}"}).encode() for i in range(100)]
    rows[::10] = [row.replace(b"Who", b"Who \xe9") for row in rows[::10]]
    data = b"[" + b",\n".join(rows) + b"]" if place.endswith(".json") else b"\n".join(rows)
    return gzip.compress(data) if place.endswith(".gz") else data


@pytest.mark.parametrize("name", ["w.jsonl", "w.jsonl.gz", "w.json"])
def test_a_line_that_is_not_utf8_is_one_malformed_row(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(latin(name))
    outcomes = list(read_world(path))
    refused = [outcome for outcome in outcomes if isinstance(outcome, RefusedRow)]
    assert len(outcomes) == 100 and [(row.file, row.line) for row in refused] == [
        (str(path), line) for line in range(1, 101, 10)
    ]
    assert {row.reason.partition(" at ")[0] for row in refused} == {"not UTF-8 text: byte 0xe9"}


def test_a_row_of_csv_that_is_not_utf8_is_one_malformed_row(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_bytes(b"question,answer\nWho?,Ren\xe9\nWho?,Ada\n")
    assert list(read_rows(str(path))) == [
        (2, MalformedRow("not UTF-8 text: byte 0xe9 at character 8; save the file as UTF-8")),
        (3, {"question": "Who?", "answer": "Ada"}),
    ]


def test_aliases_that_are_one_text_are_refused_and_not_read_letter_by_letter(write, musique_rows) -> None:
    [outcome] = read_musique(write("m.jsonl", [musique_rows[0] | {"answer_aliases": "A. Quill"}]))
    assert isinstance(outcome, RefusedRow)
    assert outcome.reason == "field 'answer_aliases' must be a list of texts, found 'A. Quill'"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": None}, "field 'question': a text is needed, found null"),
        ({"question": " "}, "field 'question': a text is needed, found \" \""),
        ({"question": "\ud800?"}, "field 'question': input should be a valid string"),
        ({"split": "training"}, "field 'split': must be one of train, dev, test, found \"training\""),
        ({"route": "easy"}, "field 'route': must be one of straightforward, single, compound, complex"),
        ({"answers": "Una"}, "field 'answers': a list is needed, found \"Una\""),
        ({"steps": [{"question": "Who leads Orn?", "answers": [3]}]}, "field 'steps.0.answers.0': a text is needed"),
        ({"steps": [{"question": "Who leads Orn?", "answers": "x"}]}, "field 'steps.0.answers': a list is needed"),
        ({"steps": [{"question": "Who leads Orn?", "answer": "x"}]}, "field 'steps.0.answers': this field is needed"),
        ({"passages": [{"title": "Orn", "text": "", "relevant": "no"}]}, "'passages.0.relevant': input should be"),
        ({"answer": "Una"}, "field 'answer': there is no such field, found \"Una\""),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(write, change: dict, reason: str) -> None:
    good, bad = read_world(write("w.jsonl", [ANNOTATED, {**ANNOTATED, **change}]))
    assert isinstance(good, AnnotatedQuestion)
    assert isinstance(bad, RefusedRow) and bad.line == 2 and reason in bad.reason


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text(json.dumps(ANNOTATED), encoding="utf-8-sig")
    assert [outcome.id for outcome in read_world(path)] == ["w:1"]


def test_a_reference_to_a_later_step_gives_no_plan(write) -> None:
    steps = [{"question": "who led #2", "answer": "a"}, {"question": "who led #1", "answer": "b"}]
    row = {"id": "q", "question": "Who led whom?", "question_decomposition": steps, "answer": "b"}
    assert list(read_musique(write("m.jsonl", [row]))) == [SkippedRow("q", "a step refers to a later step or to none")]


def test_a_truncated_gzip_stops_with_the_file_and_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    lines = "\n".join(json.dumps({"id": str(i), "noise": f"{i * 7919:x}"}) for i in range(5000))
    path.write_bytes(gzip.compress(lines.encode())[:-500])
    with pytest.raises(DataError, match="gzip stream is damaged") as caught:
        list(read_musique(path))
    whole = zlib.decompressobj(wbits=31).decompress(path.read_bytes()).count(b"\n")
    place, _, line = (caught.value.where or "").rpartition(", after line ")
    assert place == str(path) and 0 < int(line) <= whole and caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("page.jsonl", b"<html>not found</html>\n", "not a file of rows: not JSON"),
        ("cut.json", b'[{"_id": "a"}, {"_id"', "cut off or malformed"),
        ("empty.jsonl", b"", "empty"),
        ("binary.jsonl", b"\xd0\xcf\x11\xe0 {}\n", "not UTF-8"),
        ("number.json", b'[{"_id": ' + b"9" * 5000 + b"}]", "malformed: Exceeds the limit"),
        ("two.json", b"[{}]\n[{}]", "malformed: Extra data"),
        ("open.csv", b'_id,question\n1,"Who\n2,Where?\n', "not CSV: unexpected end of data"),
    ],
)
def test_a_broken_file_stops_the_reading(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_two_wiki(path))


def test_a_row_that_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('question,answer\nWho?,Ada\n"What "is" it?",b\nWhere?,Rome\n')
    (tmp_path / "a.jsonl").write_text(f'{{"question": "Who?"}}\n{{"n": {"9" * 5000}}}\n{{"question": "Where?"}}\n')
    for name, reason in (("a.csv", "not CSV"), ("a.jsonl", "not JSON: Exceeds")):
        found = [(line, row) for line, row in read_rows(str(tmp_path / name))]
        assert [row["question"] for line, row in found if line != found[1][0]] == ["Who?", "Where?"]
        assert isinstance(found[1][1], MalformedRow) and found[1][1].reason.startswith(reason)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(read_two_wiki(tmp_path / "none.jsonl"))


def test_a_world_is_read_from_its_folder(tmp_path: Path) -> None:
    question = AnnotatedQuestion("w1", "world", "CC0-1.0", "dev", "Who?", "single", "Who?", answers=("I",))
    (tmp_path / "questions.jsonl").write_text(json.dumps(question.to_json()) + "\n", encoding="utf-8")
    assert list(read_world(tmp_path)) == [question]


def test_two_columns_of_one_name_and_a_header_alone_are_refused(tmp_path: Path) -> None:
    for text, says in (("question,answer,answer\nq,a,b\n", "two columns are called 'answer'"), ("a,b\n", "no row")):
        (tmp_path / "qa.csv").write_text(text)
        with pytest.raises(DataError, match=says):
            list(read_world(tmp_path / "qa.csv"))
