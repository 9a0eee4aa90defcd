"""What is wrong with a logical query that parses: terms without a word, too many terms, and no answer to give."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from revelator.plans.checking import Diagnostic
from revelator.plans.logic_expression import And, Not, Query, Term, literals, normal_form, render, terms, walk
from revelator.plans.logic_parser import parse

MAX_TERMS = 64
MAX_LITERALS = 256  # terms counted as often as they stand: each is an array over all documents when the query runs
MAX_TABLED = 16  # distinct terms for which the truth table (65,536 rows) is looked at


def check(query: Query) -> tuple[Diagnostic, ...]:
    """Faults left to right, empty if there is none. Offsets are in the text parsed, else in `render(query)`.

    `empty-term`: no letter or digit. `too-many-terms`: more than MAX_TERMS, or MAX_LITERALS
    with repeats. `contradiction`: no document can match.
    `tautology`: every document matches. The last two can be run, and rank nothing.
    """
    if query.span is None:
        query = parse(render(query))
    return tuple(sorted(_faults(query), key=lambda d: (d.start, d.end)))


def _faults(query: Query) -> Iterator[Diagnostic]:
    assert query.span is not None
    for node in walk(query):
        if isinstance(node, Term) and not any(c.isalnum() for c in node.text):
            assert node.span is not None
            yield Diagnostic(
                "empty-term", "this term holds no word", *node.span, "write what documents should be about"
            )
    names, times = terms(query), len(literals(query))
    if len(names) > MAX_TERMS or times > MAX_LITERALS:
        message = f"{len(names)} terms in {times} places, and a query has at most {MAX_TERMS} in {MAX_LITERALS}"
        yield Diagnostic("too-many-terms", message, *query.span, "leave out terms, or ask several queries")
    elif len(names) <= MAX_TABLED:
        rows = np.arange(2 ** len(names))
        table = _column(query, {name: rows >> i & 1 == 1 for i, name in enumerate(names)})
        if not table.any():
            hint = "one part excludes what another asks for: leave one of them out"
            yield Diagnostic("contradiction", "no document can match this query", *query.span, hint)
        if table.all():
            hint = "join what must hold at once with AND"
            yield Diagnostic("tautology", "every document matches this query", *query.span, hint)


def equivalent(one: Query, other: Query) -> bool:
    """Do both queries hold for the same documents, whatever these are about? False where their terms differ.

    Beyond MAX_TABLED terms, where no table is made, queries are equivalent that are equal once NOT is on terms alone.
    """
    names = sorted(terms(one))
    if names != sorted(terms(other)):
        return False
    if len(names) > MAX_TABLED:
        return normal_form(one) == normal_form(other)
    rows = np.arange(2 ** len(names))
    table = {name: rows >> i & 1 == 1 for i, name in enumerate(names)}
    return bool(np.array_equal(_column(one, table), _column(other, table)))


def _column(query: Query, columns: dict[str, np.ndarray]) -> np.ndarray:
    if isinstance(query, Term):
        return columns[query.text]
    if isinstance(query, Not):
        return ~_column(query.operand, columns)
    over = np.logical_and if isinstance(query, And) else np.logical_or
    return reduce(over, (_column(operand, columns) for operand in query.operands))
