"""Can a plan be executed? Two rule sets, one pass, diagnostics that point into the text.

`paper` is Appendix D of the QCompiler paper: a flag says whether a leaf must hold a placeholder (1) or must not (0);
the root has 0, a Dependent gives 0 to its left and 1 to its right, a list hands its own flag to each item.

`scoped` (the default) asks what execution needs. Each placeholder has a producer in scope: it stands to the right of
something, inside the right operand of a Dependent at any height. Each right operand holds a placeholder; wherever in
the operand it stands, it can take a result of the left. What `paper` accepts, `scoped` accepts.

By both, a number in a leaf names a step of a left operand, a leaf takes each value of a step or all of them, and an
operation has values that it can be done on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from revelator.errors import ExpressionError
from revelator.plans import logic
from revelator.plans.binding import bind, list_starts, spell_by_numbers, spell_number
from revelator.plans.bnf import (
    SPACED,
    Atomic,
    Dependent,
    Expression,
    Operation,
    Sequence,
    Step,
    find_placeholders,
    is_explicit,
    list_leaves,
    list_placeholders,
    list_steps,
    parse,
    quote,
    read_reference,
    render,
)
from revelator.plans.faults import Diagnostic, Span, sort_faults
from revelator.plans.graph import GraphStep
from revelator.plans.lexer import reads_as_itself
from revelator.plans.operations import COMPARING, ORDERING, PAIRED, SEVERAL, VERDICTS
from revelator.plans.trees import walk

Rules = Literal["scoped", "paper"]

MOST_LEAVES = 1_000  # of a plan that is checked; what one question may ask is far less (`Limits.leaves`)
DIVIDED = "divide it into several plans, and ask them one after the other"
LONE_BRACE = "a brace of this question has no partner"
JOIN_THEM = "join the questions with + in front of the =>, or ask one for each value of another: a * b {1}"
CLOSE_IT = "close it: {name} takes the earlier result; a brace that means itself is doubled"


def check(expression: Expression, rules: Rules = "scoped") -> tuple[Diagnostic, ...]:
    """Finds what is wrong with a plan, left to right; empty if it can be executed.

    A plan that was not parsed has no offsets of its own: they then refer to `render(expression)`.
    """
    if rules not in ("scoped", "paper"):
        raise ValueError(f"rules are scoped or paper, not {rules!r}")
    expression = with_spans(expression)
    if len(leaves := list_leaves(expression)) > MOST_LEAVES:
        message = f"the plan has {len(leaves):,} questions; {MOST_LEAVES:,} is the most"
        return (Diagnostic("too-many-leaves", message, *leaves[MOST_LEAVES].place, DIVIDED),)
    return sort_faults([*_find_faults(expression, rules), *_find_step_faults(expression)])


def find_misspelled_leaves(expression: Expression) -> tuple[Diagnostic, ...]:
    """Finds what a caller hardly meant as text: a brace without a partner, a placeholder that is none for the spaces in
    its braces, and a logical query that cannot be run, as `logic.check` says. Offsets are as in `check`."""
    leaves = list_leaves(with_spans(expression))
    return sort_faults(fault for leaf in leaves for fault in _find_misspellings(leaf))


def _find_misspellings(leaf: Atomic) -> Iterator[Diagnostic]:
    if _has_lone_brace(leaf):
        yield Diagnostic("lone-brace", LONE_BRACE, *leaf.place, CLOSE_IT)
    yield from _describe_spaces(leaf)
    for fault in _check_query(leaf.text):
        yield replace(fault, start=leaf.place[0], end=leaf.place[1])


def _describe_spaces(leaf: Atomic) -> Iterator[Diagnostic]:
    place = make_placer(leaf)
    for match in SPACED.finditer(leaf.text) if "{" in leaf.text else ():
        meant = f"{{{match[1] or match[2]}}}"
        message = f"a reference has no spaces in its braces: this is text, not {meant}"
        yield Diagnostic("spaced-reference", message, *place(*match.span()), f"write {meant}")


def _check_query(text: str) -> tuple[Diagnostic, ...]:
    if '"' not in text:  # a query has quoted terms
        return ()
    try:
        query = logic.parse(text)
    except ExpressionError:
        return ()
    return () if isinstance(query, logic.Term) else logic.check(query)


def _has_lone_brace(leaf: Atomic) -> bool:
    bare = leaf.text.replace("{{", "").replace("}}", "")
    return bare.count("{") != bare.count("}")


def with_spans(expression: Expression) -> Expression:
    if any(node.span is None for node in walk(expression)):
        return parse(render(expression))
    return expression


def _find_faults(node: Expression, rules: Rules, fed: bool = False) -> Iterator[Diagnostic]:
    """`fed`: by `scoped`, the node stands to the right of something; by `paper`, it is flagged 1."""
    if type(node) is Dependent:
        if rules == "scoped" and not node.right.has_placeholders:
            yield from _find_missing_dependency(node.right)
        yield from _find_faults(node.left, rules, fed and rules == "scoped")
        yield from _find_faults(node.right, rules, True)
    elif type(node) is Atomic:
        if not fed:
            yield from _find_erroneous_dependencies(node)
        elif rules == "paper" and not node.placeholders:
            yield from _find_missing_dependency(node)
    else:
        for child in node.children:
            yield from _find_faults(child, rules, fed)


def _find_erroneous_dependencies(leaf: Atomic) -> Iterator[Diagnostic]:
    place = make_placer(leaf)
    for name, start, end in find_placeholders(leaf.text):
        if read_reference(name):
            continue
        message = f"no earlier question gives {{{name}}} its value"
        hint = f"put the question that finds {{{name}}} before this one with *, or write the value instead"
        yield Diagnostic("erroneous-dependency", message, *place(start, end), hint)


def _find_step_faults(expression: Expression) -> Iterator[Diagnostic]:
    """What is wrong with the numbers of steps, and with operations."""
    if not is_explicit(expression):
        return
    steps = list_steps(expression)
    bound = bind(expression).steps
    for place, step in enumerate(steps):
        if isinstance(step, Operation):
            yield from _find_operation_faults(step, place, steps, bound)
        else:
            yield from _find_reference_faults(step, place, len(steps), bound[place])


def _find_reference_faults(leaf: Atomic, place: int, count: int, step: GraphStep) -> Iterator[Diagnostic]:
    locate_part = make_placer(leaf)
    taken: dict[int, bool] = {}
    for name, start, end in find_placeholders(leaf.text):
        reference, span = read_reference(name), locate_part(start, end)
        if reference is None and name not in step.sources:
            continue
        number = reference.number if reference else step.sources[name] + 1
        if not 1 <= number <= count:
            hint = f"steps are numbered from 1 as they stand in the plan; there are {count}"
            yield Diagnostic("no-such-step", f"there is no step {number}", *span, hint)
        elif number > place:
            message = f"step {number} is not answered before this one, which is step {place + 1}"
            yield Diagnostic("later-step", message, *span, "name a step that stands further left, in front of a *")
        elif name not in step.sources:
            hint = "join the two with * in place of +, or write the value itself"
            yield Diagnostic("parallel-step", f"step {number} is asked beside this one, not before it", *span, hint)
        elif taken.setdefault(number, step.takes_all(name)) != step.takes_all(name):
            hint = f"write {{{number}}} to ask for each value, or {{{number}*}} to ask for all at once"
            yield Diagnostic("each-and-all", f"one question takes each value of step {number} and all", *span, hint)


def _find_operation_faults(
    operation: Operation, place: int, steps: tuple[Step, ...], bound: tuple[GraphStep, ...]
) -> Iterator[Diagnostic]:
    parts, inside = [steps[part] for part in bound[place].parts], bound[place].inside
    condition = operation.condition
    compared = condition.steps if condition else ()
    outside = [number for number in (*operation.references, *compared) if number - 1 not in inside]
    if outside:
        message = f"step {outside[0]} is not one of those that {operation.name} is done with"
        hint = f"name steps {inside[0] + 1} to {place}"
        yield Diagnostic("operation-reference", message, *operation.place, hint)
    is_unknown = condition and not compared and list_placeholders(condition.value)
    if is_unknown or [number - 1 for number in compared] == [*bound[place].parts]:
        message = "a condition compares with a value, or with that of another step by its number"
        hint = "write the value itself, or where > {3} for what step 3 answers"
        yield Diagnostic("condition-reference", message, *operation.place, hint)
    if operation.name in SEVERAL and len(parts) < 2:
        message, hint = f"{operation.name} needs two parts or more", "join them with + in front of the =>"
        yield Diagnostic("one-part", message, *operation.place, hint)
    elif operation.name in COMPARING and len(parts) < 2 and not is_fanned_out(place, bound):
        message = f"{operation.name} compares what several questions answer, and this one is asked once"
        yield Diagnostic("one-part", message, *operation.place, JOIN_THEM)
    if operation.name in ORDERING and any(type(part) is Operation and part.name in VERDICTS for part in parts):
        message = f"{operation.name} cannot be done with yes or no"
        hint = "give it dates, numbers or quantities; judge takes any answers"
        yield Diagnostic("mixed-types", message, *operation.place, hint)


def _find_missing_dependency(node: Expression) -> Iterator[Diagnostic]:
    if spaced := [fault for leaf in list_leaves(node) for fault in _describe_spaces(leaf)]:
        yield from spaced
        return
    message = "this question stands after * but uses no earlier result"
    hint = "write {name} where the earlier result belongs, or join the questions with + if they are independent"
    if any(map(_has_lone_brace, list_leaves(node))):
        message, hint = LONE_BRACE, CLOSE_IT
    yield Diagnostic("missing-dependency", message, *node.place, hint)


def is_fanned_out(operation: int, bound: tuple[GraphStep, ...]) -> bool:
    """Whether the only part of an operation may be asked several times: a step of it is asked for each value of an
    earlier step of it. An operation inside counts once for all that it is done with."""
    first, [end] = bound[operation].inside[0], bound[operation].parts
    inside = bound[end].inside or (end,)
    return any(
        not bound[each].takes_all(name) and first <= step < inside[0]
        for each in inside
        for name, step in bound[each].sources.items()
    )


def make_placer(leaf: Atomic) -> Callable[[int, int], Span]:
    """Offsets of part of a leaf's text; those of the whole leaf where white space or escapes make them uncertain."""
    whole = first, last = leaf.place
    surplus = last - first - len(leaf.text)
    if surplus == 2 and not reads_as_itself(leaf.text) and quote(leaf.text) == f'"{leaf.text}"':
        first += 1  # the opening quote
    elif surplus:
        return lambda start, end: whole
    return lambda start, end: (first + start, first + end)


# What a plan that can be run leaves open: it says less than it could, and what it means is found in another way.


def advise(expression: Expression) -> tuple[Diagnostic, ...]:
    """Advice on a plan that checks, left to right; it refuses nothing. Offsets are as in `check`.

    `which-result`: a name stands for one of several results, which are taken in their order (`binding`); numbers say
    which, and the first hint about a name has the whole plan by number. `one-question`: an operation that takes two
    values is done with one question, and works only if that has two answers.
    """
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
        if isinstance(steps[end], Atomic) and not is_fanned_out(place, bound):
            message = f"{step.name} takes two values, and is done with one question: it must have two answers"
            yield Diagnostic("one-question", message, *step.place, JOIN_THEM)
