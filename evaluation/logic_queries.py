"""The queries of the logical benchmark: 32 templates of three terms (ITLR, section 3.1), in logic and in words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from revelator.language.logic import And, Not, Or, Query, Term, negations, parse, render


@dataclass(frozen=True)
class Case:
    """A query, what a person would type for it, and the gains of the documents that it is run on.

    `relevant` holds the positions of matching documents, `pool` of all that are ranked.
    """

    query: Query
    question: str
    template: int
    relevant: frozenset[int]
    pool: tuple[int, ...]

    @property
    def negations(self) -> int:
        return negations(self.query)


def templates() -> list[str]:
    """t1 op t2 op t3 with each op AND or OR and each term plain or negated: 4 x 8 = 32, in a fixed order."""
    found = []
    for first, second in itertools.product(("AND", "OR"), repeat=2):
        for signs in itertools.product(("", "NOT "), repeat=3):
            a, b, c = (f"{sign}{{{i}}}" for i, sign in enumerate(signs))
            found.append(f"{a} {first} {b} {second} {c}")
    return found


def filled(template: str, terms: Sequence[str]) -> Query:
    """The query of a template for three terms."""
    return parse(template.format(*(render(Term(term)) for term in terms)))


def in_words(query: Query, saying: str = "about") -> str:
    """The query as a person would ask it: `documents about A and not about B, or about C`."""
    parts = query.operands if isinstance(query, Or) else (query,)
    return "documents " + ", or ".join(_all_of(part, saying) for part in parts)


def _all_of(part: Query, saying: str) -> str:
    operands = part.operands if isinstance(part, And) else (part,)
    return " and ".join(f"not {_one(o.operand, saying)}" if isinstance(o, Not) else _one(o, saying) for o in operands)


def _one(term: Query, saying: str) -> str:
    assert isinstance(term, Term)
    return f"{saying} {term.text}"
