"""The cases of the logical benchmark, queries of the 32 templates of `data_gen.sources`, and the queries in words."""

from __future__ import annotations

from dataclasses import dataclass

from revelator.plans.logic import And, Not, Or, Query, Term, negations


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
