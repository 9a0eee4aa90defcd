"""The endpoint teacher against `transformers serve` on the embedded base: a server that is not ours, and real plans.

The base knows no chat: its template turns the data of the last message into the prompt of `translate_bnf`.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from click.testing import CliRunner

from data_gen.instruction_set import read_records
from revelator.artifact import base_folder
from revelator.cli import revelator
from revelator.tasks import TASKS

TEMPLATE = "{% set asked = messages[-1]['content'].split('\"question\": \"')[1].split('\"}')[0] %}"
WRITTEN = [
    "Who is the mother of the director of Copper Rain?",
    "When was the director of film Tin Comet born?",
    "What is the place of birth of the performer of Lantern Row?",
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    shutil.copytree(base_folder("tiny"), folder)
    prompt = TASKS["translate_bnf"].template.replace("$question", "{{ asked }}")
    (folder / "chat_template.jinja").write_text(TEMPLATE + prompt)
    return folder


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    """`transformers serve` on a free port, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*command, "--device", "cpu"], env=environment) as process:
        try:
            until = time.monotonic() + 240
            while time.monotonic() < until and process.poll() is None:
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.2)  # no event tells of a port that opens
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def test_a_server_of_others_writes_plans_and_a_finished_run_needs_none(url: str, model: Path, tmp_path: Path) -> None:
    rows = [json.dumps({"id": str(n), "question": q, "answer": "x"}) for n, q in enumerate(WRITTEN)]
    (tmp_path / "mine.jsonl").write_text("\n".join(rows))
    settings = {
        "name": "served",
        "endpoint": {"url": url, "model": str(model), "concurrency": 2, "timeout": 120},
        "sampling": {"samples": 2, "temperatures": [0.0, 0.3], "max_tokens": 64},
        "budget": {"tokens": 100_000, "price_in": 1.0, "price_out": 2.0},
        "examples": 1,
        "route": "complex",
        "tasks": ["translate_bnf"],
        "sources": [{"format": "pairs", "path": str(tmp_path / "mine.jsonl")}],
        "split": {"dev": 0.0},
    }
    (tmp_path / "teach.yaml").write_text(yaml.safe_dump(settings))
    arguments = ["data", "teach", str(tmp_path / "teach.yaml"), "--out", str(tmp_path / "out"), "--json"]
    manifest = json.loads(CliRunner().invoke(revelator, arguments, catch_exceptions=False).stdout)
    plans = {r.question: json.loads(r.gold) for r in read_records(tmp_path / "out/set", "train", "translate_bnf")}
    assert plans and all(" * " in plan and "{" in plan for plan in plans.values())
    assert float(manifest["teaching"]["cost"]) > 0
    settings["endpoint"] = {**settings["endpoint"], "url": "http://127.0.0.1:9/v1"}
    (tmp_path / "teach.yaml").write_text(yaml.safe_dump(settings))
    again = json.loads(CliRunner().invoke(revelator, arguments, catch_exceptions=False).stdout)
    assert again["digest"] == manifest["digest"]
