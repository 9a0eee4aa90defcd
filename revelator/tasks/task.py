"""A task of the revelator: its prompt (a data file), the parser of its output, and its labels if it has any.

A prompt is rendered from one typed input. White space inside a value is folded to single spaces, so that no question
and no document can forge a line of the prompt. A document is cut to `DOCUMENT_CHARACTERS`, and the passages of one
prompt to `PASSAGE_CHARACTERS` together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib.resources import files
from string import Template
from typing import Annotated, Any

from pydantic import FailFast

from revelator.errors import ExpressionError, TaskOutputError
from revelator.plans.language import ART, BNF, LOGIC, PlanLanguage
from revelator.trace import join_answers

UNKNOWN = "unknown"  # stands in a prompt for the answer of a step that has none
DOCUMENT_CHARACTERS = 600  # about 130 words: the lead of a Wikipedia article; keeps ten judgements in one small batch
PASSAGE_CHARACTERS = 1_200  # of all passages together: prompt and answer are at most 512 tokens of SmolLM2's
MOST_PASSAGES = 3  # that `read` is trained on at once
UNANSWERABLE = "unanswerable"
VERDICTS = ("yes", "no", UNANSWERABLE)  # what `read` answers in no words of the passages


@dataclass(frozen=True)
class Step:
    """A sub-question that was asked, with its answers: none where nothing was found."""

    question: str
    answers: Annotated[tuple[str, ...], FailFast()]  # clients send them, too: reading ends at the first fault

    @property
    def answer(self) -> str:
        """The answers joined, as a prompt shows them."""
        return join_answers(self.answers) or UNKNOWN


@dataclass(frozen=True)
class QuestionInput:
    question: str


@dataclass(frozen=True)
class StepsInput:
    """A question, and the steps that are known so far; of a message, what was asked before in the conversation."""

    question: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class RelevanceInput:
    question: str
    title: str
    text: str


@dataclass(frozen=True)
class SelectInput:
    """A question as a plan has it, and one source: its name, its kind (text, graph or web), what it holds."""

    question: str
    name: str
    kind: str
    about: str


@dataclass(frozen=True)
class ReadInput:
    """A question, and up to `MOST_PASSAGES` passages: pairs of title and text."""

    question: str
    passages: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ReadAnswer:
    """What passages answer: one text or, of a list, several; or one of `VERDICTS`, and no text."""

    answers: tuple[str, ...] = ()
    verdict: str = ""


@dataclass(frozen=True)
class Task:
    """One task. `labels` are told apart by their first token in every tokenizer used; None where text is generated.

    `write` gives canonical text, `read` reads it. `language` is that of the plans which a translate task writes, and
    `json_schema` describes an output that is JSON. A prompt shows `characters` of its document or passages.
    `refusal` is the output that says that there is none; its probability is told with every output.
    """

    name: str
    input: type
    read: Callable[[str], Any]
    write: Callable[[Any], str]
    labels: tuple[str, ...] | None = None
    language: PlanLanguage | None = None
    json_schema: Callable[[], dict[str, Any]] | None = None
    characters: int = DOCUMENT_CHARACTERS
    refusal: str | None = None

    @property
    def reads_document(self) -> bool:
        return "text" in {field.name for field in fields(self.input)}

    @property
    def template(self) -> str:
        return _template(self.name).template

    @property
    def prompt_hash(self) -> str:
        """sha256 over name, prompt file and labels: equal hashes, equal prompts in training, evaluation and serving."""
        parts = [self.name, self.template, *(self.labels or ()), str(self.characters)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def render(self, value: Any) -> str:
        """Writes the prompt for one typed input; it ends in a colon, never in white space."""
        if not isinstance(value, self.input):
            raise TypeError(f"task {self.name} takes {self.input.__name__}, not {type(value).__name__}")
        texts = {name: _fold_value(field) for name, field in vars(value).items() if name != "passages"}
        if "text" in texts:
            texts["text"] = texts["text"][: self.characters].rstrip()
        if isinstance(value, ReadInput):
            texts["passages"] = _write_passages(value.passages, self.characters)
        return _template(self.name).substitute(texts)

    def read_question(self, prompt: str) -> str:
        """Reads the question from a prompt that `render` made, with single spaces."""
        before, _, _ = self.template.partition("$question")
        return prompt[len(before) :].partition("\n")[0]

    def read_values(self, prompt: str) -> dict[str, str]:
        """Reads the named lines of a prompt that `render` made: its question, and what is known or to be read."""
        lines = [line.partition(": ") for line in prompt.split("\n")[1:-1]]
        return {name.lower(): value for name, _, value in lines}

    def write_completion(self, gold: Any) -> str:
        """Writes what follows the prompt in training: one space, then the output that `parse` reads back as `gold`."""
        return " " + (self.language.spell if self.language else self.write)(gold)

    def parse(self, output: str) -> Any:
        """Parses a model's output into a typed value. Raises TaskOutputError, or ExpressionError for a plan."""
        return self.read(output.strip())

    def parse_sound(self, output: str) -> Any:
        """Parses an output into a typed value; None if it does not parse, or is a plan that cannot be executed."""
        try:
            value = self.parse(output)
        except (TaskOutputError, ExpressionError):
            return None
        return None if self.language and self.language.check(value) else value

    def make_comparable(self, output: str) -> object:
        """Returns what two outputs must share to count as equal: the shape of a plan, or the typed value. An output
        that is not sound is compared as it is."""
        value = self.parse_sound(output)
        if value is None:
            return output
        return self.language.shape(value) if self.language else value

    def write_fallback(self, prompt: str) -> str:
        """Returns the plan that replaces one that could not be written: the question of the prompt as a single step.

        Raises TypeError for a task that writes no plans."""
        if self.language is None:
            raise TypeError(f"task {self.name} writes no plans")
        return self.write(self.language.fallback(self.read_question(prompt)))


