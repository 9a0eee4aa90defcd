"""Training of the reader: what a window's gold is, that a killed run goes on, and what its folder promises."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random

import mlflow
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from evaluation.run import evaluate
from revelator.errors import ConfigError, DataError
from revelator.fingerprints import Fingerprints
from revelator.minilm import TOKENIZER, fetch_minilm
from revelator.reading import (
    LIST,
    NONE,
    READER,
    SPAN,
    YES,
    Answer,
    Calibration,
    ReadingRow,
    ReadingTokenizer,
    load_rows,
)
from revelator.scores import score_outcomes
from serving.models.reader import load_reader
from training import reader
from training.checkpoints import find_checkpoint
from training.config import ReaderConfig
from training.reader import compute_loss, list_seen, schedule_rate
from training.reading_examples import draw_batches, is_dev, make_examples, read_train_and_dev

TOKENS = ReadingTokenizer(fetch_minilm() / TOKENIZER, size=128, stride=20)
NAMES = ("Ama Oyelaran", "Tobias Lindqvist", "Mei Watanabe", "Rosa Quispe")
SETTINGS = {"stage": "reader", "steps": 6, "batch_tokens": 512}
SETTINGS |= {"threads": 1, "save_every": 2, "log_every": 2, "precision": "fp32"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty towns, each with a row that answers, one that does not and a list."""
    made, random = [], Random(1)
    for number in range(60):
        one, two = random.sample(NAMES, 2)
        title, passage = f"Town {number}", f"Town {number} was founded by {one}; later {two} ruled it."
        places = [Answer(name, passage.index(name)) for name in (one, two)]
        made.append(ReadingRow(f"{number}", f"Who founded town {number}?", passage, title, (places[0],)))
        made.append(ReadingRow(f"{number}-none", f"Who burnt town {number}?", passage, title))
        made.append(ReadingRow(f"{number}-all", f"Who had town {number}?", passage, title, tuple(places), is_list=True))
    path = tmp_path_factory.mktemp("rows") / "towns.jsonl"
    path.write_text("".join(f"{row.to_json()}\n" for row in made))
    return path


@pytest.fixture(scope="module")
def trained(rows: Path, empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[ReaderConfig, dict]:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_store, home)
    config = ReaderConfig(**SETTINGS, rows=(rows,), out=home / "straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REVELATOR_HOME", str(home))
        return config, reader.train(config, resume=False)


@given(before=st.text(max_size=600), after=st.text(max_size=600))
@settings(max_examples=60)
def test_the_gold_tokens_of_a_window_say_the_answer(before: str, after: str) -> None:
    passage = f"{before} Rosa Quispe {after}"
    row = ReadingRow("1", "Who?", passage, answers=(Answer("Rosa Quispe", len(before) + 1),))
    examples = make_examples(row, TOKENS)
    assert any(example.kind == SPAN for example in examples)
    for example in examples:
        assert (example.kind == SPAN) == bool(example.spans)
        for first, last in example.spans:
            start, end = (example.window.offsets[token - example.window.first] for token in (first, last))
            assert passage[start[0] : end[1]] == "Rosa Quispe"


def test_rows_without_an_answer_lists_and_verdicts_have_their_kinds() -> None:
    both = (Answer("Ada", 0), Answer("Bo", 8))
    kinds = [
        make_examples(row, TOKENS)[0].kind
        for row in (
            ReadingRow("1", "Who?", "Ada and Bo."),
            ReadingRow("2", "Who?", "Ada and Bo.", answers=both, is_list=True),
            ReadingRow("3", "Is it?", "Ada and Bo.", verdict="yes"),
            ReadingRow("4", "Who?", ""),
        )
    ]
    assert kinds == [NONE, LIST, YES, NONE]


