"""Calls of models and services, each written into the node that it is made for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from revelator import spans
from revelator.errors import InvalidRequest
from revelator.tasks import TASKS
from revelator.trace import Node, Usage
from serving.protocols import TEXT, Revelator

PROMPTS_CHARACTERS = 500_000  # of one call, all prompts together: 1 MB takes a tokenizer 1.5 s


async def complete_task(
    revelator: Revelator, node: Node, task: str, inputs: Sequence[object], temperature: float = 0.0
) -> list[str]:
    """Returns the outputs of one batched call; `node.detail` gets a label task's probabilities, a dict a prompt, and
    that of a text, where it is known.
    Raises InvalidRequest for prompts that are too long."""
    prompts = [TASKS[task].render(value) for value in inputs]
    if (size := sum(map(len, prompts))) > PROMPTS_CHARACTERS:
        raise InvalidRequest(f"the prompts have {size} characters; at most {PROMPTS_CHARACTERS} are read at once")
    with record_call(node, task, len(prompts)) as call:
        completions = await revelator.complete(task, prompts, temperature=temperature)
        tokens_in, tokens_out = sum(c.tokens_in for c in completions), sum(c.tokens_out for c in completions)
        call |= {"tokens_in": tokens_in, "tokens_out": tokens_out}
    node.usage += Usage(tokens_in, tokens_out, model_calls=len(prompts))
    if TASKS[task].labels:
        node.detail["probabilities"] = [dict(c.probabilities) for c in completions]
    node.detail.pop("text_probability", None)  # of an earlier attempt
    if TEXT in completions[-1].probabilities:
        node.detail["text_probability"] = round(completions[-1].probabilities[TEXT], 4)
    if any(c.degraded for c in completions):
        node.detail["degraded"] = True
    return [c.text for c in completions]


@contextmanager
def record_call(node: Node, task: str, count: int = 1) -> Iterator[dict[str, Any]]:
    """Records a call in the node's detail, also one that fails: task, prompts, milliseconds with retries, tokens."""
    call: dict[str, Any] = {"task": task, "count": count}
    node.detail.setdefault("calls", []).append(call)
    began = time.perf_counter()
    try:
        with spans.open_span(task):
            yield call
    finally:
        call["ms"] = round((time.perf_counter() - began) * 1000, 3)


def count_retries(node: Node, service: str, count: int) -> None:
    retries = node.detail.setdefault("retries", {})
    retries[service] = retries.get(service, 0) + count
