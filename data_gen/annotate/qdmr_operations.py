"""QDMR (Wolfson et al., 2020) as plans that say everything: steps of values are asked, operators are operations.

Break names the operator of each step. The words behind an operator are those of its annotators' guidelines, a small
closed vocabulary. What no plan can say is given up with its reason: to sort, to divide, and to keep those of a list
whose value passes that of another step, unless that ends the question, which the reader then judges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from data_gen.annotate.plan import mark_numbers
from data_gen.annotate.qdmr import AUXILIARY, REFERRED, R, StepWords, Writer, split_steps
from data_gen.annotate.wording import WORDS
from data_gen.questions import DroppedError
from revelator.plans.operations import Condition
from revelator.plans.steps import OperationStep, PlanStep

ENDS = {word: end for end in ("max", "min") for word in WORDS[end].split()}
AGGREGATES = {"number": "count", "sum": "sum", "total": "sum", "average": "mean", "mean": "mean", **ENDS}
_AGGREGATE = re.compile(rf"(?:the )?(\w+)(?: number)?(?: of)?(?: the)? {R}(?: for each (?:of )?(?:the )?{R})?", re.I)
_SUPERLATIVE = re.compile(rf"{R} where {R} (?:is|are|was) (?:the )?(\w+)", re.I)
SIGNS = {"at least": ">=", "at most": "<=", "equal to": "=", "": "=", "not": "!=", "max": ">", "min": "<"}
SIGNS |= dict.fromkeys(("above", "over", "after"), ">") | dict.fromkeys(("below", "under", "before"), "<")
_CONDITION = re.compile(
    rf"{R} where (?:one of )?{R}(?: {AUXILIARY})? (?:({'|'.join(filter(None, SIGNS))}|\w+ than) )?(.+)", re.I
)
_COMPARISON = re.compile(
    rf"which (?:of {R}, {R} )?{AUXILIARY} (?:the )?(\w+)(?: (?:of|between|among) [#\d ,andor]+)?", re.I
)
_SHARED = re.compile(rf"(?:.* )?(?:in |of )?both (?:of )?{R} and {R}|{R} that (?:is|are) (?:also )?(?:in )?{R}", re.I)
_APART = re.compile(rf"(?:the )?(difference|sum) (?:of|between) {R} (?:and|,) {R}", re.I)
_SAME = re.compile(rf"(?:if|is|are) (?:the )?{R} (?:is|are)? ?(?:the )?(?:same as|equal to) {R}", re.I)
JUDGED = ("boolean", "comparative", "comparison")  # what the reader decides where it ends a question
ASKED = ("select", "project", "filter", "discard", "None")
UNSAID = {"sort": "a list in order", "comparative": "those whose value passes that of another step"}


def read_plan_steps(decomposition: str, operators: Sequence[str]) -> list[PlanStep | OperationStep]:
    """The steps of a plan, the last one its answer; `operators` are Break's names, one a step. Raises DroppedError."""
    steps = split_steps(decomposition)
    if len(operators) != len(steps):
        raise DroppedError("a decomposition whose operators are not one a step")
    writer, computed = Writer(steps), dict[int, OperationStep]()
    for k, (text, name) in enumerate(zip(steps, operators, strict=True), start=1):
        if operation := read_operation(text, name, k == len(steps)):
            computed[k] = operation
            writer.words[k] = StepWords("", many=writer.words[(operation.chosen or operation.needs)[0]].many)
        elif name in ASKED:
            writer.words[k] = writer.write_step(k, text)
        else:
            raise DroppedError(f"an operator that no plan has: {UNSAID.get(name, name)}")
    uses = {k: [*one.needs, *([one.each] if one.each else [])] for k, one in computed.items()}
    numbers = writer.number_needed(uses)
    place = {k: number - 1 for k, number in numbers.items()}

    def move(one: OperationStep) -> OperationStep:
        chosen, needs = (tuple(place[k] for k in of if k in place) for of in (one.chosen, one.needs))
        return replace(one, needs=needs, chosen=chosen, each=place.get(one.each or 0))

    return [
        move(computed[k]) if k in computed else PlanStep(mark_numbers(writer.words[k].question, numbers))
        for k in numbers
    ]


def read_operation(text: str, operator: str, is_last: bool) -> OperationStep | None:
    """The operation that a step of an operator is, with the numbers of steps as they stand; None for one that is
    asked."""
    referred = tuple(dict.fromkeys(map(int, REFERRED.findall(text))))
    match operator:
        case "aggregate" | "group":
            if (found := _AGGREGATE.fullmatch(text)) and (name := AGGREGATES.get(found[1].lower())):
                return OperationStep(name, (int(found[2]),), each=int(found[3]) if found[3] else None)
        case "superlative" | "comparative":
            if (found := _SUPERLATIVE.fullmatch(text)) and (end := ENDS.get(found[3].lower())):
                return OperationStep(f"arg{end}", (int(found[2]),), (int(found[1]),))
            if (found := _CONDITION.fullmatch(text)) and (condition := _read_condition(found[3] or "", found[4])):
                return OperationStep("where", (int(found[2]),), (int(found[1]),), condition=condition)
        case "comparison":
            if (found := _COMPARISON.fullmatch(text)) and (end := ENDS.get(found[3].lower())) and len(referred) > 1:
                return OperationStep(f"arg{end}", referred)
        case "union":
            if len(referred) > 1:
                return OperationStep("union", referred)
        case "intersection":
            if _SHARED.fullmatch(text) and len(referred) == 2:
                return OperationStep("intersect", referred)
        case "discard":
            if re.fullmatch(rf"{R} besides {R}", text, re.I):
                return OperationStep("except", referred)
        case "arithmetic":
            if found := _APART.fullmatch(text):
                return OperationStep(found[1].lower(), referred)
        case "boolean":
            if _SAME.fullmatch(text) and len(referred) == 2:
                return OperationStep("equal", referred)
    if is_last and operator in JUDGED and referred:
        return OperationStep("judge", referred)
    return None


def _read_condition(than: str, value: str) -> Condition | None:
    """The condition of "at least", "two"; None for one that compares with another step, or in no known way."""
    sign = SIGNS.get(ENDS.get(than.lower().removesuffix(" than"), than.lower()))
    value = re.sub(r"^(?:the|an?) ", "", value)
    return None if sign is None or REFERRED.search(value) or value.startswith("same") else Condition(sign, value)