def test_the_loss_falls_where_scores_point_to_any_of_the_answers() -> None:
    row = ReadingRow("1", "Who?", "Ada and Bo.", answers=(Answer("Ada", 0), Answer("Bo", 8)))
    (example,) = make_examples(row, TOKENS)
    scores, kinds = torch.zeros(1, len(example.window.ids), 5), torch.zeros(1, 5)
    before = compute_loss(scores, kinds, [example])
    for first, last in example.spans:
        right = scores.clone()
        right[0, first, 0] = right[0, last, 1] = 20.0
        fall = before - compute_loss(right, kinds, [example])
        assert fall.item() == pytest.approx(math.log(5 / 2), abs=1e-3)  # two right places of five


def test_batches_are_drawn_alike_from_one_seed_and_stay_within_their_tokens() -> None:
    rows = [ReadingRow(str(n), "Who?", "word " * (n % 90)) for n in range(200)]
    examples = [example for row in rows for example in make_examples(row, TOKENS)]
    first, second = (list(islice(draw_batches([(1.0, examples)], 512, Random(3)), 30)) for _ in range(2))
    assert first == second
    assert all(len(batch) * max(len(e.window.ids) for e in batch) <= 512 for batch in first)


def test_an_article_is_on_one_side_whichever_set_it_comes_from() -> None:
    for number in range(50):
        title = f"Article {number}"
        sides = {is_dev(ReadingRow(q, q, f"passage of {q}", title)) for q in ("who", "when")}
        assert len(sides) == 1
    assert is_dev(ReadingRow("1", "a", "text", "The  Tower")) == is_dev(ReadingRow("2", "b", "other", "the tower"))


def test_the_rate_rises_and_falls_to_nothing() -> None:
    rates = [schedule_rate(step / 100) for step in range(1, 101)]
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] == 0.0
    assert min(rates) >= 0.0


def test_a_trained_reader_answers_and_its_card_has_the_figures_of_dev(trained: tuple[ReaderConfig, dict]) -> None:
    config, result = trained
    assert config.out
    assert result["figures"]["towns"]["n"] > 9
    outcome = load_reader(config.out).read("Who founded it?", [("Town", "It was founded by Rosa Quispe.")])
    assert outcome.answers
    assert 0 < outcome.probability < 1
    card = (config.out / "README.md").read_text()
    assert f"| towns | {result['figures']['towns']['n']} | {result['figures']['towns']['em']:.3f} |" in card
    assert "Apache-2.0" in card
    assert {path.suffix for path in config.out.iterdir()} == {".safetensors", ".json", ".yaml", ".md", ".npz"}
    run = mlflow.MlflowClient(result["tracking_uri"]).get_run(result["run_id"])
    assert run.data.params["rows.dev.towns"] == str(result["figures"]["towns"]["n"])
    assert run.data.metrics["dev/towns/f1"] == pytest.approx(result["figures"]["towns"]["f1"])


def test_a_reader_has_seen_the_articles_that_train_it_and_none_of_dev(
    trained: tuple[ReaderConfig, dict], rows: Path, tmp_path: Path
) -> None:
    config, _ = trained
    assert config.out
    seen = Fingerprints.read(config.out, READER)
    for row in load_rows(rows):
        assert seen.has_question(row.question) == seen.has_title(row.title) == (not is_dev(row))
    assert seen.unknown == ("all-MiniLM-L6-v2",)

    further = config.model_copy(update={"reader": config.out, "shares": {"unread": 0.0}})
    lakes = [ReadingRow("1", "How deep is it?", "It is deep.", "Lake Ira"), ReadingRow("2", "Who swam?", "One did.")]
    both = list_seen(further, {"lakes": lakes, "unread": [ReadingRow("3", "Who fell?", "One did.", "Lake Om")]})
    assert both.has_title("Lake Ira") and both.has_question("Who swam?") and not both.has_title("Lake Om")
    assert set(seen.questions) < set(both.questions) and both.unknown == seen.unknown


def score_saved(config: ReaderConfig) -> dict:
    rows = [row for row in load_rows(config.rows[0]) if is_dev(row)]
    outcomes = load_reader(config.out).read_all([(r.question, [(r.title, r.passage)]) for r in rows])
    return score_outcomes(rows, outcomes).to_json()


