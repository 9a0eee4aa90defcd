"""What a plan that can be run leaves open: it says less than it could, and what it means is found in another way.

Advice refuses nothing. `which-result`: a name stands for one of several results, which are taken in their order
(`binding`); numbers say which. `one-question`: an operation that takes two values is done with one question,
and works only if that has two answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from revelator.plans.binding import bind, list_starts, spell_by_numbers, spell_number
from revelator.plans.bnf import (
    Atomic,
    Dependent,
    Expression,
    Operation,
    Sequence,
    Step,
    find_placeholders,
    list_steps,
    read_reference,
    render,
)
from revelator.plans.checking import JOIN_THEM, is_fanned_out, make_placer, with_spans
from revelator.plans.faults import Diagnostic, Span, sort_faults
from revelator.plans.graph import GraphStep
from revelator.plans.operations import PAIRED
from revelator.plans.trees import walk


def advise(expression: Expression) -> tuple[Diagnostic, ...]:
    """Advice on a plan that checks, left to right. Offsets are as in `check`. The first hint about a name has the whole
    plan by number."""
    expression = with_spans(expression)
    steps, bound = list_steps(expression), bind(expression).steps
    named = sort_faults(_find_open_names(expression, steps, bound))
    if named:
        hint = f"{named[0].hint}; by number the plan is: {render(spell_by_numbers(expression))}"
        named = (replace(named[0], hint=hint), *named[1:])
    return sort_faults([*named, *_find_lone_questions(steps, bound)])


def _find_open_names(
    expression: Expression, steps: tuple[Step, ...], bound: tuple[GraphStep, ...]
) -> Iterator[Diagnostic]:
    """The names whose left operand has several results, each where it first stands in its leaf."""
    places = {id(step): place for place, step in enumerate(steps)}
    for node in walk(expression):
        if type(node) is not Dependent or (count := _count_results(node.left)) < 2:
            continue
        for leaf in list_starts(node.right):
            step, locate = bound[places[id(leaf)]], make_placer(leaf)
            found: dict[str, Span] = {}
            for name, start, end in find_placeholders(leaf.text):
                if name in step.sources and not read_reference(name):
                    found.setdefault(name, (start, end))
            for name, (start, end) in found.items():
                number = spell_number(name, step)
                message = (
                    f"{{{name}}} may be any of {count} results, and is taken for that of step {step.sources[name] + 1}"
                )
                yield Diagnostic("which-result", message, *locate(start, end), f"write {number} for it")


def _count_results(node: Expression) -> int:
    while type(node) is Dependent:
        node = node.right
    return sum(map(_count_results, node.items)) if type(node) is Sequence else 1


def _find_lone_questions(steps: tuple[Step, ...], bound: tuple[GraphStep, ...]) -> Iterator[Diagnostic]:
    for place, step in enumerate(steps):
        if not (isinstance(step, Operation) and step.name in PAIRED and len(bound[place].parts) == 1):
            continue
        [end] = bound[place].parts
        if isinstance(steps[end], Atomic) and not is_fanned_out(place, steps, bound):
            message = f"{step.name} takes two values, and is done with one question: it must have two answers"
            yield Diagnostic("one-question", message, *step.place, JOIN_THEM)
