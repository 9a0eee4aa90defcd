"""Asking a teacher: the chat of each prompt, several samples of its reply, and which of them is kept.

The prompts of the tasks and their examples are those that a language model plans with (`revelator.tasks.chat_prompts`);
those of `answer`, `simple` and `combine` stand beside this module. The last line of a reply is its output, so that a
model may think before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from data_gen.questions import DroppedError
from data_gen.teacher.client import Client
from data_gen.teacher.config import SamplingConfig
from revelator.config import read_table
from revelator.fingerprints import normalise
from revelator.tasks import TASKS
from revelator.tasks.chat_prompts import Message, load_chat_prompt, make_data_message, read_examples, read_last_line


def build_chat(prompt: str, data: Mapping[str, Any]) -> list[Message]:
    """The messages that ask `prompt` (a task, `answer`, `simple` or `combine`) about `data`."""
    messages = [{"role": "system", "content": f"{load_prompt('system')}\n\n{load_prompt(prompt)}"}]
    for shown, output in read_examples()[prompt] if prompt in TASKS else _read_own_examples()[prompt]:
        messages += [make_data_message(shown), {"role": "assistant", "content": output}]
    return [*messages, make_data_message(data)]


@cache
def load_prompt(name: str) -> str:
    return load_chat_prompt(name) if name in TASKS else _read_file(f"{name}.txt").rstrip()


@cache
def _read_own_examples() -> dict[str, list[tuple[dict[str, Any], str]]]:
    prompts = read_table("data_gen.teacher", "prompts/examples.yaml")
    return {prompt: [(row["data"], row["output"]) for row in rows] for prompt, rows in prompts.items()}


def _read_file(name: str) -> str:
    return files("data_gen.teacher").joinpath("prompts", name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Decision:
    """What was kept, and the part of all samples, valid or not, that agree with it."""

    value: Any
    agreement: float


def agreement_key(value: Any) -> Hashable:
    """Lists of parts agree if they are as long; answers, labels and questions up to spelling."""
    if isinstance(value, tuple):
        return tuple(map(normalise, value))
    return len(value) if isinstance(value, list) else normalise(value)


@dataclass(frozen=True)
class Asker:
    """Asks one prompt several times, and decides."""

    client: Client
    sampling: SamplingConfig

    async def ask_task(
        self, task: str, given: Any, read: Callable[[str], Any], key: Callable[[Any], Hashable] = agreement_key
    ) -> Decision:
        """`ask` with the prompt of a task, about its typed input."""
        return await self.ask(task, TASKS[task].read_values(TASKS[task].render(given)), read, key)

    async def ask(
        self,
        prompt: str,
        data: Mapping[str, Any],
        read: Callable[[str], Any],
        key: Callable[[Any], Hashable] = agreement_key,
    ) -> Decision:
        """The first sample that `read` accepts; `key` gives equal values to samples that agree.

        `read` gets the last line of a reply and raises DroppedError with the reason against it. Raises DroppedError,
        its reason behind the name of the prompt, when every sample is refused, or too few agree.
        """
        messages, temperatures = build_chat(prompt, data), self.sampling.temperatures
        calls = [
            self.client.ask(messages, temperatures[i % len(temperatures)], seed=i) for i in range(self.sampling.samples)
        ]
        replies = await asyncio.gather(*calls, return_exceptions=True)  # what is under way is paid for: let it end
        values, reasons = [], []
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
            try:
                if reply.finish == "length":
                    raise DroppedError("the reply is cut off")
                values.append(read(read_last_line(reply.text)))
            except DroppedError as error:
                reasons.append(error.message)
        if not values:
            raise DroppedError(f"{prompt}: {reasons[0]}")
        agreement = sum(key(value) == key(values[0]) for value in values) / len(replies)
        if agreement < self.sampling.agreement:
            raise DroppedError(f"{prompt}: too few samples agree")
        return Decision(values[0], agreement)
