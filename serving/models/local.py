"""The revelator in this process: the engine behind the protocol that the executor calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from revelator.plans.names import find_name_words, keeps_foreign_words
from revelator.tasks import TASKS, Task
from serving.models.engine import MAX_NEW_TOKENS, Engine, GeneratedText, never_cancelled
from serving.protocols import TEXT, Completion, Decoding

BEAMS = 4


def complete(
    engine: Engine,
    task: str,
    prompts: Sequence[str],
    temperature: float = 0.0,
    max_new_tokens: int | None = None,
    decoding: Decoding = "beams",
    cancelled: Callable[[], bool] = never_cancelled,
) -> list[Completion]:
    """One completion a prompt, in order: the likeliest label with all probabilities, or generated text.

    At a temperature above 0 text is sampled; labels are not, their probabilities say the same. How plans are decoded:

    * `beams`: of the four likeliest texts that check, the one that keeps most of the question's names (`choose_plan`);
      where none checks, and at a temperature, as with `grammar`;
    * `likeliest`: the same, whatever names it keeps;
    * `any-words`: the same, whatever words it keeps, those that ASCII cannot write among them;
    * `grammar`: token by token, held to the grammar of the plan's language;
    * `free`: token by token, held to nothing.

    A text that is no plan is written token by token, held to nothing.
    Except with `free`, a plan that does not end within `max_new_tokens` (by default as many as gold needs), that does
    not check, or that loses a word of another script or with accents (but with `any-words`), is replaced by the
    fallback of its language, the question itself, and is `degraded`.
    """
    asked = TASKS[task]
    lengths = engine.count_tokens(prompts)
    if asked.labels:
        judged = engine.judge_labels(prompts, asked.labels, cancelled, shorten=asked.reads_document)
        return [Completion(max(p, key=p.__getitem__), p, n) for p, n in zip(judged, lengths, strict=True)]
    if asked.refusal:
        return _write_or_refuse(engine, asked.refusal, prompts, temperature, max_new_tokens, cancelled)
    if asked.language:
        written = _write_plans(engine, asked, prompts, temperature, max_new_tokens, decoding, cancelled)
    else:
        written = _write_texts(engine, prompts, temperature, max_new_tokens or MAX_NEW_TOKENS, cancelled)
    return [
        Completion(asked.write_fallback(prompt), {}, n, row.tokens, degraded=True)
        if row.degraded
        else Completion(row.text, {TEXT: row.probability} if row.probability else {}, n, row.tokens)
        for prompt, n, row in zip(prompts, lengths, written, strict=True)
    ]


def _write_or_refuse(
    engine: Engine,
    refusal: str,
    prompts: Sequence[str],
    temperature: float,
    max_new_tokens: int | None,
    cancelled: Callable[[], bool],
) -> list[Completion]:
    """One text a prompt, with the probability of the refusal; where that is the likelier, nothing else is written. A
    text that is cut off is none, as an endpoint's is."""
    refused = engine.find_probabilities(prompts, refusal, cancelled)
    answered = [prompt for prompt, share in zip(prompts, refused, strict=True) if share <= 0.5]
    written = iter(_write_texts(engine, answered, temperature, max_new_tokens or MAX_NEW_TOKENS, cancelled))
    completions = []
    for length, share in zip(engine.count_tokens(prompts), refused, strict=True):
        row = next(written) if share <= 0.5 else GeneratedText(refusal, 0, probability=share)
        text = "" if row.probability is None and temperature == 0 else row.text
        completions.append(Completion(text, {TEXT: row.probability or 0.0, refusal: share}, length, row.tokens))
    return completions


def _write_texts(
    engine: Engine, prompts: Sequence[str], temperature: float, budget: int, cancelled: Callable[[], bool]
) -> list[GeneratedText]:
    """One text a prompt, the likeliest token by token, with its probability; one that does not end in time has none."""
    found = engine.search_beams(prompts, 1, budget, cancelled) if temperature == 0 else [[] for _ in prompts]
    others = [prompt for prompt, rows in zip(prompts, found, strict=True) if not rows]
    written = iter(engine.generate(others, temperature, budget, None, cancelled))
    return [rows[0] if rows else next(written) for rows in found]


