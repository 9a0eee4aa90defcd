"""The endpoint teacher against `transformers serve` on the embedded base: a server that is not ours, and real plans.

Faults come from a proxy on loopback before that server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import yaml
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.rows import stream_rows
from tests.chat_server import Handler, Reply, cuts, running

WRITTEN = [
    "Who is the mother of the director of Copper Rain?",
    "When was the director of film Tin Comet born?",
    "What is the place of birth of the performer of Lantern Row?",
]


Taught = tuple[dict[str, Any], dict[str, str]]


def taught(folder: Path, endpoint: dict[str, Any], temperatures: tuple[float, ...] = (0.0, 0.3)) -> Taught:
    """Manifest and plans of `rows: taught` about three questions, worked on in the folder."""
    folder.mkdir(exist_ok=True)
    rows = [json.dumps({"id": str(n), "question": q, "answer": "x"}) for n, q in enumerate(WRITTEN)]
    (folder / "mine.jsonl").write_text("\n".join(rows))
    settings = {
        "rows": "taught",
        "name": "served",
        "endpoint": {"concurrency": 2, "timeout": 120, **endpoint},
        "sampling": {"samples": 2, "temperatures": list(temperatures), "max_tokens": 64},
        "budget": {"tokens": 100_000, "price_in": 1.0, "price_out": 2.0},
        "route": "complex",
        "tasks": ["translate_bnf"],
        "sources": [{"format": "pairs", "path": str(folder / "mine.jsonl")}],
        "split": {"dev": 0.0},
    }
    (folder / "teach.yaml").write_text(yaml.safe_dump(settings))
    arguments = ["data", "build", str(folder / "teach.yaml"), "--out", str(folder / "out"), "--json"]
    manifest = json.loads(CliRunner().invoke(revelator, arguments, catch_exceptions=False).stdout)
    records = stream_rows(folder / "out/set", "train", "translate_bnf")
    return manifest, {record.question: json.loads(record.gold) for record in records}


def test_a_server_of_others_writes_plans_and_a_finished_run_needs_none(
    transformers_url: str, served_base: Path, tmp_path: Path
) -> None:
    manifest, plans = taught(tmp_path, {"url": transformers_url, "model": str(served_base)})
    assert plans and all(" * " in plan and "{" in plan for plan in plans.values())
    assert float(manifest["teaching"]["cost"]) > 0
    again, _ = taught(tmp_path, {"url": "http://127.0.0.1:9/v1", "model": str(served_base)})
    assert again["digest"] == manifest["digest"]


def test_faults_on_the_way_to_a_server_of_others_change_nothing_in_the_set(
    transformers_url: str, served_base: Path, tmp_path: Path
) -> None:
    told: list[int] = []  # what the server itself said, of each request that reached it

    def passes(handler: Handler) -> None:
        answer = httpx.post(f"{transformers_url}/chat/completions", json=handler.body, timeout=120, trust_env=False)
        told.append(answer.status_code)
        handler.send(answer.status_code, answer.content)

    def passes_and_is_cut(handler: Handler) -> None:
        httpx.post(f"{transformers_url}/chat/completions", json=handler.body, timeout=120, trust_env=False)
        cuts(handler)

    faults: list[Reply] = [
        lambda handler: handler.send(429, b"{}", Retry_After="0.2"),
        lambda handler: handler.send(500, b"the server met an error"),
        lambda handler: handler.send(200, b'{"id": "x", "choices": [{"index": 0, "mess'),
        cuts,
        passes_and_is_cut,
        lambda handler: handler.send(503, b"{}", Retry_After="0"),
    ]
    straight = taught(tmp_path / "straight", {"url": transformers_url, "model": str(served_base)}, (0.0,))
    with running() as proxy:
        proxy.replies = [*faults[:4], passes, *faults[4:], passes]
        endpoint = {"url": proxy.url, "model": str(served_base), "retries": len(faults)}
        met = taught(tmp_path / "met", endpoint, (0.0,))
        assert len(proxy.requests) == len(told) + len(faults) and told == [200] * 6  # two samples of three questions
    assert met[0]["digest"] == straight[0]["digest"] and met[1] == straight[1] != {}
    counted = [{**manifest["teaching"], "endpoint": ""} for manifest, _ in (straight, met)]
    assert counted[0] == counted[1] and "tokens" in counted[0]
