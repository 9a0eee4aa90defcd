"""A teacher that knows a few made-up questions, behind a real server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from data_gen.teacher.chats import load_prompt
from tests.chat_server import Handler, Server, says

PROMPTS = ("route", "translate_bnf", "decompose", "relevance", "translate_logic", "translate_art")  # and our own:
PROMPTS += ("answer", "simple", "combine")
Answer = Callable[[dict[str, Any], dict[str, Any]], str]


def question(number: int) -> str:
    return f"Who founded the company that distributed Tin Comet {number}?"


def plan(number: int) -> str:
    return f"Who distributed Tin Comet {number}? * Who founded {{1}}?"


def asked(body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The prompt and the data of a request."""
    system, user = body["messages"][0]["content"], body["messages"][-1]["content"]
    prompt = next(name for name in PROMPTS if system.endswith(load_prompt(name)))
    return prompt, json.loads(user.removeprefix("<data>\n").removesuffix("\n</data>"))


class Teacher:
    """Answers by prompt: `answers[prompt](data, body)`. Faults come first: `faults[n]` is what call n meets, from 0.

    From call `hold_from` on nothing is answered until `release`; `held` counts those that wait.
    """

    def __init__(self, server: Server, answers: Mapping[str, Answer]) -> None:
        self.server, self.answers = server, answers
        self.faults: dict[int, Callable[[Handler], None]] = {}
        self.answered: list[str] = []
        self.hold_from: int | None = None
        self.release = threading.Event()
        self.held = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._calls = 0
        server.replies = [self.reply]

    def reply(self, handler: Handler) -> None:
        with self._lock:
            number, self._calls = self._calls, self._calls + 1
        if number in self.faults:
            return self.faults[number](handler)
        if self.hold_from is not None and number >= self.hold_from:
            self.held.release()
            self.release.wait(60)
            return handler.connection.close()
        prompt, data = asked(handler.body)
        says(self.answers[prompt](data, handler.body))(handler)
        with self._lock:
            self.answered.append(json.dumps(handler.body, sort_keys=True))
        return None


def teaching(url: str, folder: Path, questions: int = 6) -> dict[str, Any]:
    """A configuration that has so many questions, written into the folder, planned by two samples each."""
    rows = [json.dumps({"id": str(n), "question": question(n), "answer": f"Ada Quill {n}"}) for n in range(questions)]
    (folder / "mine.jsonl").write_text("\n".join(rows))
    return {
        "rows": "taught",
        "name": "taught",
        "endpoint": {"url": url, "model": "m", "concurrency": 2, "retries": 2},
        "sampling": {"samples": 2, "temperatures": [0.0, 0.7], "max_tokens": 100},
        "route": "complex",
        "tasks": ["translate_bnf"],
        "sources": [{"format": "pairs", "path": str(folder / "mine.jsonl"), "name": "mine", "licence": "CC0-1.0"}],
        "split": {"dev": 0.0},
    }


def number_of(data: Mapping[str, Any]) -> int:
    return int("".join(c for c in data["question"] if c.isdigit()))


def planner(data: dict[str, Any], body: dict[str, Any]) -> str:
    """A valid plan after a thought."""
    return f"First the distributor, then its founder.\n{plan(number_of(data))}"
