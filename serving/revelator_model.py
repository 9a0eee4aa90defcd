"""The revelator in this process: the engine behind the protocol that the executor calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from revelator.tasks import TASKS
from serving.engine import MAX_NEW_TOKENS, Engine
from serving.protocols import Completion


def complete(
    engine: Engine, task: str, prompts: Sequence[str], temperature: float = 0.0, max_new_tokens: int = MAX_NEW_TOKENS
) -> list[Completion]:
    """One completion a prompt, in order: the likeliest label with all probabilities, or generated text.

    At a temperature above 0 text is sampled; labels are not, their probabilities say the same.
    """
    lengths = engine.count_tokens(prompts)
    if labels := TASKS[task].labels:
        judged = engine.label_probabilities(prompts, labels)
        return [Completion(max(p, key=p.__getitem__), p, n) for p, n in zip(judged, lengths, strict=True)]
    written = engine.generate(prompts, temperature, max_new_tokens)
    return [Completion(text, {}, n, out) for (text, out), n in zip(written, lengths, strict=True)]


class LocalRevelator:
    """`serving.protocols.Revelator` over an engine in one worker thread: calls queue, the event loop stays free."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="revelator")

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, complete, self.engine, task, list(prompts), temperature)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
