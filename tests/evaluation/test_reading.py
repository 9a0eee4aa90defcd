"""`revelator eval run --rows`: a trained reader, or a language model at an endpoint, on rows for reading; what was read
before a kill is not read again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from evaluation.reading import READINGS
from evaluation.rows import take_sample
from evaluation.run import evaluate
from revelator.errors import ArtifactError, ConfigError, Unavailable
from revelator.reading import Answer, ReadingRow
from tests.chat_server import Handler, Server, cuts, fails, running, says, write_reading

PASSAGE = "Lantern Row was directed by Ines Calloway."
PROGRAM = Path(sys.executable).with_name("revelator")
RIGHT, UNKNOWN = says(write_reading("Ines Calloway", sentence=1)), says(write_reading())


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Three rows; the passage answers the first alone."""
    start = PASSAGE.index("Ines")
    made = [
        ReadingRow("1", "Who directed Lantern Row?", PASSAGE, "Lantern Row", (Answer("Ines Calloway", start),)),
        ReadingRow("2", "Who wrote Lantern Row?", PASSAGE, "Lantern Row"),
        ReadingRow("3", "Who filmed Lantern Row?", PASSAGE, "Lantern Row"),
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{row.to_json()}\n" for row in made))
    return tmp_path / "rows.jsonl"


def knows(handler: Handler) -> None:
    """Reads rightly: who directed the film is answered, anything else is not."""
    (RIGHT if "directed Lantern" in read_question(handler.body) else UNKNOWN)(handler)


def read_question(request: dict[str, Any]) -> str:
    return request["messages"][-1]["content"].rpartition("Question: ")[2]


def call(*arguments: str) -> str:
    return CliRunner().invoke(evaluate, ["--rows", *arguments], catch_exceptions=False).stdout


def measure(rows: Path, server: Server, out: Path, *more: str) -> dict[str, Any]:
    named = ["--generator", server.url, "--generator-model", "m", "--out", str(out)]
    return json.loads(call(str(rows), *named, *more, "--json"))


def test_a_language_model_is_scored_for_what_it_answers_and_what_it_refuses(rows: Path, tmp_path: Path) -> None:
    with running() as server:
        server.replies = [knows]
        measured = measure(rows, server, tmp_path / "right")
        server.replies = [RIGHT]
        certain = measure(rows, server, tmp_path / "certain")["figures"]
        shown = call(str(rows), "--generator", server.url, "--generator-model", "m", "--out", str(tmp_path / "right"))
    figures = measured["figures"]
    assert measured["n"] == 3 and measured["unknown"] == ["m"]
    for name, n in {"em": 1, "f1": 1, "answered": 1, "refused": 2}.items():
        assert figures[name] == {"n": n, "value": 1.0, "low": 1.0, "high": 1.0}
    assert (figures["no_answer_auc"]["value"], figures["no_answer_auc"]["n"]) == (1.0, 3)
    assert (figures["tokens_in"]["value"], figures["tokens_out"]["value"]) == (31, 7)
    assert 0 < figures["seconds"]["low"] <= figures["seconds"]["value"] <= figures["seconds"]["high"]
    assert (certain["em"]["value"], certain["refused"]["value"], certain["no_answer_auc"]["value"]) == (1, 0, 0.5)
    for text in ("exact match", "95 % interval", "seconds a row", "tokens in a row", "unknown: m", READINGS):
        assert text in shown


def test_what_was_read_before_a_kill_is_not_read_again(rows: Path, tmp_path: Path) -> None:
    second = threading.Event()

    def holds(handler: Handler) -> None:
        second.set()
        server.release.wait(240)
        cuts(handler)

    with running() as server:
        server.replies = [knows, holds]
        named = ["--generator", server.url, "--generator-model", "m", "--out", str(tmp_path / "out")]
        command = [str(PROGRAM), "eval", "run", "--rows", str(rows), *named]
        process = subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL)
        try:
            assert second.wait(240)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = (tmp_path / "out" / READINGS).read_bytes()
        assert before.count(b"\n") == 1
        server.replies = [knows]
        measured = measure(rows, server, tmp_path / "out")
        asked = [read_question(request) for request in server.requests]
    assert (tmp_path / "out" / READINGS).read_bytes().startswith(before)
    assert measured["figures"]["em"]["value"] == measured["figures"]["refused"]["value"] == 1
    assert len(asked) == 4 and asked[1] == asked[2], "only the row in flight was read again"


