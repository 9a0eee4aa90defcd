"""Operations over the answers of a plan's parts, done by code where their values have a common type.

What each one gives is told in `revelator.plans.operations`, how values compare in `revelator.computing.comparisons`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from revelator.computing.comparisons import are_alike, find_extremes, meets, read_amounts
from revelator.computing.values import normalise_country, parse_date, write_number, write_quantity
from revelator.plans.operations import CONDITIONAL, EXTREMES, Condition
from revelator.trace import join_answers

MOST_COMPARED = 10_000  # pairs of values: 0.2 s
SHOWN = 300  # characters of the values in a reason


@dataclass(frozen=True)
class Case:
    """One way through a part: the answers at its end, and on the way to it the value taken of each step, by index."""

    answers: tuple[str, ...]
    taken: Mapping[int, str]


@dataclass(frozen=True)
class Operand:
    """What a part of an operation came to: its last step, its cases, and what the question calls it, or ""."""

    step: int
    cases: tuple[Case, ...]
    label: str = ""

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(answer for case in self.cases for answer in case.answers)


def operate(
    name: str,
    operands: Sequence[Operand],
    chosen: Sequence[int] = (),
    condition: Condition | None = None,
    compared: Sequence[Case] = (),
) -> tuple[str, ...] | None:
    """The answers of an operation, () where nothing is left; None where its values have no common type or do not decide
    it. `chosen`: the numbers of the steps of which `argmin`, `argmax` and `where` answer with a value; `condition`:
    that of `where`, and `compared` the cases of the step that it compares with."""
    answers: Sequence[str] | None = None
    if condition:
        answers = _keep_parts(condition, operands, chosen, compared)
    elif name in EXTREMES:
        answers = _choose_part(name, operands, chosen)
    elif name != "judge":
        answers = _WORK[name](name, operands)
    return None if answers is None else tuple(dict.fromkeys(answers))


def explain(name: str, operands: Sequence[Operand]) -> str:
    """Why an operation has no answer."""
    answers = [answer for operand in operands for answer in operand.answers]
    said = join_answers(answers)[:SHOWN]
    if name in ("sum", "mean") or (name == "difference" and len(answers) == 2):
        return f"{name} takes numbers or quantities of one kind, and these are not: {said}"
    if name == "difference":
        return (
            f"difference takes two values, and there {'is one' if len(answers) == 1 else f'are {len(answers)}'}: {said}"
        )
    if name in CONDITIONAL:
        return f"whether the condition holds is open for some of these, or what they are about: {said}"
    if name in EXTREMES and find_extremes(answers, greatest=name == "argmax"):
        return (
            f"{name} has its value, but not what it is about: name steps, => {name} {{1}}, or the parts in the question"
        )
    if name in ("min", "max", *EXTREMES):
        return f"{name} takes values with one order, and these have none: {said}"
    if name == "intersect":
        return f"no value is the same in each part: {said}"
    if name == "equal":
        return f"whether these are the same is open: {said}"
    return f"the reader makes no answer of these, and the embedded one never does: {said}"


def keep_known(answers: Sequence[str], operands: Sequence[Operand]) -> list[str]:
    """Those of a judge's answers that parts are about, or that they gave: a condition keeps some of what there is."""
    cases = [case for operand in operands for case in operand.cases]
    known = [
        *(operand.label for operand in operands),
        *(text for c in cases for text in (*c.answers, *c.taken.values())),
    ]
    keys = set(map(normalise_country, known))
    return [answer for answer in answers if normalise_country(answer) in keys]


def _count(name: str, operands: Sequence[Operand]) -> Sequence[str]:
    return [str(len({normalise_country(answer) for operand in operands for answer in operand.answers}))]


def _add_up(name: str, operands: Sequence[Operand]) -> Sequence[str] | None:
    values = [answer for operand in operands for answer in operand.answers]
    amounts = read_amounts(values)
    if not amounts:
        return None
    total = sum(amounts[1:], amounts[0])
    return [write_quantity(total / len(amounts) if name == "mean" else total, values[0])]


def _subtract(name: str, operands: Sequence[Operand]) -> Sequence[str] | None:
    values = [answer for operand in operands for answer in operand.answers]
    if len(values) != 2:
        return None
    one, other = map(parse_date, values)
    if one and other:
        return [write_number(abs(one.year - other.year))]
    amounts = read_amounts(values)
    return [write_quantity(abs(amounts[0] - amounts[1]), values[0])] if amounts else None


def _choose_value(name: str, operands: Sequence[Operand]) -> Sequence[str] | None:
    values = [answer for operand in operands for answer in operand.answers]
    best = find_extremes(values, greatest=name == "max")
    return [values[best[0]]] if best else None


