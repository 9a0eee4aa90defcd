"""A plan as a list of numbered steps: so people decompose questions (Break, MuSiQue), and so a language model that was
not trained for plans writes them best.

A step is asked, `{n}` in it being a value of step n and `{n*}` all of them, or it is an operation on the answers of
others. Which steps need which gives the plan its form. A plan is a tree, and a list may use a step twice: what two
parts of an operation share is then written into both, and the executor asks what has the same words once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revelator.plans.bnf import (
    Atomic,
    Dependent,
    Expression,
    Operation,
    find_placeholders,
    read_reference,
    replace_placeholders,
)
from revelator.plans.bnf import Sequence as ListOf
from revelator.plans.faults import fault
from revelator.plans.grammar import read_object
from revelator.plans.lexer import LIST
from revelator.plans.operations import CONDITIONAL, OPERATIONS, SIGNS, Condition

MOST_STEPS = 16  # of a plan, those that are written twice included
TOO_MANY = f"too many steps: more than {MOST_STEPS}, those that a plan writes twice included"


class UnspelledError(ValueError):
    """No plan says what a list of steps does; the message is the reason."""


@dataclass(frozen=True)
class Computed:
    """The operation that step `step` is, over what stands in its operand."""

    operand: Tree
    step: int


# A tree of step indices: an index, a list (independent), a pair (left, right) where right uses left, or an operation.
Tree = int | list["Tree"] | tuple["Tree", "Tree"] | Computed


def find_shape(references: Mapping[int, Sequence[int]]) -> Tree:
    """The shape that references draw: parts without a common step are independent, a last step depends on the rest."""
    parts = _split_components(references)
    if len(parts) > 1:
        return [find_shape(part) for part in parts]
    if len(references) == 1:
        return next(iter(references))
    used = {index for sources in references.values() for index in sources}
    last = [index for index in references if index not in used]
    rest = {
        index: [r for r in sources if r in references] for index, sources in references.items() if index not in last
    }
    return find_shape(rest), (last[0] if len(last) == 1 else list(last))


def _split_components(references: Mapping[int, Sequence[int]]) -> list[dict[int, Sequence[int]]]:
    group = {index: {index} for index in references}
    for index, sources in references.items():
        for source in sources:
            if group[index] is not group[source]:
                merged = group[index] | group[source]
                group.update(dict.fromkeys(merged, merged))
    distinct = {min(members): members for members in group.values()}
    return [{i: references[i] for i in sorted(distinct[first])} for first in sorted(distinct)]


@dataclass(frozen=True)
class PlanStep:
    """A step that is asked."""

    text: str

    @property
    def needs(self) -> tuple[int, ...]:
        """Indices, from 0, of the steps that it refers to, in order of first use."""
        found = (read_reference(name) for name, _, _ in find_placeholders(self.text))
        return tuple(dict.fromkeys(reference.number - 1 for reference in found if reference))


@dataclass(frozen=True)
class OperationStep:
    """A step that is computed from the steps `needs`, by index. `chosen`: those whose value is the answer; `each`: the
    step for each value of which it is computed; `condition`: that of `where`, whose own step is one of `needs`."""

    name: str
    needs: tuple[int, ...]
    chosen: tuple[int, ...] = ()
    each: int | None = None
    condition: Condition | None = None


Steps = Sequence[PlanStep | OperationStep]


def write_plan(steps: Steps) -> Expression:
    """The plan that answers with those steps that no other one uses. Raises UnspelledError where there is none."""
    for index, step in enumerate(steps):
        if any(not 0 <= need < index for need in step.needs):
            raise UnspelledError(f"step {index + 1} refers to a later step or to none")
    used = {need for step in steps for need in step.needs}
    ends = [index for index in range(len(steps)) if index not in used]
    if len(steps) > MOST_STEPS:  # each may double the plan
        raise UnspelledError(TOO_MANY)
    if any(isinstance(step, OperationStep) for step in steps):
        tree = _join([_build(steps, end) for end in ends])
    else:
        tree = find_shape({index: step.needs for index, step in enumerate(steps)})
    try:
        return _spell(steps, tree, [], iter(range(1, MOST_STEPS + 1)))[0]
    except StopIteration:
        raise UnspelledError(TOO_MANY) from None


def _build(steps: Steps, last: int) -> Tree:
    """The tree of a step with everything that it needs. What a question needs twice is written once, and so is what a
    condition compares; the parts of another operation have each their own."""
    step = steps[last]
    if isinstance(step, OperationStep) and step.each is not None:
        return _compute_for_each(_build(steps, step.needs[0]), step.each, last)
    if isinstance(step, OperationStep) and not (step.condition and step.condition.steps):
        return Computed(_join([_build(steps, need) for need in step.needs]), last)
    needed = _find_needed(steps, last)
    if any(isinstance(steps[k], OperationStep) for k in needed):
        nearest = [k for k in step.needs if not any(k in _find_needed(steps, other) for other in step.needs)]
        operand = _join([_build(steps, k) for k in nearest])
    else:
        operand = find_shape({k: steps[k].needs for k in sorted(needed)}) if needed else []
    if isinstance(step, OperationStep):
        return Computed(operand, last)
    return (operand, last) if needed else last


def _find_needed(steps: Steps, last: int) -> set[int]:
    """The steps that a step needs, and those that these need."""
    step = steps[last]
    each = {step.each} if isinstance(step, OperationStep) and step.each is not None else set()
    direct = {*step.needs, *each}
    return direct.union(*(_find_needed(steps, k) for k in direct))


def _compute_for_each(tree: Tree, each: int, step: int) -> Tree:
    """The operation on what stands to the right of step `each`."""
    if isinstance(tree, tuple):
        left, right = tree
        if _find_last(left) == each:
            return left, Computed(right, step)
        if isinstance(left, tuple) and _find_last(left[0]) == each:
            return left[0], Computed((left[1], right), step)
    raise UnspelledError("a value for each of something that it does not come from")


def _find_last(tree: Tree) -> int | None:
    while isinstance(tree, tuple):
        tree = tree[1]
    if isinstance(tree, Computed):
        return tree.step
    return tree if isinstance(tree, int) else None


def _join(parts: Sequence[Tree]) -> Tree:
    if len(parts) == 1:
        return parts[0]
    return [item for part in parts for item in (part if isinstance(part, list) else [part])]


def _spell(
    steps: Steps, tree: Tree, before: Sequence[Mapping[int, int]], numbers: Iterator[int]
) -> tuple[Expression, dict[int, int]]:
    """The plan, and the number of each step in it; `before` are the numbers of the left operands, nearest first."""
    if isinstance(tree, int):
        step = steps[tree]
        assert isinstance(step, PlanStep)
        text = replace_placeholders(step.text, lambda name: _refer(name, before))
        return Atomic(text), {tree: next(numbers)}
    if isinstance(tree, tuple):
        left, known = _spell(steps, tree[0], before, numbers)
        right, more = _spell(steps, tree[1], [known, *before], numbers)
        return Dependent(left, right), known | more
    if isinstance(tree, list):
        spelled = [_spell(steps, item, before, numbers) for item in tree]
        return ListOf(tuple(plan for plan, _ in spelled)), {k: n for _, known in spelled for k, n in known.items()}
    operation = steps[tree.step]
    assert isinstance(operation, OperationStep)
    operand, known = _spell(steps, tree.operand, before, numbers)
    chosen = tuple(known[k] for k in operation.chosen if k in known)
    condition = operation.condition and operation.condition.renumber(lambda number: known[number - 1])
    ended = Operation(operand, operation.name, chosen, condition)
    return ended, known | {tree.step: next(numbers)}


def _refer(name: str, before: Sequence[Mapping[int, int]]) -> str:
    reference = read_reference(name)
    if reference is None:
        return f"{{{name}}}"
    number = next((known[reference.number - 1] for known in before if reference.number - 1 in known), None)
    if number is None:
        raise UnspelledError("a step that stands in no left operand")
    return f"{{{number}{'*' * reference.is_all}}}"


# JSON

ASK, OPERATION, OF, SIGN, VALUE = "ask", "operation", "of", "sign", "value"
FORM = (
    f'a list of steps: {{"{ASK}": QUESTION}}, or {{"{OPERATION}": NAME, "{OF}": [NUMBERS OF STEPS]}}; where has '
    f'"{SIGN}" and "{VALUE}", too'
)


def schema() -> dict[str, Any]:
    """The JSON schema of the list."""
    text, number = {"type": "string"}, {"type": "array", "minItems": 1, "items": {"type": "integer"}}
    named = [name for name in OPERATIONS if name not in CONDITIONAL]
    compared = {OPERATION: {"enum": list(CONDITIONAL)}, OF: number, SIGN: {"enum": list(SIGNS)}, VALUE: text}
    fields = ({ASK: text}, {OPERATION: {"enum": named}, OF: number}, compared)
    steps = [{"type": "object", "additionalProperties": False, "required": [*own], "properties": own} for own in fields]
    return {"type": "array", "minItems": 1, "items": {"anyOf": steps}}


def read_steps(text: str) -> Expression | None:
    """The plan of a text that is a JSON list of steps, or was to be one; None for any other text. Raises
    ExpressionError."""
    if not LIST.match(text):
        return None
    try:
        value = json.loads(text, object_pairs_hook=read_object)
    except json.JSONDecodeError as error:
        raise fault(text, "steps", f"not JSON: {error.msg}", error.pos, error.pos + 1, FORM) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; lists within lists
        raise fault(text, "steps", f"no list of steps: {error}", 0, len(text), FORM) from error
    try:
        if not isinstance(value, list):
            raise UnspelledError("a list is wanted, also of one step")
        return write_plan([_read_step(step) for step in value])
    except UnspelledError as error:
        raise fault(text, "steps", str(error), 0, len(text), FORM) from error


def _read_step(step: Any) -> PlanStep | OperationStep:
    match step:
        case {"ask": str(asked)} if asked.strip() and len(step) == 1:
            return PlanStep(" ".join(asked.split()))
        case {"operation": str(name), "of": [_, *_] as of, **more} if name in OPERATIONS:
            fields = {SIGN, VALUE} if name in CONDITIONAL else set()
            if more.keys() == fields and all(type(number) is int for number in of):
                condition = _read_condition(more)
                needs = dict.fromkeys([*of, *(condition.steps if condition else ())])
                return OperationStep(name, tuple(number - 1 for number in needs), condition=condition)
        case {"operation": str(name)} if name not in OPERATIONS:
            raise UnspelledError(f"there is no operation {name[:50]!r}, but {', '.join(OPERATIONS)}")
    raise UnspelledError(f"this is no step: {json.dumps(step, ensure_ascii=False)[:100]}")


def _read_condition(more: Mapping[Any, Any]) -> Condition | None:
    if not more:
        return None
    sign, value = more[SIGN], more[VALUE]
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if type(value) not in (str, int, float) or not is_finite or str(sign) not in SIGNS or not str(value).strip():
        raise UnspelledError(f"this is no condition: {json.dumps(more, ensure_ascii=False)[:100]}")
    return Condition(sign, " ".join(str(value).split()))
