"""A task of the revelator: its prompt (a data file), the parser of its output, and its labels if it has any.

A prompt is rendered from one typed input. White space inside a value is folded to single spaces, so that no question
and no document can forge a line of the prompt, and a document is cut to `DOCUMENT_CHARACTERS`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from revelator import plans
from revelator.errors import ExpressionError, TaskOutputError
from revelator.plans import art, logic
from revelator.tasks.inputs import (
    DecomposeInput,
    EndInput,
    RefineInput,
    RelevanceInput,
    RouteInput,
    Step,
    TranslateInput,
)

DOCUMENT_CHARACTERS = 600  # about 130 words: the lead of a Wikipedia article; keeps ten judgements in one small batch


@dataclass(frozen=True)
class Task:
    """One task. `labels` are told apart by their first token in every tokenizer used; None where text is generated.

    `write` gives canonical text, `spell` the text that is learnt where that is another one; `read` reads both. `check`
    says what is wrong with a value that was read.
    """

    name: str
    input: type
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    labels: tuple[str, ...] | None = None
    spell: Callable[[Any], str] | None = None
    check: Callable[[Any], tuple] = lambda value: ()

    @property
    def template(self) -> str:
        return _template(self.name).template

    @property
    def prompt_hash(self) -> str:
        """sha256 over name, prompt file and labels: equal hashes, equal prompts in training, evaluation and serving."""
        parts = [self.name, self.template, *(self.labels or ()), str(DOCUMENT_CHARACTERS)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def render(self, value: Any) -> str:
        """The prompt for one typed input; ends in a colon, never in white space."""
        if not isinstance(value, self.input):
            raise TypeError(f"task {self.name} takes {self.input.__name__}, not {type(value).__name__}")
        texts = {name: _folded(field) for name, field in vars(value).items()}
        if "text" in texts:
            texts["text"] = texts["text"][:DOCUMENT_CHARACTERS].rstrip()
        return _template(self.name).substitute(texts)

    def question(self, prompt: str) -> str:
        """The question of a prompt that `render` made, its white space folded."""
        before, _, _ = self.template.partition("$question")
        return prompt[len(before) :].partition("\n")[0]

    def completion(self, gold: Any) -> str:
        """What follows the prompt in training: one space, then the output that `parse` reads back as `gold`."""
        return " " + (self.spell or self.write)(gold)

    def parse(self, output: str) -> Any:
        """The typed value of a model's output. Raises TaskOutputError, or ExpressionError for a plan."""
        return self.read(output.strip())

    def sound(self, output: str) -> Any:
        """The typed value of an output that parses and checks; None for any other."""
        try:
            value = self.parse(output)
        except (TaskOutputError, ExpressionError):
            return None
        return None if self.check(value) else value


@cache
def _template(name: str) -> Template:
    text = files("revelator.tasks").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    return Template(text.rstrip())


def _folded(value: str | tuple[Step, ...]) -> str:
    if isinstance(value, tuple):
        return " | ".join(f"{_folded(s.question)} = {_folded(s.answer)}" for s in value) or "nothing"
    return " ".join(value.split())


def _label_reader(name: str, labels: tuple[str, ...]) -> Callable[[str], str]:
    def read(output: str) -> str:
        if output not in labels:
            raise TaskOutputError(f"{name} answered {output!r}, which is none of {', '.join(labels)}")
        return output

    return read


def _read_parts(output: str) -> list[str]:
    try:
        parts = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise TaskOutputError(f"decompose must answer a JSON list of questions: {error}") from error
    if not isinstance(parts, list) or not parts or not all(isinstance(p, str) and p.strip() for p in parts):
        raise TaskOutputError("decompose must answer a JSON list of one or more questions, each a non-empty string")
    return [p.strip() for p in parts]


def _read_question(output: str) -> str:
    if not output or "\n" in output:
        raise TaskOutputError("refine must answer one question on one line")
    return output


def _plan_reader(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(output: str) -> Any:
        try:
            return parse(output)
        except ExpressionError as error:
            error.hint = f"{error.hint} (the text was written by a model)"
            raise

    return read


def _label_task(name: str, input: type, *labels: str) -> Task:
    return Task(name, input, _label_reader(name, labels), str, labels)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _label_task("route", RouteInput, "straightforward", "single", "compound", "complex"),
        Task("decompose", DecomposeInput, _read_parts, lambda parts: json.dumps(parts, ensure_ascii=False)),
        Task("refine", RefineInput, _read_question, str),
        _label_task("relevance", RelevanceInput, "yes", "no"),
        _label_task("end", EndInput, "yes", "no"),
        Task("translate_bnf", TranslateInput, _plan_reader(plans.parse), plans.render, check=plans.check),
        Task(
            "translate_logic",
            TranslateInput,
            _plan_reader(logic.parse),
            logic.render,
            spell=logic.render_spaced,
            check=logic.check,
        ),
        Task("translate_art", TranslateInput, _plan_reader(art.parse), art.render, check=art.check),
    )
}


def prompt_hash() -> str:
    """sha256 over all tasks' prompt hashes."""
    return hashlib.sha256("".join(TASKS[name].prompt_hash for name in sorted(TASKS)).encode()).hexdigest()