def _choose_part(name: str, operands: Sequence[Operand], chosen: Sequence[int]) -> Sequence[str] | None:
    cases = [(operand, case) for operand in operands for case in operand.cases]
    if any(len(case.answers) != 1 for _, case in cases):
        return None
    best = find_extremes([case.answers[0] for _, case in cases], greatest=name == "argmax")
    told = [_tell(*cases[place], chosen, several=len(operands) > 1) for place in best or ()]
    return [text for text in told if text] if told and all(told) else None


def _keep_parts(
    condition: Condition, operands: Sequence[Operand], chosen: Sequence[int], compared: Sequence[Case]
) -> Sequence[str] | None:
    """What the cases are about one of whose values meets the condition; these values themselves where a step is asked
    once, or names itself. The step that the condition compares with is none of the parts."""
    operands = [operand for operand in operands if operand.step + 1 not in condition.steps]
    several, found = len(operands) > 1, list[str]()
    for operand, case in [(one, case) for one in operands for case in one.cases]:
        known = _find_compared(condition, case, compared)
        met = {answer: meets(answer, known) if known else None for answer in case.answers}
        holding = [answer for answer, holds in met.items() if holds]
        named = [number - 1 for number in chosen if number - 1 in {*case.taken, operand.step}]
        gives_values = max(named) == operand.step if named else not (case.taken or (several and operand.label))
        if None in met.values() and (gives_values or not holding):
            return None
        if gives_values:
            found += holding
        elif holding:
            found.append(_tell(operand, case, chosen, several) or "")
    return None if "" in found else found


def _find_compared(condition: Condition, case: Case, compared: Sequence[Case]) -> Condition | None:
    """The condition of a case, with the value that its step has on the way to the case, or where it was asked about the
    same; else its only one. None where there is none, or several."""
    if not condition.steps:
        return condition
    if value := case.taken.get(condition.steps[0] - 1):
        return Condition(condition.sign, value)
    related = [(other, other.taken.keys() & case.taken.keys()) for other in compared]
    if any(shared for _, shared in related):
        compared = [other for other, shared in related if all(other.taken[k] == case.taken[k] for k in shared)]
    values = {answer for other in compared for answer in other.answers}
    return Condition(condition.sign, *values) if len(values) == 1 else None


def _tell(operand: Operand, case: Case, chosen: Sequence[int], several: bool) -> str | None:
    """What a case is about: its value of the last of the steps that are chosen, else the name of its part in
    the question, else what its last step was asked with."""
    known = {**case.taken, operand.step: case.answers[0]}
    if named := [number - 1 for number in chosen if number - 1 in known]:
        return known[max(named)]
    if several and operand.label:
        return operand.label
    return case.taken[max(case.taken)] if case.taken else None


def _judge_equal(name: str, operands: Sequence[Operand]) -> Sequence[str] | None:
    """Of a single part its cases are compared."""
    sets = [operand.answers for operand in operands]
    if len(sets) == 1:
        sets = [case.answers for case in operands[0].cases]
    if len(sets) < 2:
        return None
    first, *others = sets
    found = [_are_same(first, other) for other in others]
    if False in found:
        return ["no"]
    return None if None in found else ["yes"]


def _are_same(ones: Sequence[str], others: Sequence[str]) -> bool | None:
    """Whether two lists hold the same; None where they do in part, or where that cannot be known."""
    if len(ones) * len(others) > MOST_COMPARED:
        return None
    alike = [[are_alike(one, other) for other in others] for one in ones]
    if all(True in row for row in (*alike, *zip(*alike, strict=True))):
        return True
    return False if all(each is False for row in alike for each in row) else None


def _unite(name: str, operands: Sequence[Operand]) -> Sequence[str]:
    return _keep(operands, lambda key, sets: True)


def _intersect(name: str, operands: Sequence[Operand]) -> Sequence[str] | None:
    """Of a single part its cases are intersected. That lists share nothing is never said: they may only write the same
    names differently."""
    if len(operands) == 1:
        operands = [Operand(operands[0].step, (case,)) for case in operands[0].cases]
    return _keep(operands, lambda key, sets: all(key in one for one in sets)) or None


def _leave_out(name: str, operands: Sequence[Operand]) -> Sequence[str]:
    return _keep(operands, lambda key, sets: key in sets[0] and not any(key in one for one in sets[1:]))


def _keep(operands: Sequence[Operand], wanted: Callable[[str, Sequence[set[str]]], bool]) -> list[str]:
    """The answers whose keys are wanted, as the first part that has them writes them."""
    sets = [set(map(normalise_country, operand.answers)) for operand in operands]
    found: dict[str, str] = {}
    for operand in operands:
        for answer in operand.answers:
            found.setdefault(normalise_country(answer), answer)
    return [answer for key, answer in found.items() if wanted(key, sets)]


_WORK: dict[str, Callable[[str, Sequence[Operand]], Sequence[str] | None]] = {
    "count": _count,
    "sum": _add_up,
    "mean": _add_up,
    "difference": _subtract,
    "min": _choose_value,
    "max": _choose_value,
    "equal": _judge_equal,
    "union": _unite,
    "intersect": _intersect,
    "except": _leave_out,
}
