"""FanOutQA as published (Zhu et al., 2024): nested decompositions whose questions ask the same of each of many things.

"Who were the first picks?" and one question about each pick become a plan of two leaves: the second fans out over the
answers of the first. A question without such a list keeps its parts side by side.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.annotate.names import find_capitalised, find_mention
from data_gen.annotate.phrases import find_head
from data_gen.annotate.plan import GoldPlan, GoldStep, plan
from data_gen.annotate.wording import name_answer, to_singular
from data_gen.leakage import normalise
from data_gen.questions import AnnotatedQuestion, AnnotatedStep, DroppedError
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from revelator import plans

LISTED = re.compile(
    r"(?:who|what)\s+(?:are|were|is|was)\s+(.+?)\??|(?:find|list|name|identify)\s+(.+?)[.?]?", re.IGNORECASE
)
OWN = re.compile(r"\b(?:his|her|its|their)\b")
MOSTLY = 0.6  # part of the questions about the members that has to be worded alike


def read_fan_out(path: Path | str) -> Iterator[Outcome]:
    """Complex questions with plan and steps, the fan-out written out."""
    return read_annotated(path, _annotate)


@dataclass(frozen=True)
class _Call:
    """One question as it was asked: the value that it names of each earlier leaf, its answers, and their page."""

    named: dict[int, str]
    values: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class _Leaf:
    """A question with `#n` for the leaf n that it depends on, and its calls: one, or one for each member of a list."""

    text: str
    calls: tuple[_Call, ...]

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value for call in self.calls for value in call.values))


def _annotate(row: dict[str, Any]) -> AnnotatedQuestion:
    question = fields.read_question(row)
    identity = fields.make_id(row, "fanoutqa", question, "id")
    found: list[_Leaf] = []
    _collect(row["decomposition"], found)
    if any(_names_answer_early(leaf.text, question, found[:place]) for place, leaf in enumerate(found)):
        raise DroppedError("a step names what only an earlier answer tells")
    gold = [GoldStep(leaf.text, answers=leaf.values, names=_list_names(leaf.text)) for leaf in found]
    planned = plan(question, gold, identity)
    single = len(found) == 1
    return AnnotatedQuestion(
        id=identity,
        source="fanoutqa",
        licence="CC-BY-SA-4.0",
        split="",
        question=question,
        route="single" if single else "complex",
        expression=plans.render(plans.Atomic(question)) if single else planned.expression,
        steps=tuple(_list_steps(planned, found)),
        answers=_read_answers(row["answer"]),
        entities=planned.entities,
    )


def _list_steps(planned: GoldPlan, found: list[_Leaf]) -> Iterator[AnnotatedStep]:
    """Every call in the order of the leaves, its question filled in."""
    expression = plans.parse(planned.expression)
    sources = plans.bind(expression).sources
    for place, leaf in enumerate(plans.leaves(expression)):
        for call in found[planned.order[place]].calls:
            filled = {name: call.named[planned.order[source]] for name, source in sources[place].items()}
            yield AnnotatedStep(plans.substitute(leaf.text, filled), call.values, call.title)


def _collect(children: list[dict[str, Any]], found: list[_Leaf]) -> None:
    """Adds the leaves of one level: neighbours that name members of one list are one leaf."""
    waiting: list[tuple[str, _Call]] = []
    over: int | None = None
    for child in children:
        question = " ".join(child["question"].split())
        producer = over if waiting and _match_member(waiting[0][0], question) else _find_list(question, found)
        if waiting and producer != over:
            found.append(_gather_calls(waiting))
            waiting = []
        over = producer
        if over is None and child["decomposition"]:
            _collect(child["decomposition"], found)
            continue
        text, named = _mark_values(question, found, over)
        if over is not None and over not in named and waiting and (member := _match_member(waiting[0][0], question)):
            text, named = waiting[0][0], {over: member}
        call = _Call(named, _read_answers(child["answer"]), str((child.get("evidence") or {}).get("title", "")))
        if over is None:
            found.append(_Leaf(text, (call,)))
        else:
            waiting.append((text, call))
    if waiting:
        found.append(_gather_calls(waiting))


def _match_member(text: str, question: str) -> str | None:
    """What a question has in the place of the list's member, if it is worded as `text` is."""
    pattern = re.sub(r"\\#\d+", "(.{1,60}?)", re.escape(OWN.sub("its", text)), count=1)
    match = re.fullmatch(pattern, OWN.sub("its", question), re.IGNORECASE) if text.count("#") == 1 else None
    return match[1] if match else None


def _find_list(question: str, found: list[_Leaf]) -> int | None:
    """The nearest leaf with several values one of which the question names."""
    for place in range(len(found) - 1, -1, -1):
        values = found[place].values
        if len(values) > 1 and len(found[place].calls) == 1 and any(find_mention(value, question) for value in values):
            return place
    return None


def _mark_values(question: str, found: list[_Leaf], over: int | None) -> tuple[str, dict[int, str]]:
    """The question with `#n` where it names a value of an earlier leaf, and the values named."""
    named: dict[int, str] = {}
    for place in reversed(range(len(found))):
        values = found[place].values
        wanted = sorted(values, key=len, reverse=True) if place == over else values if len(values) == 1 else ()
        spelt = next((name for value in wanted if len(value) > 1 and (name := find_mention(value, question))), None)
        if spelt and "#" not in spelt:
            named[place] = spelt
            there = rf"(?<![\w#])(?:the )?{re.escape(spelt)}(?!\w)"
            question = re.sub(there, f"#{place + 1}", question, count=1, flags=re.IGNORECASE)
    return question, named


def _gather_calls(asked: list[tuple[str, _Call]]) -> _Leaf:
    """One leaf for questions that ask the same of each member. Raises DroppedError where they do not."""
    text, alike = Counter(OWN.sub("its", text) for text, _ in asked).most_common(1)[0]
    if alike < 2 or alike < MOSTLY * len(asked):
        raise DroppedError("the questions about the members of a list differ")
    return _Leaf(text, tuple(call for _, call in asked))


def _names_answer_early(text: str, question: str, earlier: list[_Leaf]) -> bool:
    """Whether a question names something that an earlier answer holds and the whole question does not."""
    answers = normalise(" ".join(value for leaf in earlier for value in leaf.values)).split()
    new = set(normalise(" ".join(find_capitalised(text))).split()) - set(normalise(question).split())
    return bool(new & set(answers))


def _list_names(text: str) -> tuple[str, ...]:
    listed = LISTED.fullmatch(text)
    noun = to_singular(find_head(re.sub(r"[\d,]+|#", "", listed[1] or listed[2]))) if listed and "#" not in text else ""
    return tuple(dict.fromkeys(name for name in (noun, *name_answer(text)) if name))


def _read_answers(value: Any) -> tuple[str, ...]:
    """The answers in a text, number, truth value, list, or object of one answer for each thing."""
    if isinstance(value, bool):
        return ("yes" if value else "no",)
    if isinstance(value, str | int | float):
        return (" ".join(str(value).split()),)
    values = list(value.values()) if isinstance(value, dict) else list(value)
    return tuple(dict.fromkeys(text for one in values for text in _read_answers(one)))
