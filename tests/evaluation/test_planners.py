"""Planners compared by one command, one of them a language model behind a server of others (`transformers serve`)."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from evaluation.harness.folder import read_questions
from evaluation.run import evaluate
from revelator.files import write_json

QUESTIONS = {
    "Where was the director of Lantern Row born?": ("Port Velm", "Who directed Lantern Row? * Where was {a} born?"),
    "Where was the director of The Glass Orchard born?": (
        "Sarnath",
        "Who directed The Glass Orchard? * Where was {a} born?",
    ),
}


def test_a_model_behind_transformers_serve_is_compared_with_the_base_by_plans_answers_tokens_and_seconds(
    tmp_path: Path, index: Path, transformers_url: str, served_base: Path
) -> None:
    rows = [
        {"question": question, "answer": answer, "plan": plan, "route": "complex"}
        for question, (answer, plan) in QUESTIONS.items()
    ]
    (tmp_path / "qa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    planner = {"url": transformers_url, "model": str(served_base)}
    shared = {
        "benchmark": {"format": "own", "path": str(tmp_path / "qa.jsonl")},
        "system": {"strategy": "compile"},
        "ablation": {"relevance": False},  # the base knows no chat: its template makes plans of it, and nothing else
        "index": str(index),
        "limits": {"deadline_ms": 300_000},
        "runs": {"base": {"adapter": "base"}, "language-model": {"planner": planner}},
    }
    write_json(tmp_path / "planners.yaml", shared)
    call = [str(tmp_path / "planners.yaml"), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(evaluate, call, catch_exceptions=False)
    compared = json.loads(done.stdout.splitlines()[-1])
    assert [system["name"] for system in compared["systems"]] == ["base", "language-model"]
    for system in compared["systems"]:
        assert system["n"] == 2 and all(0 <= system[score] <= 1 for score in ("em", "acc", "f1", "valid", "letters"))
        assert all(system[cost] > 0 for cost in ("tokens_in", "tokens_out", "wall_s"))
    assert all(row.trace for row in read_questions(tmp_path / "out" / "language-model"))
    assert "valid plan" in Path(compared["report"]).read_text(encoding="utf-8")
