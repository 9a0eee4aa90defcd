"""The language bnf: the plan of a question as a value, read from text and written to it (QCompiler, section 3.2).

`Atomic` is a question that is asked as it stands, `Dependent` a question whose right side needs results of its left,
`Sequence` questions that do not need one another, `Operation` what is done with the answers of a part.
Leaves and operations are the steps of a plan, numbered from 1 as they stand in its text, and `{2}` in a leaf stands for
what step 2 answers: the leaf is asked once for each value, and with `{2*}` for all of them at once. The constructors
refuse, with ValueError, what has another spelling (a sequence of fewer than two items, a sequence straight inside a
sequence) and what is deeper than `MAX_DEPTH`: equal plans are equal values, and every walk over a plan may recurse.

`parse` hands the tokens of `lexer` to the parser of `parsing`; `render` writes the canonical text, which `bnf.lark`
defines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count
from typing import Any, NamedTuple

from revelator.errors import ExpressionError
from revelator.plans.faults import fault
from revelator.plans.grammar import BREAKS, write_string
from revelator.plans.lexer import PLAIN, reads_as_itself, split_plan_text
from revelator.plans.operations import CHOOSING, CONDITIONAL, OPERATIONS, Condition
from revelator.plans.parsing import MisplacedError, Token, parse_tokens
from revelator.plans.trees import Joined, Node, cover, join, walk, walk_up

MAX_CHARACTERS = 1_000_000
NAME = r"\d{1,64}\*|\w(?:[\w .'-]{0,62}\w)?"
_NUMBER = re.compile(r"(\d+)(\*?)", re.ASCII)
_BRACED = re.compile(rf"(?<!\{{)(\{{++)({NAME})(\}}++)")
SPACED = re.compile(rf"(?<!\{{)\{{(?:\s+({NAME})\s*|({NAME})\s+)\}}(?!\}})")
_PLACEHOLDER = re.compile(rf"(?<!\{{)\{{({NAME})\}}(?!\}})")


@dataclass(frozen=True, slots=True, repr=False)
class _Question(Node):
    """What the four kinds share."""

    @property
    def has_placeholders(self) -> bool:
        return any(leaf.placeholders for leaf in list_leaves(self))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"parse({render(self)!r})"  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, repr=False)
class Atomic(_Question):
    """A question for one retrieval step. `{name}` or `{2}` in its text is a placeholder for an earlier result."""

    text: str
    placeholders: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        Node.__post_init__(self)
        object.__setattr__(self, "placeholders", list_placeholders(self.text))


@dataclass(frozen=True, slots=True, repr=False)
class Dependent(_Question):
    """`left * right`: `right` uses results of `left`. `a * b * c` is Dependent(Dependent(a, b), c)."""

    left: Expression
    right: Expression

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True, repr=False)
class Sequence(_Question, Joined):
    """`a + b + …`: two or more questions in parallel, none of them a sequence itself."""

    items: tuple[Expression, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple(self.items))
        Joined.__post_init__(self)

    @property
    def children(self) -> tuple[Expression, ...]:
        return self.items


@dataclass(frozen=True, slots=True, repr=False)
class Operation(_Question):
    """`operand => name`: the answers of a part become one. `references` are the numbers of the steps whose value is the
    answer, of an operation that may name them; `condition` is that of `where`."""

    operand: Expression
    name: str
    references: tuple[int, ...] = ()
    condition: Condition | None = None

    def __post_init__(self) -> None:
        if self.name not in OPERATIONS:
            raise ValueError(f"there is no operation {self.name!r}")
        if self.references and self.name not in CHOOSING:
            raise ValueError(f"{self.name} names no steps")
        if (self.condition is None) == (self.name in CONDITIONAL):
            raise ValueError(f"{self.name} has {'a' if self.name in CONDITIONAL else 'no'} condition")
        Node.__post_init__(self)

    @property
    def children(self) -> tuple[Expression, ...]:
        return (self.operand,)


Expression = Atomic | Dependent | Sequence | Operation
Step = Atomic | Operation


def list_leaves(expression: Expression) -> tuple[Atomic, ...]:
    """The atomic questions, left to right."""
    return tuple(node for node in walk(expression) if type(node) is Atomic)


def list_steps(expression: Expression) -> tuple[Step, ...]:
    """The leaves and the operations as they stand in the text; a step is known by its index in this tuple, and by the
    number after it in a plan."""
    return tuple(node for node in walk_up(expression) if isinstance(node, Step))


def is_explicit(expression: Expression) -> bool:
    """Whether a plan names steps by number or spells an operation: nothing of it is then guessed from words."""
    return any(
        any(map(read_reference, node.placeholders)) if type(node) is Atomic else type(node) is Operation
        for node in walk(expression)
    )


def name_route(expression: Expression) -> str:
    """The route that a plan takes: of one question, of questions that do not need one another, or of several steps."""
    if isinstance(expression, Atomic):
        return "single"
    is_list = isinstance(expression, Sequence) and all(isinstance(item, Atomic) for item in expression.items)
    return "compound" if is_list else "complex"


class Reference(NamedTuple):
    """What `{2}` or `{2*}` says."""

    number: int
    is_all: bool


def read_reference(name: str) -> Reference | None:
    """The step that a placeholder names by its number, or None."""
    found = _NUMBER.fullmatch(name)
    return Reference(int(found[1]), bool(found[2])) if found else None


def find_placeholders(text: str) -> Iterator[tuple[str, int, int]]:
    """Finds each `{name}` of a text with its offsets; `{{name}}` is text."""
    for match in _PLACEHOLDER.finditer(text):
        yield match[1], match.start(), match.end()


def list_placeholders(text: str) -> tuple[str, ...]:
    """Distinct placeholder names of a text, in order of first use."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text))) if "{" in text else ()


def blank_placeholders(text: str) -> str:
    """Replaces each `{name}` by a space; other braces stay."""
    return _PLACEHOLDER.sub(" ", text) if "{" in text else text


def replace_placeholders(text: str, find: Callable[[str], str]) -> str:
    """Replaces each `{name}`, braces and all, by what `find` gives for the name."""
    return _PLACEHOLDER.sub(lambda match: find(match[1]), text)


def rewrite(
    expression: Expression, write: Callable[[Atomic, int], str], number: Callable[[int], int] = lambda number: number
) -> Expression:
    """The same plan with other texts: `write` is given each leaf with its index among the steps, and `number` the
    number of each step that an operation names."""
    places = count()

    def visit(node: Expression) -> Expression:
        if type(node) is Atomic:
            return Atomic(write(node, next(places)))
        parts = [visit(child) for child in node.children]
        if type(node) is Operation:
            next(places)
            condition = node.condition and node.condition.renumber(number)
            return Operation(parts[0], node.name, tuple(map(number, node.references)), condition)
        return Dependent(*parts) if type(node) is Dependent else Sequence(tuple(parts))

    return visit(expression)


def renumber(expression: Expression, number: Callable[[int], int]) -> Expression:
    """The same plan with another number for each step that it names."""

    def spell(name: str) -> str:
        found = read_reference(name)
        return f"{{{number(found.number)}{'*' * found.is_all}}}" if found else f"{{{name}}}"

    return rewrite(expression, lambda leaf, _: replace_placeholders(leaf.text, spell), number)


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Replaces each `{name}` that has a value by it, and `{{name}}` by a literal `{name}`.

    Braces inside values are not read again.
    """
    return replace_marks(_BRACED, text, values.get) if "{" in text else text


def escape(text: str) -> str:
    """Writes `{name}` so that it is no placeholder: `substitute` gives the text back."""
    return _BRACED.sub(lambda match: f"{{{match[0]}}}", text) if "{" in text else text


def measure_substituted(text: str, values: Mapping[str, str]) -> int:
    """Bounds the number of characters of `substitute(text, values)` without building it."""
    return len(text) + sum(len(values.get(name, "")) for _, name, _ in _BRACED.findall(text))


def unbrace_placeholders(text: str) -> str:
    """Removes the braces of each `{name}`: the text of a leaf that gets no values."""
    while names := list_placeholders(text):
        text = substitute(text, {name: name for name in names})
    return text


def replace_marks(marks: re.Pattern[str], text: str, find: Callable[[str, str], str]) -> str:
    """Replaces each mark (opening brackets, name, closing brackets): a single one by what `find(name, mark)` gives for
    it, a doubled one by one with one bracket less on each side."""

    def replace_one(match: re.Match[str]) -> str:
        opening, name, closing = match.groups()
        if len(opening) > 1 and len(closing) > 1:
            return f"{opening[1:]}{name}{closing[1:]}"
        return find(name, match[0]) if len(opening) == len(closing) == 1 else match[0]

    return marks.sub(replace_one, text)


def parse(text: str) -> Expression:
    """Parses `text` into a plan with spans, in linear time. Raises ExpressionError."""
    if len(text) >= MAX_CHARACTERS:
        message = f"an expression is shorter than {MAX_CHARACTERS:,} characters; this one is not"
        raise fault(text, "too-long", message, 0, len(text), "split it into several expressions")
    found = split_plan_text(text)
    if not found:
        raise fault(text, "empty", "there is no question here", 0, len(text), 'write one; an empty text is ""')
    try:
        return parse_tokens(found, MAKERS)
    except MisplacedError as error:
        raise _make_misplaced_error(text, error.token, error.before) from None
    except ValueError as error:
        hint = "join steps that do not need one another with +"
        raise fault(text, "too-deep", str(error), 0, len(text), hint) from None


MAKERS: dict[str, Callable[..., Expression]] = {
    "TEXT": Atomic,
    "TIGHT": lambda parts: reduce(lambda left, right: Dependent(left, right, span=cover([left, right])), parts),
    "LOOSE": lambda parts: join(Sequence, parts, cover(parts)),
    "CLOSE": lambda node, span: replace(node, span=span),
    "OPERATION": lambda operand, token: Operation(operand, *token.value, span=(operand.place[0], token.end)),
}


def _make_misplaced_error(text: str, token: Token, before: Token) -> ExpressionError:
    """An operand is missing before `token`."""
    if before.kind == "OPERATION":
        hint = "put what it is done with in parentheses, together with it: (a + b => union) * c"
        if before.value[2]:
            hint = f'{hint}; a {token.value} in a value stands in quotes: where = "R + D"'
        return fault(text, "operation-inside", "an operation ends its part of the plan", token.start, token.end, hint)
    if before.kind == "OPEN" and token.kind == "CLOSE":
        hint = "write a question in it, or quote the text"
        return fault(text, "empty-group", "there is nothing in this group", before.start, token.end, hint)
    side, operator = ("before", token) if token.kind in ("LOOSE", "TIGHT", "ARROW") else ("after", before)
    what = "operation" if operator.kind == "ARROW" and side == "after" else "question"
    message = f"there is no {what} {side} this {operator.value}"
    hint = f'write one, remove the {operator.value}, or quote the text: "a {operator.value} b"'
    return fault(text, "dangling-operator", message, operator.start, operator.end, hint)


def render(expression: Expression) -> str:
    """Writes the canonical text of a plan, on one line."""
    match expression:
        case Dependent(left, right):
            grouped = Sequence | Operation
            return f"{_render_operand(left, grouped)} * {_render_operand(right, grouped | Dependent)}"
        case Sequence(items):
            return " + ".join(_render_operand(item, Operation) for item in items)
        case Operation(operand):
            return f"{_render_operand(operand, Operation)} => {spell_operation(expression)}"
    return quote(expression.text)


def spell_operation(operation: Operation) -> str:
    """Its name, the steps that it names, and its condition: `argmin {1} {3}`, `where {1} > 1980`."""
    named = (f"{{{number}}}" for number in operation.references)
    return " ".join([operation.name, *named, *_spell_condition(operation.condition)])


def _spell_condition(condition: Condition | None) -> list[str]:
    if condition is None:
        return []
    is_plain = PLAIN.fullmatch(condition.value) and not BREAKS.search(condition.value)
    return [condition.sign, condition.value if is_plain else write_string(condition.value)]


def _render_operand(operand: Expression, grouped: Any) -> str:
    return f"({render(operand)})" if isinstance(operand, grouped) else render(operand)


def quote(text: str) -> str:
    """Writes the text of a leaf for an expression: as it is, or as a JSON string if it would parse differently."""
    return text if reads_as_itself(text) and not BREAKS.search(text) else write_string(text)
