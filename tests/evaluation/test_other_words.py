"""Questions in other words: which are asked, what a plan of either wording earns, and what the table says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from data_gen.build import build
from data_gen.config import SetConfig
from evaluation.other_words import main, of_dev, planned, table
from revelator.rows import stream_rows
from revelator.tasks import TASKS, TranslateInput
from tests.data_gen.conftest import MUSIQUE
from tests.evaluation.test_scoring import Recited
from tests.serving.toy_model import write_base


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of 24 questions of two hops, half of them dev."""
    place = tmp_path_factory.mktemp("words")
    rows = [
        json.dumps(MUSIQUE[0]).replace("Tin Comet", f"Tin Comet {n}").replace("2hop__1_2", f"2hop__{n}") + "\n"
        for n in range(24)
    ]
    (place / "musique.jsonl").write_text("".join(rows), encoding="utf-8")
    sources = [{"format": "musique", "path": str(place / "musique.jsonl"), "sub_questions": 1}]
    build(SetConfig.model_validate({"name": "m", "sources": sources, "split": {"dev": 0.5}}), place / "set")
    return place / "set"


def test_dev_questions_with_several_hops_are_asked_in_other_words_that_keep_their_names(folder: Path) -> None:
    asked = of_dev(folder, None, None)
    dev = {row.id for row in stream_rows(folder, "dev") if row.shape == "A * B"}
    assert asked and {row.id for row, _ in asked} <= dev
    for row, text in asked:
        assert text != row.question and all(name in text for name in json.loads(row.entities))
    assert of_dev(folder, "musique", 2) == asked[:2]


def test_a_plan_is_held_to_gold_under_either_wording(folder: Path) -> None:
    rows = of_dev(folder, None, None)
    answers = {row.prompt: json.loads(row.gold) for row, _ in rows}
    answers |= {TASKS["translate_bnf"].render(TranslateInput(text)): "Who knows?" for _, text in rows}
    asked = list(planned(Recited(answers), rows))  # type: ignore[arg-type]
    assert [(one.scores[0].exact, one.scores[1].letters) for one in asked] == [(True, False)] * len(rows)
    cells = [[str(cell) for cell in column.cells] for column in table(asked).columns]
    assert cells[2:] == [["1.000"] * 4, ["0.000"] * 4, ["-1.000 [-1.000, -1.000]"] * 4]


def test_the_command_writes_every_question_or_the_table(folder: Path, tmp_path: Path) -> None:
    given = ["--set", str(folder), "--base", str(write_base(tmp_path)), "--threads", "1", "--limit", "2"]
    lines = CliRunner().invoke(main, [*given, "--json"], catch_exceptions=False).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["id"], row["reworded"]) for row in rows] == [(row.id, text) for row, text in of_dev(folder, None, 2)]
    assert "arguments" in CliRunner().invoke(main, given, catch_exceptions=False).stdout


def test_a_set_without_such_questions_is_refused(folder: Path) -> None:
    command = [sys.executable, "-m", "evaluation.other_words", "--set", str(folder), "--source", "none"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert ended.stderr.startswith("error: ") and "no dev question that could be asked in other words" in ended.stderr
