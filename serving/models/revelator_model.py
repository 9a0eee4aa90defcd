"""The revelator in this process: the engine behind the protocol that the executor calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from revelator.errors import ConfigError
from revelator.plans.art_decoding import art_grammar
from revelator.plans.decoding import Grammar, plan_grammar
from revelator.plans.logic_decoding import logic_grammar
from revelator.plans.names import words_of
from revelator.tasks import TASKS
from serving.models.choice import soundest
from serving.models.degraded import question_itself
from serving.models.engine import MAX_NEW_TOKENS, Engine, Written, never
from serving.protocols import DECODINGS, Completion, Decoding

BEAMS = 4
PLAN_TOKENS = 128  # that a beam writes: the longest gold plan of MuSiQue has 80; a beam that rambles costs four rows
TREE_TOKENS = 448  # of 5,767 gold trees of MuSiQue and 2WikiMultiHopQA the longest has 383


def complete(
    engine: Engine,
    task: str,
    prompts: Sequence[str],
    temperature: float = 0.0,
    max_new_tokens: int | None = None,
    decoding: Decoding = "beams",
    cancelled: Callable[[], bool] = never,
) -> list[Completion]:
    """One completion a prompt, in order: the likeliest label with all probabilities, or generated text.

    At a temperature above 0 text is sampled; labels are not, their probabilities say the same. How plans are decoded:

    * `beams`: of the four likeliest texts that check, the one that keeps most of the question's names (`choice`); where
      none checks, and at a temperature, as with `grammar`;
    * `grammar`: token by token, held to the grammar of the plan's language;
    * `names`: held to it, with the question's own words and function words alone;
    * `free`: token by token, held to nothing.

    What cannot be closed within `max_new_tokens` (by default as many as gold needs) is the question itself as a plan of
    one leaf, as one term or as one search, `degraded`; braces of placeholders go.
    """
    if decoding not in DECODINGS:
        raise ConfigError(f"decoding is {', '.join(DECODINGS)}, not {decoding!r}")
    lengths = engine.count_tokens(prompts)
    if labels := TASKS[task].labels:
        judged = engine.label_probabilities(prompts, labels, cancelled)
        return [Completion(max(p, key=p.__getitem__), p, n) for p, n in zip(judged, lengths, strict=True)]
    budget = max_new_tokens or (TREE_TOKENS if task == "translate_art" else MAX_NEW_TOKENS)
    planned = task.startswith("translate")
    beams = planned and decoding == "beams" and temperature == 0
    written = _soundest(engine, task, prompts, budget, cancelled) if beams else {}
    places = [place for place in range(len(prompts)) if place not in written]
    others = [prompts[place] for place in places]
    grammars = _grammars(task, others, decoding) if planned and decoding != "free" else None
    written |= zip(places, engine.generate(others, temperature, budget, grammars, cancelled), strict=True)
    return [
        Completion(question_itself(task, prompt) if row.degraded else row.text, {}, n, row.tokens, row.degraded)
        for prompt, n, (_, row) in zip(prompts, lengths, sorted(written.items()), strict=True)
    ]


def _soundest(
    engine: Engine, task: str, prompts: Sequence[str], budget: int, cancelled: Callable[[], bool]
) -> dict[int, Written]:
    """By place, of each prompt's likeliest texts the one that `soundest` takes; prompts without one are left out."""
    room = min(budget, TREE_TOKENS if task == "translate_art" else PLAN_TOKENS)
    taken = {}
    for place, rows in enumerate(engine.likeliest(prompts, BEAMS, room, cancelled)):
        best = soundest(task, TASKS[task].question(prompts[place]), [row.text for row in rows])
        if best is not None:
            taken[place] = rows[best]
    return taken


def _grammars(task: str, prompts: Sequence[str], decoding: Decoding) -> list[Grammar]:
    """One a prompt, of the language that the task writes."""
    if task == "translate_logic":
        return [logic_grammar()] * len(prompts)
    if task == "translate_art":
        return [art_grammar()] * len(prompts)
    if decoding == "names":
        return [plan_grammar(words_of(TASKS[task].question(prompt))) for prompt in prompts]
    return [plan_grammar()] * len(prompts)


class LocalRevelator:
    """`serving.protocols.Revelator` over an engine in one worker thread: calls queue, the event loop stays free.

    A call that is cancelled leaves the queue, or ends after the token or the pass under way."""

    def __init__(self, engine: Engine, decoding: Decoding = "beams") -> None:
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
