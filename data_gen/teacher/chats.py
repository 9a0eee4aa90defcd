"""The chats that a teacher is asked in: a prompt of our own for each task, examples from the synthetic world, the data.

The prompts of the tasks are those that a language model plans with (`revelator.tasks.chat_prompts`). The last line of a
reply is its output, so that a model may think before it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from data_gen.config import SplitConfig
from data_gen.questions import AnnotatedQuestion
from data_gen.records import Example, make_examples, shuffle_by_hash
from data_gen.sources.logic_questions import read_logic
from data_gen.sources.rows import read_world
from data_gen.world.generate import generate
from revelator.tasks import TASKS, TRANSLATE_ART, TRANSLATE_BNF, TRANSLATE_LOGIC
from revelator.tasks.chat_prompts import Message, load_chat_prompt, make_data_message

WORLD_SIZE = 240  # questions of the world that examples are drawn from
LOGICAL = 60  # logical questions over its documents

# The routes of the questions that a task's examples are drawn from, where it is asked of one route alone.
ROUTES = {TRANSLATE_BNF.name: "complex", TRANSLATE_ART.name: "complex", "decompose": "compound"}
ROUTES |= {"refine": "complex", "end": "complex"}

Shown = tuple[Mapping[str, Any], str]  # what is asked, and the output


class Prompts:
    """Chats by task. The same seed draws the same examples, `each` of them for a task, of as many kinds as there are.

    A prompt without examples of the world (`answer`, `simple`, `combine`) makes its own from the world's passages.
    """

    def __init__(self, each: int, seed: int) -> None:
        self.each, self.seed = each, seed
        self.questions = _make_examples(seed) if each else ()
        self._shown: dict[str, list[Shown]] = {}

    def chat(self, prompt: str, data: Mapping[str, Any]) -> list[Message]:
        """The messages that ask `prompt` (the name of a file in `prompts`) about `data`."""
        if prompt not in self._shown:
            self._shown[prompt] = self._draw(prompt)
        messages = [{"role": "system", "content": f"{load_prompt('system')}\n\n{load_prompt(prompt)}"}]
        for shown, output in self._shown[prompt]:
            messages += [make_data_message(shown), {"role": "assistant", "content": output}]
        return [*messages, make_data_message(data)]

    def _draw(self, prompt: str) -> list[Shown]:
        if prompt in TASKS:
            own = [e for q in self.questions for e in make_examples(q, prompt, self.seed) if _teaches(q, prompt)]
            chosen = _choose_varied(own, self.each, self.seed)
            return [(asdict(example.input), TASKS[prompt].completion(example.gold).strip()) for example in chosen]
        makers = {"answer": _show_answers, "simple": _show_simple, "combine": _show_combined}
        return [shown for question in self.questions for shown in makers[prompt](question)][: self.each]


@cache
def load_prompt(name: str) -> str:
    if name in TASKS:
        return load_chat_prompt(name)
    return files("data_gen.teacher").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8").rstrip()


@cache
def _make_examples(seed: int) -> tuple[AnnotatedQuestion, ...]:
    """Training questions of a small world, of which the same seed makes the same."""
    with tempfile.TemporaryDirectory() as folder:
        world, training = Path(folder) / "world", SplitConfig(dev=0.0)
        generate(WORLD_SIZE, seed, world)
        rows = [*read_world(world), *read_logic(world, LOGICAL, seed, training)]
    return tuple(row for row in rows if isinstance(row, AnnotatedQuestion) and row.split == "train")


def _teaches(question: AnnotatedQuestion, task: str) -> bool:
    """Whether a question is an example of what the teacher is asked in this task."""
    if question.query:
        return task == TRANSLATE_LOGIC.name
    return question.route == ROUTES.get(task, question.route)


def _choose_varied(made: Sequence[Example], count: int, seed: int) -> list[Example]:
    """`count` examples by hash, in turn from each kind: label, shape of the plan, or number of parts."""
    order = shuffle_by_hash(made, f"{seed}:examples", lambda e: f"{e.task}:{e.input}")
    kinds = [list(own) for _, own in groupby(sorted(order, key=_find_kind), key=_find_kind)]
    kinds = shuffle_by_hash(kinds, f"{seed}:kinds", lambda own: _find_kind(own[0]))
    longest = max(map(len, kinds), default=0)
    return [own[turn] for turn in range(longest) for own in kinds if turn < len(own)][:count]


def _find_kind(example: Example) -> str:
    task, gold = TASKS[example.task], example.gold
    if task.language:
        return task.language.shape(gold)
    if task.labels:
        return gold
    return str(len(gold)) if isinstance(gold, list) else ""


def _show_answers(question: AnnotatedQuestion) -> list[Shown]:
    if question.route != "single" or question.query:
        return []
    [step] = question.steps
    documents = [{"title": passage.title, "text": passage.text} for passage in question.passages]
    shown = {"question": step.question, "documents": documents}
    return [(shown, json.dumps(step.answers, ensure_ascii=False))]


def _has_one_title(question: AnnotatedQuestion) -> bool:
    return question.route == "compound" and len({step.title for step in question.steps}) == 1


def _show_simple(question: AnnotatedQuestion) -> list[Shown]:
    """The parts of a compound question about one thing, as they are asked of its passage."""
    if not _has_one_title(question) or any(len(step.answers) > 1 for step in question.steps):
        return []
    title = question.steps[0].title
    text = next(passage.text for passage in question.passages if passage.title == title)
    made = [{"question": step.question, "answer": step.answers[0]} for step in question.steps]
    return [({"title": title, "text": text, "at_most": len(made)}, json.dumps(made, ensure_ascii=False))]


def _show_combined(question: AnnotatedQuestion) -> list[Shown]:
    if not _has_one_title(question):
        return []
    return [({"title": question.steps[0].title, "questions": list(question.parts)}, question.question)]
