"""MetaQA's questions planned from their words, and answered from a graph of the same relations."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from data_gen.leakage import question_hash
from evaluation.metaqa.benchmark import main, read_questions
from evaluation.metaqa.plans import plan
from revelator.plans.art import check, spelled

KB = [
    ("Tin Comet", "directed_by", "Ada Quill"),
    ("Tin Comet", "starred_actors", "Bo Marsh"),
    ("Tin Comet", "starred_actors", "Cy Vane"),
    ("Tin Comet", "release_year", "1987"),
    ("Glass Harbour", "directed_by", "Ada Quill"),
    ("Glass Harbour", "written_by", "Bo Marsh"),
    ("Glass Harbour", "has_genre", "Drama"),
    ("Glass Harbour", "has_tags", "harbour"),
]


@pytest.mark.parametrize(
    ("question", "calls"),
    [
        ("who directed [X]", ['Relate("X", "directed by")']),
        ("the film [X] was written by who", ['Relate("X", "written by")']),
        ("what films did [X] star in", ['Relate("X", ^"starred actors")']),
        ("what was [X] the director of", ['Relate("X", ^"directed by")']),
        ("what genre of film is [X]", ['Relate("X", "has genre")']),
        ("what movies can be described by [X]", ['Relate("X", ^"has tags")']),
        ("the movies written by [X] were released in which years",
         ['Relate("X", ^"written by")', 'Relate("[1]", "release year")']),
        ("who is listed as director of [X] acted films",
         ['Relate("X", ^"starred actors")', 'Relate("[1]", "directed by")']),
        ("which films share the same director of [X]",
         ['Relate("X", "directed by")', 'Relate("[1]", ^"directed by")', 'Filter(["[2]"], "other than X")']),
        ("who co-starred with [X]",
         ['Relate("X", ^"starred actors")', 'Relate("[1]", "starred actors")', 'Filter(["[2]"], "other than X")']),
    ],
)  # fmt: skip
def test_the_words_of_a_question_make_its_plan(question: str, calls: list[str]) -> None:
    tree = plan(question)
    assert tree is not None and check(tree) == ()
    assert [spelled(child.call) for child in tree.children if child.call] == calls


def test_a_topic_of_the_lexicons_words_does_not_sway_the_plan() -> None:
    tree = plan("who directed [The Writer Who Starred Together]")
    assert tree is not None and tree.children[0].call is not None
    assert spelled(tree.children[0].call) == 'Relate("The Writer Who Starred Together", "directed by")'


def test_a_question_that_names_no_relation_has_no_plan() -> None:
    assert plan("why [X]") is None
    assert plan("who directed it") is None


def test_questions_are_answered_from_the_graph_and_the_held_out_are_dropped(tmp_path: Path) -> None:
    one = {
        "who directed [Tin Comet]": ["Ada Quill"],
        "who starred in [Tin Comet]": ["Bo Marsh", "Cy Vane"],
        "what year was [Tin Comet] released": ["1987"],
        "what movies did [Ada Quill] direct": ["Tin Comet", "Glass Harbour"],
        "who wrote [Tin Comet]": ["Nobody In The Graph"],
        "who wrote [Glass Harbour]": ["Bo Marsh"],
    }
    two = {
        "what genres are the films directed by [Ada Quill] in": ["Drama"],
        "which movies have the same director of [Tin Comet]": ["Glass Harbour"],
        "who co-starred with [Bo Marsh]": ["Cy Vane"],
        "who starred in the films written by [Bo Marsh]": ["Nobody"],
    }
    data = tmp_path / "metaqa"
    data.mkdir()
    write(data / "kb.tsv.gz", ["\t".join(triple) for triple in KB])
    for hops, rows in ((1, one), (2, two)):
        write(data / f"{hops}-hop_dev.jsonl.gz", [json.dumps({"question": q, "answers": a}) for q, a in rows.items()])
    held = next(q for q in one if int(question_hash(q)[:8], 16) % 2)
    (tmp_path / "held_out.sha256").write_text(f"{question_hash(held)}  metaqa-test\n")

    total = dropped = 0
    for half in ("develop", "report"):
        options = ["--data", str(data), "--graph", str(tmp_path / "graph"), "--json", "--half", half]
        result = CliRunner().invoke(main, options, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        figures = json.loads(result.output)
        groups = {name: value for name, value in figures.items() if isinstance(value, dict)}
        total += sum(group["n"] for name, group in groups.items() if name.endswith("all"))
        dropped = figures["held out, dropped"]
        assert all(group["generator_calls"] == 0 for group in groups.values())
        assert groups.get("1-hop, answerable", {"set_f1": 1.0})["set_f1"] == 1.0
    assert (total, dropped) == (len(one) + len(two) - 1, 1)


def test_the_published_files_reach_the_targets(tmp_path: Path) -> None:
    data = Path(os.environ.get("REVELATOR_DATA", "../shared/data")) / "metaqa"
    if not (data / "kb.tsv.gz").exists():
        pytest.skip(f"MetaQA's files are not in {data} (REVELATOR_DATA)")
    options = ["--data", str(data), "--graph", str(tmp_path / "graph"), "--json", "--limit", "400"]
    figures = json.loads(CliRunner().invoke(main, options, catch_exceptions=False).output)
    assert figures["held out, dropped"] == 5
    assert figures["1-hop, answerable"]["set_f1"] >= 0.90
    assert figures["2-hop, all"]["set_f1"] >= 0.85


def test_the_halves_share_no_question(tmp_path: Path) -> None:
    write(tmp_path / "q.gz", [json.dumps({"question": f"who directed [{n}]", "answers": []}) for n in range(100)])
    halves = [
        {row["question"] for row in read_questions(tmp_path / "q.gz", {}, half)[0]} for half in ("develop", "report")
    ]
    assert len(halves[0] | halves[1]) == 100 and not halves[0] & halves[1]


def write(path: Path, lines: list[str]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
