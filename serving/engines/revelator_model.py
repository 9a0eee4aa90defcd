"""The revelator in this process: the engine behind the protocol that the executor calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

from revelator.art.decoding import art_grammar
from revelator.errors import ConfigError
from revelator.language.decoding import Grammar, plan_grammar
from revelator.language.logic_decoding import logic_grammar
from revelator.language.names import words_of
from revelator.tasks import TASKS
from serving.engines.degraded import question_itself
from serving.engines.engine import MAX_NEW_TOKENS, Engine, never
from serving.protocols import Completion

Decoding = Literal["grammar", "names", "free"]
DECODINGS = ("grammar", "names", "free")
TREE_TOKENS = 448  # of 5,767 gold trees of MuSiQue and 2WikiMultiHopQA the longest has 383


def complete(
    engine: Engine,
    task: str,
    prompts: Sequence[str],
    temperature: float = 0.0,
    max_new_tokens: int | None = None,
    decoding: Decoding = "grammar",
    cancelled: Callable[[], bool] = never,
) -> list[Completion]:
    """One completion a prompt, in order: the likeliest label with all probabilities, or generated text.

    At a temperature above 0 text is sampled; labels are not, their probabilities say the same. Plans are held to their
    grammar by `decoding`: `grammar`; `names`, whose texts use the question's own words and function words alone; or
    `free`. What cannot be closed within `max_new_tokens` (by default as many as gold needs) is the question itself as a
    plan of one leaf, as one term or as one search, `degraded`; braces of placeholders go.
    """
    lengths = engine.count_tokens(prompts)
    if labels := TASKS[task].labels:
        judged = engine.label_probabilities(prompts, labels, cancelled)
        return [Completion(max(p, key=p.__getitem__), p, n) for p, n in zip(judged, lengths, strict=True)]
    grammars = _grammars(task, prompts, decoding)
    budget = max_new_tokens or (TREE_TOKENS if task == "translate_art" else MAX_NEW_TOKENS)
    written = engine.generate(prompts, temperature, budget, grammars, cancelled)
    return [
        Completion(question_itself(task, prompt) if row.degraded else row.text, {}, n, row.tokens, row.degraded)
        for prompt, row, n in zip(prompts, written, lengths, strict=True)
    ]


def _grammars(task: str, prompts: Sequence[str], decoding: Decoding) -> list[Grammar] | None:
    """One a prompt; None where the task's output is no plan."""
    if decoding not in DECODINGS:
        raise ConfigError(f"decoding is {', '.join(DECODINGS)}, not {decoding!r}")
    if not task.startswith("translate") or decoding == "free":
        return None
    if task == "translate_logic":
        return [logic_grammar()] * len(prompts)
    if task == "translate_art":
        return [art_grammar()] * len(prompts)
    if decoding == "grammar":
        return [plan_grammar()] * len(prompts)
    return [plan_grammar(words_of(TASKS[task].question(prompt))) for prompt in prompts]


class LocalRevelator:
    """`serving.protocols.Revelator` over an engine in one worker thread: calls queue, the event loop stays free.

    A call that is cancelled leaves the queue, or ends after the token or the pass under way."""

    def __init__(self, engine: Engine, decoding: Decoding = "grammar") -> None:
        self.engine, self.decoding = engine, decoding
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="revelator")

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        left = threading.Event()
        work = partial(
            complete, self.engine, task, list(prompts), temperature, decoding=self.decoding, cancelled=left.is_set
        )
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            left.set()

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
