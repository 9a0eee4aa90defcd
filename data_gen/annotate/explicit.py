"""Gold decompositions as plans that say everything: each `#n` becomes the number of its step, and what is done with the
answers an operation. No placeholder needs a name.

A plan is a tree, and a decomposition may use a step twice. What two parts of an operation share is then written into
both: the executor asks what has the same words once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from data_gen.annotate.plan import REFERENCE, Tree, find_shape
from data_gen.questions import DroppedError
from revelator.plans import Atomic, Dependent, Expression, Operation, check
from revelator.plans import Sequence as ListOf

MOST_STEPS = 16  # of a plan, those that are written twice included


@dataclass(frozen=True)
class PlanStep:
    """A step that is asked: its words, in which `#n` is a value of step n, from 1, and `#ns` all of them."""

    text: str

    @property
    def needs(self) -> tuple[int, ...]:
        """Indices, from 0, of the steps that it refers to, in order of first use."""
        return tuple(dict.fromkeys(int(number) - 1 for number, _ in REFERENCE.findall(self.text)))


@dataclass(frozen=True)
class OperationStep:
    """A step that is computed from the steps `needs`, by index. `chosen`: those whose value is the answer; `each`: the
    step for each value of which it is computed."""

    name: str
    needs: tuple[int, ...]
    chosen: tuple[int, ...] = ()
    each: int | None = None


Steps = Sequence[PlanStep | OperationStep]


@dataclass(frozen=True)
class _Leaf:
    step: int


@dataclass(frozen=True)
class _Chain:
    left: _Tree
    right: _Tree


@dataclass(frozen=True)
class _List:
    items: tuple[_Tree, ...]


@dataclass(frozen=True)
class _Computed:
    operand: _Tree
    step: int


_Tree = _Leaf | _Chain | _List | _Computed


def write_explicit_plan(steps: Steps) -> Expression:
    """The plan whose answer is that of the last step. Raises DroppedError where there is none that checks."""
    tree = _build(steps, len(steps) - 1) if len(steps) <= MOST_STEPS else None  # each step may double it
    if tree is None or sum(1 for _ in _walk(tree)) > MOST_STEPS:
        raise DroppedError("a plan of too many steps")
    plan, _ = _spell(steps, tree, [], count(1))
    if faults := check(plan):
        raise DroppedError(f"the plan does not check ({faults[0].code})")
    return plan


def _build(steps: Steps, last: int) -> _Tree:
    """The tree of a step with everything that it needs."""
    step = steps[last]
    if isinstance(step, OperationStep):
        parts = [_build(steps, need) for need in step.needs]
        if step.each is not None:
            return _compute_for_each(parts[0], step.each, last)
        return _Computed(_join(parts), last)
    needed = _find_needed(steps, last)
    if not any(isinstance(steps[k], OperationStep) for k in needed):
        return _convert(find_shape({k: steps[k].needs for k in sorted(needed | {last})}))
    nearest = [k for k in step.needs if not any(k in _find_needed(steps, other) for other in step.needs)]
    return _Chain(_join([_build(steps, k) for k in nearest]), _Leaf(last))


def _find_needed(steps: Steps, last: int) -> set[int]:
    """The steps that a step needs, and those that these need."""
    step = steps[last]
    each = {step.each} if isinstance(step, OperationStep) and step.each is not None else set()
    direct = {*step.needs, *each}
    return direct.union(*(_find_needed(steps, k) for k in direct))


def _compute_for_each(tree: _Tree, each: int, step: int) -> _Tree:
    """The operation on what stands to the right of step `each`."""
    if isinstance(tree, _Chain):
        if _find_last(tree.left) == each:
            return _Chain(tree.left, _Computed(tree.right, step))
        if isinstance(tree.left, _Chain) and _find_last(tree.left.left) == each:
            return _Chain(tree.left.left, _Computed(_Chain(tree.left.right, tree.right), step))
    raise DroppedError("a value for each of something that it does not come from")


def _find_last(tree: _Tree) -> int | None:
    while isinstance(tree, _Chain):
        tree = tree.right
    return None if isinstance(tree, _List) else tree.step


def _join(parts: Sequence[_Tree]) -> _Tree:
    if len(parts) == 1:
        return parts[0]
    return _List(tuple(item for part in parts for item in (part.items if isinstance(part, _List) else (part,))))


def _convert(shape: Tree) -> _Tree:
    if isinstance(shape, int):
        return _Leaf(shape)
    if isinstance(shape, tuple):
        return _Chain(_convert(shape[0]), _convert(shape[1]))
    return _join([_convert(part) for part in shape])


def _walk(tree: _Tree) -> Iterator[int]:
    match tree:
        case _Leaf(step):
            yield step
        case _Chain(left, right):
            yield from _walk(left)
            yield from _walk(right)
        case _List(items):
            for item in items:
                yield from _walk(item)
        case _Computed(operand, step):
            yield from _walk(operand)
            yield step


def _spell(
    steps: Steps, tree: _Tree, before: Sequence[Mapping[int, int]], numbers: Iterator[int]
) -> tuple[Expression, dict[int, int]]:
    """The plan, and the number of each step in it; `before` are the numbers of the left operands, nearest first."""
    if isinstance(tree, _Leaf):
        step = steps[tree.step]
        assert isinstance(step, PlanStep)
        text = REFERENCE.sub(lambda mark: _refer(mark, before), step.text)
        return Atomic(text), {tree.step: next(numbers)}
    if isinstance(tree, _Chain):
        left, known = _spell(steps, tree.left, before, numbers)
        right, more = _spell(steps, tree.right, [known, *before], numbers)
        return Dependent(left, right), known | more
    if isinstance(tree, _List):
        spelled = [_spell(steps, item, before, numbers) for item in tree.items]
        return ListOf(tuple(plan for plan, _ in spelled)), {k: n for _, known in spelled for k, n in known.items()}
    operation = steps[tree.step]
    assert isinstance(operation, OperationStep)
    operand, known = _spell(steps, tree.operand, before, numbers)
    chosen = tuple(known[k] for k in operation.chosen if k in known)
    return Operation(operand, operation.name, chosen), known | {tree.step: next(numbers)}


def _refer(mark: re.Match[str], before: Sequence[Mapping[int, int]]) -> str:
    step = int(mark[1]) - 1
    number = next((known[step] for known in before if step in known), None)
    if number is None:
        raise DroppedError("a step that stands in no left operand")
    return f"{{{number}{'*' if mark[2] else ''}}}"
