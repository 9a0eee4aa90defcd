"""`revelator plan run`: what people see of trees and plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.errors import ExpressionError
from revelator.plans.art import Art, render
from revelator.plans.operators import Relate

CHAIN = Art(
    "Which films did the director of Tin Comet direct?",
    children=(
        Art("Who directed Tin Comet?", Relate("Tin Comet", "directed by")),
        Art("Which films did [1] direct?", Relate("[1]", "directed by")),
    ),
)


def call(*arguments: str, input: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(revelator, ["plan", *arguments], input=input)
    if isinstance(result.exception, ExpressionError):
        return 1, str(result.exception)
    return result.exit_code, result.output


def test_run_answers_over_the_sources_of_a_file(tmp_path: Path, films: Path) -> None:
    (tmp_path / "tree.json").write_text(render(CHAIN))
    (tmp_path / "sources.yaml").write_text(f"sources: [{{kind: graph, name: films, folder: {films}}}]")
    arguments = ["run", str(tmp_path / "tree.json"), "--sources", str(tmp_path / "sources.yaml")]
    status, output = call(*arguments)
    assert status == 0
    assert "Glass Harbour" in output and "Ada Quill" in output
    status, output = call(*arguments, "--json")
    trace = json.loads(output)
    assert sorted(trace["answers"]) == ["Glass Harbour", "Tin Comet"]
    assert trace["nodes"][1]["detail"]["sources"][0]["source"] == "films"
    (tmp_path / "tree.json").write_text(render(Art("Who directed Nothing?", Relate("Nothing", "directed by"))))
    assert call(*arguments)[0] == 1


def test_what_a_limit_cuts_off_is_shown(tmp_path: Path, films: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.knowledge.graph.ROWS", 1)
    (tmp_path / "tree.json").write_text(render(CHAIN))
    (tmp_path / "sources.yaml").write_text(f"sources: [{{kind: graph, name: films, folder: {films}}}]")
    output = call("run", str(tmp_path / "tree.json"), "--sources", str(tmp_path / "sources.yaml"))[1]
    assert "cut off: inverse of directed by, 1 of 2" in " ".join(output.split())
    assert output.splitlines()[1].startswith("partial ")