def _write_plans(
    engine: Engine,
    task: Task,
    prompts: Sequence[str],
    temperature: float,
    max_new_tokens: int | None,
    decoding: Decoding,
    cancelled: Callable[[], bool],
) -> list[GeneratedText]:
    """One plan a prompt: by beams where that is asked for and one of them checks, token by token elsewhere."""
    assert task.language is not None
    budget = max_new_tokens or task.language.token_limit
    plans: dict[int, GeneratedText] = {}
    keeps_words = decoding != "any-words"
    if decoding in ("beams", "likeliest", "any-words") and temperature == 0:
        room = min(budget, task.language.beam_token_limit)
        for place, rows in enumerate(engine.search_beams(prompts, BEAMS, room, cancelled)):
            question, texts = task.read_question(prompts[place]), [row.text for row in rows]
            best = choose_plan(task, question, texts, decoding == "beams", keeps_words)
            if best is not None:
                plans[place] = rows[best]
    places = [place for place in range(len(prompts)) if place not in plans]
    others = [prompts[place] for place in places]
    grammars = None if decoding == "free" else [task.language.grammar()] * len(others)
    for place, row in zip(places, engine.generate(others, temperature, budget, grammars, cancelled), strict=True):
        plan, question = _parse_plan(task, row.text), task.read_question(prompts[place])
        unsound = decoding != "free" and (plan is None or (keeps_words and _loses_words(task, question, plan)))
        plans[place] = row._replace(degraded=True) if unsound else row
    return [plans[place] for place in range(len(prompts))]


def _parse_plan(task: Task, text: str) -> Any:
    """The plan that a text is; None for one that does not check, or that has control characters."""
    return task.parse_sound(text) if text.isprintable() else None


def _loses_words(task: Task, question: str, plan: Any) -> bool:
    """Whether a plan lacks a word of the question that ASCII cannot write: a small model mixes up such names."""
    assert task.language is not None
    return not keeps_foreign_words(task.language.leaf_text(plan), question)


def choose_plan(
    task: Task, question: str, texts: Sequence[str], by_names: bool = True, keeps_words: bool = True
) -> int | None:
    """The place in `texts`, likeliest first, of the plan to take: of those that parse and check, the likeliest of those
    that keep most of the question's names. None where no text checks and has every word that ASCII cannot write.

    What a small model gets wrong first is a long or odd name: a syllable goes, or the whole leaf that asks about it.
    Such a text is rarely its only likely one. On 722 unseen questions all names are right in .968 of the plans, and
    without this (`by_names`) in .954; the arguments in .842 and .838 (docs/results.md). That foreign words are
    kept (`keeps_words`) makes one question of the 722 right; the rule is there for questions in other languages.
    """
    language = task.language
    assert language is not None
    names = set(find_name_words(question)) if by_names else set()
    plans = {place: _parse_plan(task, text) for place, text in enumerate(texts)}
    worth = {
        place: len(names.intersection(language.words(plan)))
        for place, plan in plans.items()
        if plan is not None and not (keeps_words and _loses_words(task, question, plan))
    }
    return max(worth, key=worth.__getitem__, default=None)


class LocalRevelator:
    """`serving.protocols.Revelator` over an engine in one worker thread, its own or `threads`: calls queue, the event
    loop stays free.

    A call that is cancelled leaves the queue, or ends after the token or the pass under way."""

    def __init__(self, engine: Engine, decoding: Decoding = "beams", threads: ThreadPoolExecutor | None = None) -> None:
        self.engine, self.decoding = engine, decoding
        self._thread = threads or ThreadPoolExecutor(max_workers=1, thread_name_prefix="revelator")

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
