"""How a question ends, said by its plan: the operation of each ending, and which ending a comparison has.

A source that tells the answers of a comparison's leaves does not tell what is done with them. It is the one thing that,
done by code, gives the gold answer; no word of the question is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_gen.questions import DroppedError
from revelator.computing.operations import Case, Operand, operate
from revelator.plans import Dependent, Expression, Operation, bind, list_leaves, list_steps, spell_by_numbers
from revelator.plans import Sequence as ListOf
from revelator.plans.bnf import renumber
from revelator.plans.operations import EXTREMES, OPERATIONS, Condition
from revelator.plans.steps import PlanStep, UnspelledError, write_plan
from revelator.scores import normalise
from revelator.trace import join_answers

PLAN_ALONE = ("none", "list", "both")  # what the plan answers is the answer
EQUAL, UNKNOWN = "equal", "unknown"
SIGNS = {"is": "=", "after": ">"}  # of endings with an argument: `count_is red`, `which_after 1980`
UNSAID = {
    "either": "a condition on two lists together",
    UNKNOWN: "its answers leave the operation open",
}


def is_said(ending: str) -> bool:
    """Whether a plan can say this ending."""
    return ending.partition(" ")[0] not in UNSAID


def end_plan(plan: Expression, ending: str) -> Expression:
    """The plan by numbers, with the operation of an ending (`data_gen.questions.ENDINGS`, or ""). Raises DroppedError
    for one that no operation says."""
    name, _, argument = ending.partition(" ")
    if not is_said(ending):
        raise DroppedError(f"no plan says its ending: {UNSAID[name]}")
    if not name or name in PLAN_ALONE:
        return spell_by_numbers(plan)
    operation, _, of = name.partition("_")
    plan = spell_by_numbers(plan)
    if of in SIGNS:
        return _end_with_condition(plan, Condition(SIGNS[of], argument), operation)
    assert operation in OPERATIONS, name
    change = {"last": _drop_last, "count": _count_last, "difference": _subtract_pairs}.get(of)
    ended = Operation(_move_numbers(plan, change(plan)) if change else plan, operation)
    if operation in EXTREMES and of in ("", "count"):
        [operand] = ended.children
        return Operation(operand, operation, _find_asked_about(ended))
    return ended


def _end_with_condition(plan: Expression, condition: Condition, operation: str) -> Expression:
    """What the last leaf of a plan was asked about, where its answer meets a condition, or how many these are."""
    about = _find_asked_about(Operation(plan, "where", (), condition))
    ended = Operation(plan, "where", about, condition)
    return Operation(ended, operation) if operation == "count" else ended


def _move_numbers(before: Expression, after: Expression) -> Expression:
    """`after`, which has steps of `before` at other places, with their numbers there."""
    places = {id(step): number for number, step in enumerate(list_steps(after), start=1)}
    moved = {number: places.get(id(step), number) for number, step in enumerate(list_steps(before), start=1)}
    return renumber(after, moved.__getitem__)


def _drop_last(plan: Expression) -> Expression:
    """The plan without its last leaf, which asks of the answers before it. Raises DroppedError where it takes none."""
    if not bind(plan).sources[-1]:
        raise DroppedError("no plan says its ending: its last step asks of no answer before it")
    try:
        return write_plan([PlanStep(leaf.text) for leaf in list_leaves(plan)[:-1]])
    except UnspelledError as error:
        raise DroppedError(f"no plan says its ending: {error}") from None


def _count_last(plan: Expression) -> Expression:
    """The plan with a count of what each of its last leaves answers."""
    if isinstance(plan, Dependent):
        return Dependent(plan.left, _count_last(plan.right))
    if isinstance(plan, ListOf):
        return ListOf(tuple(map(_count_last, plan.items)))
    return Operation(plan, "count")


def _subtract_pairs(plan: Expression) -> Expression:
    """The plan with the difference of each two of its branches."""
    items = plan.children
    pairs = zip(items[::2], items[1::2], strict=True)
    return ListOf(tuple(Operation(ListOf(pair), "difference") for pair in pairs))


def _find_asked_about(ended: Expression) -> tuple[int, ...]:
    """The numbers of the steps whose values the last leaves of an ended plan are asked with."""
    steps = bind(ended).steps
    last = [steps[end].parts[0] if steps[end].parts else end for end in steps[-1].parts]
    return tuple(sorted({source + 1 for leaf in last for source in steps[leaf].sources.values()}))


@dataclass(frozen=True)
class Branch:
    """A branch of a comparison: the name that it begins with, and the gold answers of each of its leaves."""

    name: str
    answers: tuple[tuple[str, ...], ...]


Compared = list[tuple[str, tuple[str, ...]]]  # what each branch is called, with its values


def choose_ending(branches: Sequence[Branch], gold: str) -> str:
    """The ending of a comparison whose answer is `gold`; "unknown" where none gives it, or several do.

    Of yes and no it is `equal`, unless that says the opposite. Where lists share only some of their values it says
    nothing, and the executor leaves it to the judge; a plan cannot know this before it is run.
    """
    named = [(branch.name, branch.answers[-1]) for branch in branches]
    if len(named) < 2:
        return UNKNOWN
    if gold in ("yes", "no"):
        return EQUAL if _operate(EQUAL, named) in (None, (gold,)) else UNKNOWN
    found = [
        f"{operation}{of}"
        for of, compared in _list_compared(branches, named).items()
        for operation in EXTREMES
        if [*map(normalise, _operate(operation, compared) or ())] == [normalise(gold)]
    ]
    return found[0] if len(found) == 1 else UNKNOWN


def _list_compared(branches: Sequence[Branch], named: Compared) -> Mapping[str, Compared]:
    """What may be compared, by what the ending adds to its operation.

    Two branches of one name are two values of it, which are subtracted.
    """
    names, ends = zip(*named, strict=True)
    if names[::2] == names[1::2]:
        pairs = zip(names[::2], named[::2], named[1::2], strict=True)
        return {"_difference": [(name, _operate("difference", pair) or ()) for name, *pair in pairs]}
    if len(set(names)) < len(names):
        return {}
    asked = [join_answers(branch.answers[-2]) if len(branch.answers) > 1 else branch.name for branch in branches]
    found = {"": [*zip(asked, ends, strict=True)]}
    return found | {"_source": named} if asked != [*names] else found


def _operate(name: str, compared: Compared) -> tuple[str, ...] | None:
    """What an operation makes of the values of branches."""
    operands = [Operand(step, (Case(values, {}),), called) for step, (called, values) in enumerate(compared)]
    return operate(name, operands)
