"""Questions composed of single ones: what holds of every drawing, and what the command writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from data_gen.annotate.validation import find_fault
from data_gen.annotate.wording import list_relation_questions, split_words
from data_gen.augment.clauses import DID, DOERS, DOES, read_clause
from data_gen.compose import ComposeConfig, Composer, Joiner
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from data_gen.sources.rows import read_world
from revelator import plans
from revelator.cli import revelator
from revelator.config import read_config
from revelator.errors import DataError, RevelatorError
from revelator.fingerprints import hash_question

NAMES = ["Una Vale", "The Reed", "Kiln 9", "Marn & Co.", "Ost", "Lake Ira", "Tin Comet", "Ada Quill"]
SINGLE = [
    "who sings the theme of the green lantern",
    "who played harrow in the old kiln",
    "who is the president of marn",
    "where was ada quill born",
    "in which county is the mill of orn located",
    "what team did joss reed play for",
    "which river flows through ostrava",
    "when was the tower of ira built",
    "who wrote the song tin comet for una vale",
    "when did marn take over ostrava",
    "where does the reed flow through lake ira",
]
MUSIQUE = {"A * B", "A * B * C", "A * B * C * D", "(A + B) * C", "(A * B + C) * D", "(A + B) * C * D"}
CHANGED = {"did", "does", "born", *DID, *DOES, *DOERS}  # what a phrase says in another form

clauses = [found for text in SINGLE if (found := read_clause(text))]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("who is the president of marn?", "the president of marn"),
        ("Who wrote Tin Comet", "the writer of Tin Comet"),
        ("which river flows through ostrava", "the river that flows through ostrava"),
        ("where was ada quill born", "the birthplace of ada quill"),
        ("where was the mill of orn built in 1911", "the place where the mill of orn was built in 1911"),
        ("in which county is the mill located", "the county in which the mill is located"),
        ("what county is the mill located in", "the county that the mill is located in"),
        ("what team did joss reed play for", "the team that joss reed played for"),
        ("where does the reed come from", "the place where the reed comes from"),
        ("who did una vale marry in orn", "the person who una vale married in orn"),
    ],
)
def test_a_phrase_stands_for_the_answer(text: str, phrase: str) -> None:
    found = read_clause(text)
    assert found and phrase in found.phrases


@pytest.mark.parametrize(
    "text", ["", "who", "girl from the video", "who {x} of marn", "who won (twice) in marn", "what is 3 + 4 of marn"]
)
def test_a_question_that_no_rule_reads_is_left(text: str) -> None:
    assert read_clause(text) is None


@pytest.mark.parametrize("text", SINGLE)
def test_spans_stand_once_in_the_question_and_in_each_phrase_and_apart(text: str) -> None:
    found = read_clause(text)
    assert found
    for said in (found.question, *found.phrases):
        places = sorted((said.index(span), said.index(span) + len(span)) for span in found.spans)
        assert all(said.count(span) == 1 for span in found.spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(places))


@given(st.integers(0, 2**32))
def test_a_drawing_has_a_graph_of_musique_and_keeps_the_questions_words(seed: int) -> None:
    drawn = Composer(clauses, NAMES, Random(seed)).draw("composed:1", "composed", "own")
    assume(drawn)  # in so small a pool a question may come twice
    plan = plans.parse(drawn.expression)
    assert plans.to_letters(plan) in MUSIQUE and not plans.check(plan)
    said = set(split_words(drawn.question))
    for leaf in plans.list_leaves(plan)[:-1]:  # the last one is a question, the others have become phrases
        words = set(split_words(re.sub(r"\{\w+\}", "", leaf.text))) - CHANGED
        assert words <= said | {"who", "what", "which", "where", "when", "is", "was", "in", "on", "to"}
    for name in NAMES:
        leaves = [leaf.text for leaf in plans.list_leaves(plan) if name in leaf.text]
        assert bool(leaves) == (name in drawn.question)


@given(st.integers(0, 2**32))
def test_a_drawing_names_the_published_questions_that_it_was_made_from(seed: int) -> None:
    drawn = Composer(clauses, NAMES, Random(seed)).draw("composed:1", "composed", "own")
    assume(drawn)
    assert drawn and set(drawn.made_from) <= {clause.question for clause in clauses}
    hashes = set(map(hash_question, drawn.list_taught()))
    assert {hash_question(text) for text in drawn.made_from} <= hashes


def test_a_renamed_part_is_known_by_its_published_words() -> None:
    composer = Composer(clauses, NAMES, Random(3))
    drawings = [drawn for number in range(200) if (drawn := composer.draw(str(number), "composed", "own"))]
    sources = {text for drawn in drawings for text in drawn.made_from}
    leaves = {hash_question(leaf.text) for d in drawings for leaf in plans.list_leaves(plans.parse(d.expression))}
    assert sources == {clause.question for clause in clauses}  # of relations, which nobody published, there is none
    assert not {hash_question(text) for text in sources} <= leaves


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    def drawn(seed: int) -> list[AnnotatedQuestion | None]:
        composer = Composer(clauses, NAMES, Random(seed))
        return [composer.draw(str(i), "composed", "own") for i in range(20)]

    assert drawn(5) == drawn(5) != drawn(6)


def test_questions_that_cannot_be_joined_are_refused() -> None:
    with pytest.raises(DataError, match="no question with two names"):
        Composer([found for found in clauses if len(found.spans) < 2], NAMES, Random(1))


def make_single(number: int, asked: str, title: str) -> AnnotatedQuestion:
    passages = (AnnotatedPassage(title, "", True),) if title else ()
    return AnnotatedQuestion(str(number), "own", "own", "train", asked, "single", passages=passages)


ABOUT = [
    ("Who wrote Ost?", "Ost"),
    ("Lind appeared in which year?", "Lind"),
    ("When did Ost appear?", "Ost"),
    ("who printed lind", "Lind"),
    ("Where is Ost set?", "Ost"),
    ("Who was the queen of Marn?", "Marn"),
]


@given(st.integers(0, 2**32))
def test_a_compound_question_asks_its_parts_about_one_thing_in_their_own_words(seed: int) -> None:
    joiner = Joiner((make_single(i, asked, title) for i, (asked, title) in enumerate(ABOUT)), Random(seed))
    drawn = joiner.draw("joined:1", "joined", "own")
    assert drawn and drawn.route == "compound" and len(drawn.parts) in (2, 3)
    assert [leaf.text for leaf in plans.list_leaves(plans.parse(drawn.expression))] == list(drawn.parts)
    [thing] = {title for asked, title in ABOUT if f"{asked.rstrip('?')}?" in drawn.parts}
    assert thing in ("Ost", "Lind")
    assert all(part.rstrip("?").casefold() in drawn.question.casefold() for part in drawn.parts)
    assert find_fault(drawn, 0.5) is None  # "? And" names nothing


def test_questions_about_different_things_are_not_joined() -> None:
    with pytest.raises(DataError, match="no two single questions about one thing"):
        Joiner([make_single(1, *ABOUT[0]), make_single(2, *ABOUT[5])], Random(1))


JOIN = """
from random import Random
from data_gen.compose import Joiner
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
asked = ["When was the bridge of Orn built?", "Who leads the town of Orn?", "Who met Ada Quill in Marn?"]
asked += ["Where did Ada Quill live?", "Which river flows through Marn?"]
pages = tuple(AnnotatedPassage(title, "", True) for title in ("Orn", "Marn", "Ada Quill"))
singles = [AnnotatedQuestion(q, "own", "own", "train", q, "single", passages=pages) for q in asked]
joiner = Joiner(singles, Random(1))
print(*(joiner.draw(str(n), "joined", "own") for n in range(20)))
"""


def test_joined_questions_do_not_depend_on_the_hashes_of_a_process() -> None:
    drawn = [
        subprocess.run(
            [sys.executable, "-c", JOIN], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, check=True
        ).stdout
        for seed in ("1", "2", "3")
    ]
    assert drawn[0] == drawn[1] == drawn[2] != b""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    questions, names, held = tmp_path / "single.jsonl", tmp_path / "names.txt", tmp_path / "held.sha256"
    questions.write_text("".join(json.dumps({"question": q, "answer": "x"}) + "\n" for q in [*SINGLE, "held of marn"]))
    names.write_text("".join(f"Name of {i // 26 * 'a'}{chr(97 + i % 26)}\n" for i in range(120)))
    held.write_text(f"{hash_question(SINGLE[2])}  test-set\n")
    path = tmp_path / "compose.yaml"
    path.write_text(
        f"rows: composed\nname: composed\nsize: 60\nnames: {names}\nheld_out: {held}\n"
        f"sources: [{{format: pairs, path: {questions}}}]\n"
    )
    return path


def test_the_shipped_configurations_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVELATOR_DATA", "/data")
    configs = sorted(Path(__file__).parents[2].joinpath("data_gen/configs/compose").glob("*.yaml"))
    loaded = [read_config(path, ComposeConfig) for path in configs]
    assert loaded and all(config.sources for config in loaded)


def test_the_command_writes_a_source_and_nothing_of_what_is_held_out(config: Path, tmp_path: Path) -> None:
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        run = CliRunner().invoke(
            revelator, ["data", "build", str(config), "--out", str(out), "--json"], catch_exceptions=False
        )
        assert run.exit_code == 0
    manifest = json.loads(run.stdout)
    assert manifest["questions"] == sum(manifest["graphs"].values()) == 60
    assert manifest["dropped"] == {"held out (test-set)": 1, "no rule reads it": 1}
    written = [(out / "questions.jsonl").read_bytes() for out in outs]
    assert written[0] == written[1] and b"president of marn" not in written[0]
    rows = list(read_world(outs[0]))
    assert len({row.question for row in rows}) == 60 and {row.route for row in rows} == {"complex"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("format: pairs", "format: logic", "sources.0.format"),
        ("size: 60", "size: 0", "size = 0"),
        ("single.jsonl", "absent.jsonl", "absent.jsonl"),
        ("names.txt", "absent.txt", "names cannot be read"),
        ("name: composed", "named: composed", "named"),
        ("single.jsonl}", "single.jsonl, tasks: [route]}", "sources.0.tasks"),
        ("size: 60", "joined: 1.6", "joined"),
        ("sources: [{", "sources: []  # [{", "sources"),
    ],
)
def test_what_cannot_be_composed_from_is_refused_and_leaves_nothing(
    config: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    config.write_text(config.read_text().replace(old, new, 1))
    run = CliRunner().invoke(revelator, ["data", "build", str(config), "--out", str(tmp_path / "out")])
    assert isinstance(run.exception, RevelatorError) and said in str(run.exception)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.fixture
def relations(tmp_path: Path, config: Path) -> set[str]:
    """Hashes of the question for every relation of every name."""
    names = (tmp_path / "names.txt").read_text().splitlines()
    return {hash_question(ask.replace("{x}", name)) for ask in list_relation_questions() for name in names}


def test_a_leaf_that_is_held_out_is_in_no_question(config: Path, relations: set[str], tmp_path: Path) -> None:
    leaves = []
    for out, held in ((tmp_path / "free", {"0" * 64}), (tmp_path / "held", relations)):
        (tmp_path / "held.sha256").write_text("".join(f"{one}  test-set\n" for one in sorted(held)))
        run = CliRunner().invoke(revelator, ["data", "build", str(config), "--out", str(out)], catch_exceptions=False)
        assert run.exit_code == 0
        expressions = [plans.parse(row.expression) for row in read_world(out)]
        leaves.append({hash_question(leaf.text) for each in expressions for leaf in plans.list_leaves(each)})
    assert leaves[0] & relations and not leaves[1] & relations


def test_fewer_questions_than_asked_for_are_said_to_be_fewer(config: Path, relations: set[str], tmp_path: Path) -> None:
    (tmp_path / "held.sha256").write_text("".join(f"{one}  test-set\n" for one in sorted(relations)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("data_gen.compose.PATIENCE", 1)
        run = CliRunner().invoke(revelator, ["data", "build", str(config), "--out", str(tmp_path / "out")])
    assert run.exit_code == 0 and "60 were asked for" in run.stderr


def test_a_place_that_cannot_be_written_is_one_clear_error(config: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = CliRunner().invoke(revelator, ["data", "build", str(config), "--out", str(tmp_path / "file/out")])
    assert isinstance(run.exception, DataError) and "stands in the way" in run.exception.message


def test_a_folder_of_something_else_is_left_alone(config: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    asked = ["build", str(config), "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(revelator, ["data", *asked])
    assert "not a folder of composed questions" in str(refused.exception) and (tmp_path / "out/mine").exists()
    (tmp_path / "out/mine").unlink()
    for _ in range(2):  # an empty folder, and a set of composed questions
        assert CliRunner().invoke(revelator, ["data", *asked]).exit_code == 0
