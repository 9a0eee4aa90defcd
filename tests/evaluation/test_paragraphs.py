"""All paragraphs of dev questions, beside their steps: what is asked, and what the figure says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from data_gen.build import build
from data_gen.config import SetConfig
from evaluation.paragraphs import STEP, WHOLE, Pair, area, judged, of_dev, table
from revelator.errors import ConfigError
from tests.data_gen.conftest import MUSIQUE
from tests.evaluation.test_scoring import Recited


def a_set(folder: Path) -> tuple[Path, Path]:
    """Twelve questions of two steps and four paragraphs, half of them dev; the set and MuSiQue's file."""
    rows = []
    for number in range(12):
        text = (
            json.dumps(MUSIQUE[0]).replace("Tin Comet", f"Tin Comet {number}").replace("2hop__1_2", f"2hop__{number}")
        )
        rows.append(text + "\n")
    musique = folder / "musique.jsonl"
    musique.write_text("".join(rows), encoding="utf-8")
    sources = [{"format": "musique", "path": str(musique), "sub_questions": 1}]
    build(SetConfig.model_validate({"name": "m", "sources": sources, "split": {"dev": 0.5}}), folder / "set")
    return folder / "set", musique


def test_each_step_is_asked_about_its_own_page_and_those_of_nobody(tmp_path: Path) -> None:
    asked = of_dev(*a_set(tmp_path))
    groups = {pair.group for pair in asked}
    assert 0 < len(groups) < 12
    for group in groups:
        own = [pair for pair in asked if pair.group == group]
        steps, whole = ([pair for pair in own if pair.part == part] for part in (STEP, WHOLE))
        assert [len(steps), sum(pair.helps for pair in steps)] == [2 * 3, 2]  # of four, less the other step's
        assert [len(whole), sum(pair.helps for pair in whole)] == [4, 2]
        assert all(("sent it out" in pair.prompt or "founded it" in pair.prompt) == pair.helps for pair in own)
        assert len({pair.prompt for pair in own}) == len(own)


def test_the_area_is_the_share_of_pairs_of_pairs_in_the_right_order(tmp_path: Path) -> None:
    asked = of_dev(*a_set(tmp_path))
    wrong = next(pair for pair in asked if pair.part == STEP and not pair.helps)
    engine = Recited({pair.prompt: "yes" if pair.helps or pair is wrong else "no" for pair in asked})
    scored = list(judged(engine, asked))  # type: ignore[arg-type]
    assert sorted(pair.prompt for pair, _ in scored) == sorted(pair.prompt for pair in asked)
    steps = [(pair, value) for pair, value in scored if pair.part == STEP]
    helps, other = ([value for pair, value in steps if pair.helps is label] for label in (True, False))
    orders = [1.0 if yes > no else 0.5 if yes == no else 0.0 for yes, no in itertools.product(helps, other)]
    assert area(steps).mean == pytest.approx(sum(orders) / len(orders)) and area(steps).mean < 1
    assert area([one for one in scored if one[0].part == WHOLE]).mean == 1.0
    assert table(scored).row_count == 2


def test_a_file_without_the_set_s_dev_questions_is_refused(tmp_path: Path) -> None:
    folder, _ = a_set(tmp_path)
    strangers = tmp_path / "others.jsonl"
    strangers.write_text(json.dumps(MUSIQUE[1]) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no dev question"):
        of_dev(folder, strangers)


def test_a_pair_without_a_positive_has_no_area() -> None:
    assert str(area([(Pair(STEP, "g", "p", False), 0.5)]).mean) == "nan"
