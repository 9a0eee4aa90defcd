"""The tasks as a chat with a language model: a prompt in plain words, some examples, and the data of one question.

Everything that others wrote travels as JSON between `<data>` marks, in which `<` is escaped: no question and no
document can close the mark. The prompts are files, `prompts/chat`, which the teachers of `data_gen` share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from revelator.config import read_table
from revelator.tasks.task import Task

Message = dict[str, str]


def build_chat(task: Task, prompt: str, spell: Callable[[str], str] = str, note: str = "") -> list[Message]:
    """The chat that asks for the task of a prompt that `task.render` made.

    `spell` writes an output in the form in which the replies are wanted, and `note` says so to the model.
    """
    rules = "\n".join(filter(None, [load_chat_prompt("system"), "", load_chat_prompt(task.name), note]))
    messages = [{"role": "system", "content": rules}]
    for shown, output in read_examples()[task.name]:
        messages += [make_data_message(shown), {"role": "assistant", "content": spell(output)}]
    return [*messages, make_data_message(task.read_values(prompt))]


def make_data_message(data: Mapping[str, Any]) -> Message:
    return {"role": "user", "content": f"<data>\n{quote_data(data)}\n</data>"}


def quote_data(value: Any) -> str:
    """JSON in which no text can close a `<data>` mark."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def read_last_line(reply: str) -> str:
    """The output in a reply: its last line that holds something, code fences aside; "" if there is none."""
    lines = [line.strip() for line in reply.splitlines()]
    return next((line for line in reversed(lines) if line and not line.startswith("```")), "")


@cache
def load_chat_prompt(name: str) -> str:
    return _folder().joinpath(f"{name}.txt").read_text(encoding="utf-8").rstrip()


@cache
def read_examples() -> dict[str, list[tuple[dict[str, str], str]]]:
    """The examples of each task: the values of a prompt, and the output."""
    tasks = read_table("revelator.tasks", "prompts/chat/examples.yaml")
    return {
        task: [({name: text for name, text in row.items() if name != "output"}, row["output"]) for row in rows]
        for task, rows in tasks.items()
    }


def _folder() -> Any:
    return files("revelator.tasks").joinpath("prompts", "chat")
