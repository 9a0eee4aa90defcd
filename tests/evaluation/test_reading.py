"""`revelator eval reading`: a trained reader, or a language model at an endpoint, on rows for reading."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaluation.reading import reading
from revelator.errors import ConfigError
from revelator.reading import Answer, ReadingRow
from tests.chat_server import running, says, write_reading

PASSAGE = "Lantern Row was directed by Ines Calloway."


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    start = PASSAGE.index("Ines")
    made = [
        ReadingRow("1", "Who directed Lantern Row?", PASSAGE, "Lantern Row", (Answer("Ines Calloway", start),)),
        ReadingRow("2", "Who wrote Lantern Row?", PASSAGE, "Lantern Row"),
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{row.to_json()}\n" for row in made))
    return tmp_path / "rows.jsonl"


def measure(*arguments: str) -> dict[str, float]:
    return json.loads(CliRunner().invoke(reading, [*arguments, "--json"], catch_exceptions=False).stdout)


def test_a_language_model_is_scored_for_what_it_answers_and_what_it_refuses(rows: Path) -> None:
    with running() as server:
        right = says(write_reading("Ines Calloway", sentence=1))
        server.replies = [right, says(write_reading())]
        by_order = measure(str(rows), "--generator", server.url, "--generator-model", "m")
        asked = [request["messages"][-1]["content"] for request in server.requests]
    first_is_answerable = "directed Lantern" in asked[0]
    assert by_order["n"] == 2
    assert (by_order["em"], by_order["answered"], by_order["refused"]) == (float(first_is_answerable),) * 3
    assert by_order["no_answer_auc"] == float(first_is_answerable)
    assert (by_order["tokens_in"], by_order["tokens_out"]) == (31, 7)
    assert by_order["seconds"] > 0


def test_a_sample_is_the_same_rows_each_time(rows: Path) -> None:
    with running() as server:
        server.replies = [says(write_reading())]
        for _ in range(2):
            measured = measure(str(rows), "--generator", server.url, "--generator-model", "m", "--sample", "1")
            assert measured["n"] == 1
        first, second = [request["messages"] for request in server.requests]
    assert first == second


def test_an_endpoint_without_a_model_and_two_readers_are_refused(rows: Path) -> None:
    for arguments in (["--generator", "http://127.0.0.1:9/v1"], ["--generator-model", "m"]):
        with pytest.raises(ConfigError, match="--generator-model"):
            measure(str(rows), *arguments)
    with pytest.raises(ConfigError, match="one of them reads"):
        measure(str(rows), "--reader", "x", "--generator", "http://127.0.0.1:9/v1", "--generator-model", "m")