def test_a_row_that_was_cut_short_is_read_again_and_a_whole_measurement_reads_nothing(
    rows: Path, tmp_path: Path
) -> None:
    with running() as server:
        server.replies = [knows]
        whole = measure(rows, server, tmp_path / "out")
        written = (tmp_path / "out" / READINGS).read_bytes()
        assert measure(rows, server, tmp_path / "out") == whole and len(server.requests) == 3
        (tmp_path / "out" / READINGS).write_bytes(written[:-20])
        again = measure(rows, server, tmp_path / "out")
        assert len(server.requests) == 4
    assert again["figures"]["em"] == whole["figures"]["em"]
    assert (tmp_path / "out" / READINGS).read_bytes().count(b"\n") == 3


def test_an_endpoint_that_is_down_ends_it_and_the_same_command_goes_on(rows: Path, tmp_path: Path) -> None:
    with running() as server:
        server.replies = [knows, fails(503)]
        with pytest.raises(Unavailable, match="the same command goes on"):
            measure(rows, server, tmp_path / "out")
        read = len(server.requests)
        server.replies = [knows]
        assert measure(rows, server, tmp_path / "out")["n"] == 3
        assert len(server.requests) == read + 2


def test_a_reading_that_takes_too_long_is_unanswered_and_says_why(rows: Path, tmp_path: Path) -> None:
    with running() as server:
        server.replies = [lambda handler: (server.release.wait(30), cuts(handler))[1]]
        measured = measure(rows, server, tmp_path / "out", "--timeout", "0.2", "--sample", "1")
    assert measured["n"] == 1
    assert "no answer within 0.2 s, the timeout of a call" in (tmp_path / "out" / READINGS).read_text()


def test_other_settings_in_the_same_folder_are_refused_with_what_differs(rows: Path, tmp_path: Path) -> None:
    with running() as server:
        server.replies = [knows]
        measure(rows, server, tmp_path / "out")
        differences = {
            "--timeout=5": r"timeout: 300\.0 there, 5\.0 now",
            "--sample=1": "rows: 3 there, 1 now",
            "--generator-model=other": "reader: m at .* there, other at",
        }
        for option, said in differences.items():
            with pytest.raises(ArtifactError, match=said) as error:
                measure(rows, server, tmp_path / "out", option)
            assert "--out DIR" in str(error.value.hint)
        assert len(server.requests) == 3
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "else").touch()
    with running() as server, pytest.raises(ConfigError, match="not empty"):
        measure(rows, server, tmp_path / "full")


def test_a_language_model_has_a_folder_without_being_told(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running() as server:
        server.replies = [knows]
        call(str(rows), "--generator", server.url, "--generator-model", "m")
    assert (tmp_path / "runs" / "evaluations" / "rows" / READINGS).read_text().count("\n") == 3


def test_the_embedded_reader_is_measured_in_a_folder_or_without_one(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    without = json.loads(call(str(rows), "--json"))
    assert not (tmp_path / "runs").exists()
    assert set(without["figures"]) == {"em", "f1", "no_answer_auc", "seconds"}
    kept = json.loads(call(str(rows), "--out", str(tmp_path / "out"), "--json"))
    assert kept["figures"]["f1"] == without["figures"]["f1"]
    assert json.loads(call(str(rows), "--out", str(tmp_path / "out"), "--json")) == kept, "with the seconds of then"


@given(st.lists(st.text(), unique=True), st.integers(1, 9), st.integers(0, 9))
def test_a_sample_is_the_same_rows_for_a_seed_and_no_more_than_there_are(
    names: list[str], size: int, seed: int
) -> None:
    found = take_sample(names, size, seed, str)
    assert found == take_sample(names[::-1], size, seed, str) == take_sample(names, None, seed, str)[:size]
    assert len(found) == min(size, len(names)) and set(found) <= set(names)


def test_another_seed_takes_other_rows() -> None:
    names = [str(number) for number in range(1_000)]
    assert len({tuple(take_sample(names, 5, seed, str)) for seed in range(20)}) == 20


def test_an_endpoint_without_a_model_and_two_readers_are_refused(rows: Path) -> None:
    for arguments in (["--generator", "http://127.0.0.1:9/v1"], ["--generator-model", "m"]):
        with pytest.raises(ConfigError, match="--generator-model"):
            call(str(rows), *arguments)
    with pytest.raises(ConfigError, match="one of them reads"):
        call(str(rows), "--reader", "x", "--generator", "http://127.0.0.1:9/v1", "--generator-model", "m")


def test_an_option_without_a_meaning_for_rows_and_one_without_rows_are_refused(rows: Path) -> None:
    asked = CliRunner().invoke(evaluate, ["--rows", str(rows), "--planner", "http://127.0.0.1:9/v1"])
    assert asked.exit_code == 2 and "--planner has no meaning with --rows" in asked.stderr
    with pytest.raises(ConfigError, match="belong to --rows"):
        CliRunner().invoke(evaluate, ["x.yaml", "--dev"], catch_exceptions=False)
