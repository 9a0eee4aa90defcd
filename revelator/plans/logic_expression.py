"""A logical query as a value: `Term`, `Not`, `And`, `Or`, frozen and canonical by construction.

`And` and `Or` have two or more operands, none of the same kind straight inside: equal queries in another grouping are
equal values. The constructors refuse, with ValueError, what has another spelling and what is deeper than `MAX_DEPTH`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from revelator.plans.expression import MAX_DEPTH, Span
from revelator.plans.rendering import json_text


@dataclass(frozen=True, slots=True)
class Term:
    """A text of any length that documents are scored against, without the white space around it."""

    text: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.strip())

    @property
    def depth(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Not:
    """Documents for which `operand` does not hold."""

    operand: Query
    span: Span | None = field(default=None, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _checked_depth(self.operand.depth + 1))


@dataclass(frozen=True, slots=True)
class _Joined:
    operands: tuple[Query, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        name = type(self).__name__
        if len(self.operands) < 2:
            raise ValueError(f"{name} has two or more operands; one operand is that operand itself")
        if any(type(operand) is type(self) for operand in self.operands):
            raise ValueError(f"{name} does not stand straight inside {name}: put its operands in its place")
        object.__setattr__(self, "depth", _checked_depth(max(operand.depth for operand in self.operands) + 1))


@dataclass(frozen=True, slots=True)
class And(_Joined):
    """Documents for which all operands hold."""


@dataclass(frozen=True, slots=True)
class Or(_Joined):
    """Documents for which at least one operand holds."""


Query = Term | Not | And | Or


def _checked_depth(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ValueError(f"a query is at most {MAX_DEPTH} nodes deep")
    return depth


def joined(kind: type[And] | type[Or], operands: list[Query], span: Span | None = None) -> Query:
    """`operands` under one `kind`, canonical: a single one is itself, those of the same kind are taken apart."""
    flat = [part for operand in operands for part in (operand.operands if type(operand) is kind else (operand,))]
    return kind(tuple(flat), span) if len(flat) > 1 else flat[0]


def walk(query: Query) -> Iterator[Query]:
    """Every node, parents before children, left before right."""
    stack = [query]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, Not):
            stack.append(node.operand)
        elif isinstance(node, And | Or):
            stack.extend(reversed(node.operands))


def terms(query: Query) -> tuple[str, ...]:
    """The distinct texts of the terms, in order of first use."""
    return tuple(dict.fromkeys(node.text for node in walk(query) if isinstance(node, Term)))


def negations(query: Query) -> int:
    """How many terms stand under an odd number of NOTs, as often as they stand there."""
    return sum(negated for _, negated in literals(query))


def literals(query: Query) -> tuple[tuple[str, bool], ...]:
    """(text, stands under an odd number of NOTs) of each term, left to right, repeats kept."""
    found: list[tuple[str, bool]] = []
    stack: list[tuple[Query, bool]] = [(query, False)]
    while stack:
        node, negated = stack.pop()
        if isinstance(node, Term):
            found.append((node.text, negated))
        elif isinstance(node, Not):
            stack.append((node.operand, not negated))
        else:
            stack.extend((operand, negated) for operand in reversed(node.operands))
    return tuple(found)


def holds(query: Query, truth: Mapping[str, bool]) -> bool:
    """Does the query hold where each term holds as `truth` says? KeyError for a term that it does not name."""
    if isinstance(query, Term):
        return truth[query.text]
    if isinstance(query, Not):
        return not holds(query.operand, truth)
    over = all if isinstance(query, And) else any
    return over([holds(operand, truth) for operand in query.operands])


def normal_form(query: Query, negated: bool = False) -> Query:
    """The same query with NOT on terms alone: carried inwards by De Morgan's laws, double ones removed."""
    if isinstance(query, Term):
        return Not(query) if negated else query
    if isinstance(query, Not):
        return normal_form(query.operand, not negated)
    conjunctive = isinstance(query, And) is not negated
    return joined(And if conjunctive else Or, [normal_form(operand, negated) for operand in query.operands])


def render(query: Query) -> str:
    """The one canonical text that parses into `query`; a single line whatever the terms hold."""
    return _text(query, "")


def render_spaced(query: Query) -> str:
    """The same with a space at the start of each term: `" a" AND NOT " b"`.

    A byte-level tokenizer cuts a word after a space otherwise than after a quote. With the space the tokens of a term
    are those that stand in the question, and a model copies them.
    """
    return _text(query, " ")


def _text(query: Query, space: str) -> str:
    if isinstance(query, Term):
        return json_text(space + query.text)
    if isinstance(query, Not):
        return f"NOT {_grouped(query.operand, not isinstance(query.operand, Term), space)}"
    if isinstance(query, And):
        return " AND ".join(_grouped(operand, isinstance(operand, Or), space) for operand in query.operands)
    return " OR ".join(_text(operand, space) for operand in query.operands)


def _grouped(query: Query, needed: bool, space: str) -> str:
    return f"({_text(query, space)})" if needed else _text(query, space)