def test_what_was_saved_has_the_figures_of_the_training(trained: tuple[ReaderConfig, dict]) -> None:
    config, result = trained
    assert score_saved(config) == pytest.approx(result["figures"]["towns"])


def test_eval_reading_scores_the_reader_as_it_is_served(trained: tuple[ReaderConfig, dict]) -> None:
    config, _ = trained
    arguments = [str(config.rows[0]), "--reader", str(config.out), "--dev"]
    done = CliRunner().invoke(evaluate, ["--rows", *arguments, "--json"], catch_exceptions=False)
    report = json.loads(done.stdout)
    saved = score_saved(config)
    values = {name: figure["value"] for name, figure in report["figures"].items()}
    assert {"n": report["n"]} | {name: values[name] for name in saved if name != "n"} == pytest.approx(saved)
    assert report.keys() >= {"seen", "unknown"}
    assert "F1 of list items" in CliRunner().invoke(evaluate, ["--rows", *arguments], catch_exceptions=False).stdout


def test_eval_reading_takes_the_reader_that_ships_unless_another_is_named(trained: tuple[ReaderConfig, dict]) -> None:
    config, _ = trained
    done = CliRunner().invoke(evaluate, ["--rows", str(config.rows[0]), "--json"], catch_exceptions=False)
    assert json.loads(done.stdout)["figures"]["f1"]["value"] > 0.5


def test_a_training_that_is_killed_between_two_checkpoints_ends_in_the_same_reader(
    trained: tuple[ReaderConfig, dict],
    empty_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(empty_store, tmp_path)
    straight = trained[0]
    assert straight.out
    config = straight.model_copy(update={"out": tmp_path / "resumed"})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    code = "import sys; from pathlib import Path; from training.config import load_config; from training import reader;"
    code += "reader.train(load_config(Path(sys.argv[1])), resume=False)"
    command = [sys.executable, "-c", code, str(tmp_path / "config.yaml")]
    environment = {**os.environ, "REVELATOR_HOME": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, process_group=0)
    assert process.stderr
    assert any("step 4/6" in line for line in process.stderr)  # the checkpoint of step 2 is whole by now
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "resumed").exists()
    assert find_checkpoint(config.work)
    monkeypatch.setenv("REVELATOR_HOME", str(tmp_path))
    reader.train(config, resume=True)
    assert "going on from" in capfd.readouterr().err
    ours, theirs = (load_file(folder / reader.READER_WEIGHTS) for folder in (straight.out, tmp_path / "resumed"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_resume_with_other_settings_is_refused(trained: tuple[ReaderConfig, dict]) -> None:
    config = trained[0]
    with pytest.raises(ConfigError, match="steps: 6, now 7"):
        reader.train(config.model_copy(update={"steps": 7}), resume=True)


def test_a_share_of_a_file_that_is_not_read_is_named(trained: tuple[ReaderConfig, dict]) -> None:
    with pytest.raises(ConfigError, match="not read: squad"):
        reader.train(trained[0].model_copy(update={"shares": {"squad": 1.0}}), resume=False)


def test_two_files_of_one_name_are_refused(rows: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two files are called towns"):
        read_train_and_dev(ReaderConfig(**SETTINGS, rows=(rows, rows), out=tmp_path / "out"))


def test_rows_that_all_have_an_answer_can_be_learnt_without_calibration() -> None:
    model = reader.load_model(fetch_minilm())
    rows = [ReadingRow("1", "Who?", "Ada came.", answers=(Answer("Ada", 0),))]
    figures, calibration = reader.score_and_calibrate(model, TOKENS, {"ada": rows})
    assert calibration == Calibration()
    assert math.isnan(figures["ada"].no_answer_auc)


def test_rows_of_one_article_leave_nothing_to_train_or_to_judge(rows: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    title = next(f"T{n}" for n in range(99) if is_dev(ReadingRow("1", "Q", "P", f"T{n}")))
    path.write_text(ReadingRow("1", "Q", "P", title).to_json() + "\n")
    with pytest.raises(DataError, match="of the dev part"):
        read_train_and_dev(ReaderConfig(**SETTINGS, rows=(path,), out=tmp_path / "out"))
