"""All paragraphs of dev questions, beside their steps: what is asked, and what the figure says."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.instruction_set import read_records
from data_gen.questions import AnnotatedQuestion, AnnotatedStep, Evidence
from evaluation.paragraphs import STEP, WHOLE, Pair, area, judged, main, of_dev, pairs, table
from revelator.errors import ConfigError
from tests.data_gen.conftest import MUSIQUE
from tests.evaluation.test_scoring import Recited
from tests.serving.toy_model import write_base


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A set of sixteen questions of two steps and four paragraphs, a quarter of them dev; MuSiQue's file."""
    folder = tmp_path_factory.mktemp("paragraphs")
    rows = []
    for number in range(16):
        text = json.dumps(MUSIQUE[0]).replace("Tin Comet", f"Tin Comet {number}")
        rows.append(text.replace("2hop__1_2", f"2hop__{number}") + "\n")
    musique = folder / "musique.jsonl"
    musique.write_text("".join(rows), encoding="utf-8")
    sources = [{"format": "musique", "path": str(musique), "sub_questions": 1}]
    build(SetConfig.model_validate({"name": "m", "sources": sources, "split": {"dev": 0.25}}), folder / "set")
    return folder / "set", musique


def test_each_step_is_asked_about_its_own_page_and_those_of_nobody(files: tuple[Path, Path]) -> None:
    asked = of_dev(*files)
    dev, train = ({record.group for record in read_records(files[0], split)} for split in ("dev", "train"))
    assert {pair.group for pair in asked} == dev and dev.isdisjoint(train) and len(dev) < len(train)
    for group in dev:
        own = [pair for pair in asked if pair.group == group]
        steps, whole = ([pair for pair in own if pair.part == part] for part in (STEP, WHOLE))
        assert [len(steps), sum(pair.helps for pair in steps)] == [2 * 3, 2]  # of four, less the other step's
        assert [len(whole), sum(pair.helps for pair in whole)] == [4, 2]
        assert all(("sent it out" in pair.prompt or "founded it" in pair.prompt) == pair.helps for pair in own)


def test_a_step_whose_page_cannot_be_told_by_its_title_is_left_out_and_equal_pages_count_once() -> None:
    steps = (AnnotatedStep("Who made it?", "a", "Twin"), AnnotatedStep("Who sold it?", "b", "Own"))
    pages = [("Twin", "one", True), ("Twin", "two", True), ("Own", "three", True)]
    others = [("Own", "four", False), ("Else", "five", False), ("Else", "five", False)]
    passages = tuple(Evidence(*page) for page in pages + others)
    question = AnnotatedQuestion("q", "m", "", "dev", "Who?", "complex", steps=steps, passages=passages)
    assert [pair.helps for pair in pairs(question) if pair.part == STEP] == [True, False, False]
    assert all("Who sold it?" in pair.prompt for pair in pairs(question) if pair.part == STEP)
    assert [pair.helps for pair in pairs(question) if pair.part == WHOLE] == [True, True, True, False, False]


def test_the_area_is_the_share_of_pairs_of_pairs_in_the_right_order(files: tuple[Path, Path]) -> None:
    asked = of_dev(*files)
    wrong = next(pair for pair in asked if pair.part == STEP and not pair.helps)
    engine = Recited({pair.prompt: "yes" if pair.helps or pair is wrong else "no" for pair in asked})
    scored = list(judged(engine, asked))  # type: ignore[arg-type]
    assert sorted(pair.prompt for pair, _ in scored) == sorted(pair.prompt for pair in asked)
    steps = [(pair, value) for pair, value in scored if pair.part == STEP]
    helps, other = ([value for pair, value in steps if pair.helps is label] for label in (True, False))
    orders = [1.0 if yes > no else 0.5 if yes == no else 0.0 for yes, no in itertools.product(helps, other)]
    assert area(steps).mean == pytest.approx(sum(orders) / len(orders)) and area(steps).mean < 1
    assert area([one for one in scored if one[0].part == WHOLE]).mean == 1.0
    shown = [str(cell) for cell in table(scored).columns[4].cells]
    assert shown == [str(area(steps)), "1.000 [1.000, 1.000]"]


def test_an_interval_draws_whole_questions() -> None:
    """Pairs of a question stay together: one question is right throughout, the other wrong throughout."""
    scored = [(Pair(STEP, group, str(n), helps), float(helps == (group == "right"))) for group in ("right", "wrong")
              for n, helps in enumerate([True] * 8 + [False] * 8)]  # fmt: skip
    found = area(scored)
    assert (found.mean, found.low, found.high) == (0.5, 0.0, 1.0)
    assert str(area(scored[:1]).mean) == "nan"


def test_a_file_or_a_set_without_such_questions_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    folder, musique = files
    for rows, where, message in (
        ([MUSIQUE[1], "no row"], "others.jsonl", "none of 2 rows is a question with paragraphs"),
        ([MUSIQUE[0]], folder.name, "no dev question of the set is in that file"),
    ):
        strangers = tmp_path / "others.jsonl"
        strangers.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        with pytest.raises(ConfigError, match=message) as caught:
            of_dev(folder, strangers)
        assert caught.value.where.endswith(where)
    absent = ["--set", str(tmp_path / "absent"), "--musique", str(musique)]
    ended = subprocess.run(
        [sys.executable, "-m", "evaluation.paragraphs", *absent], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1 and ended.stderr.startswith("error: ") and "Traceback" not in ended.stderr


def test_the_command_writes_every_pair_or_the_table(files: tuple[Path, Path], tmp_path: Path) -> None:
    given = ["--set", str(files[0]), "--musique", str(files[1]), "--base", str(write_base(tmp_path)), "--threads", "1"]
    lines = CliRunner().invoke(main, [*given, "--json"], catch_exceptions=False).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert {(row["part"], row["prompt"]) for row in rows} == {(pair.part, pair.prompt) for pair in of_dev(*files)}
    assert all(0 < row["probability"] < 1 for row in rows)
    shown = CliRunner().invoke(main, given, catch_exceptions=False).stdout
    assert STEP in shown and WHOLE in shown