@cache
def _template(name: str) -> Template:
    text = files("revelator.tasks").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    return Template(text.rstrip())


def _fold_value(value: str | tuple[Step, ...]) -> str:
    if isinstance(value, tuple):
        return " | ".join(f"{_fold_value(s.question)} = {_fold_value(s.answer)}" for s in value) or "nothing"
    return " ".join(value.split())


def _write_passages(passages: Sequence[tuple[str, str]], room: int) -> str:
    """A numbered line a passage, cut to `room` characters together: a short one leaves its room to longer ones."""
    texts = [": ".join(filter(None, map(_fold_value, passage))) for passage in passages]
    shares = dict.fromkeys(range(len(texts)), 0)
    for done, place in enumerate(sorted(shares, key=lambda place: len(texts[place]))):
        shares[place] = min(len(texts[place]), room // (len(texts) - done))
        room -= shares[place]
    return "\n".join(f"Passage {place + 1}: {texts[place][:share].rstrip()}" for place, share in shares.items())


def _label_reader(name: str, labels: tuple[str, ...]) -> Callable[[str], str]:
    def read(output: str) -> str:
        if output not in labels:
            raise TaskOutputError(f"{name} answered {output!r}, which is none of {', '.join(labels)}")
        return output

    return read


def _read_list(name: str, things: str, output: str) -> list[str]:
    try:
        parts = json.loads(output)
    except (ValueError, RecursionError) as error:
        raise TaskOutputError(f"{name} must answer a JSON list of {things}: {error}") from error
    if not isinstance(parts, list) or not parts or not all(isinstance(p, str) and p.strip() for p in parts):
        raise TaskOutputError(f"{name} must answer a JSON list of one or more {things}, each a non-empty string")
    return [p.strip() for p in parts]


def _write_list(parts: Sequence[str]) -> str:
    return json.dumps(parts, ensure_ascii=False)


def _write_answer(value: ReadAnswer) -> str:
    """The verdict, the one text as it is, or a JSON list: of several texts, and of one that would be read otherwise."""
    texts = [_fold_value(text) for text in value.answers]
    is_plain = len(texts) == 1 and texts[0] not in VERDICTS and not texts[0].startswith("[")
    return value.verdict or (texts[0] if is_plain else _write_list(texts))


def _read_answer(output: str) -> ReadAnswer:
    if output in VERDICTS:
        return ReadAnswer(verdict=output)
    if output.startswith("["):
        return ReadAnswer(tuple(_read_list("read", "texts", output)))
    if not output or "\n" in output:
        raise TaskOutputError("read must answer on one line: a text, a JSON list of texts, or " + ", ".join(VERDICTS))
    return ReadAnswer((output,))


def _question_task(name: str) -> Task:
    def read(output: str) -> str:
        if not output or "\n" in output:
            raise TaskOutputError(f"{name} must answer one question on one line")
        return output

    return Task(name, StepsInput, read, str)


def _translate_task(language: PlanLanguage) -> Task:
    name = f"translate_{language.name}"
    read, write, json_schema = language.parse, language.render, language.json_schema
    return Task(name, QuestionInput, read, write, language=language, json_schema=json_schema)


def _label_task(name: str, input: type, *labels: str) -> Task:
    return Task(name, input, _label_reader(name, labels), str, labels)


TRANSLATE_BNF = _translate_task(BNF)
TRANSLATE_LOGIC = _translate_task(LOGIC)
TRANSLATE_ART = _translate_task(ART)

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _label_task("route", QuestionInput, "straightforward", "single", "compound", "complex"),
        Task(
            "decompose",
            QuestionInput,
            partial(_read_list, "decompose", "questions"),
            _write_list,
            json_schema=lambda: {"type": "array", "minItems": 1, "items": {"type": "string"}},
        ),
        _question_task("refine"),
        _question_task("rewrite"),
        _label_task("relevance", RelevanceInput, "yes", "no"),
        _label_task("end", StepsInput, "yes", "no"),
        TRANSLATE_BNF,
        TRANSLATE_LOGIC,
        TRANSLATE_ART,
        _label_task("select", SelectInput, "yes", "no"),
        Task("read", ReadInput, _read_answer, _write_answer, characters=PASSAGE_CHARACTERS, refusal=UNANSWERABLE),
    )
}


PLANNING = TASKS.keys() - {"read"}  # of who plans and judges: what reading costs is the reader's


def translate_task(language: str) -> Task:
    """The task that writes plans of this language."""
    return next(task for task in TASKS.values() if task.language and task.language.name == language)


def prompt_hash(tasks: Iterable[str] = TASKS) -> str:
    """sha256 over the prompt hashes of these tasks; one that this release does not have is an empty text."""
    hashes = (TASKS[name].prompt_hash if name in TASKS else "" for name in sorted(tasks))
    return hashlib.sha256("".join(hashes).encode()).hexdigest()
