"""The shapes of logical queries: the 32 templates of three terms (ITLR, section 3.1), and shorter and longer ones."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from functools import cache

from revelator.plans.logic import And, Not, Or, Query, Term, holds, parse, terms

NEGATED = 0.35  # chance of NOT before a term of a drawn shape
FLAT = 0.25  # chance that a drawn shape has one operator throughout
LIMIT = 3  # matching combinations, and hard negatives, of a query
Truth = tuple[bool, ...]


def templates(size: int = 3) -> list[str]:
    """t1 op t2 op … with each op AND or OR and each term plain or negated, in a fixed order: of three terms 4 x 8."""
    found = []
    for joins in itertools.product(("AND", "OR"), repeat=size - 1):
        for signs in itertools.product(("", "NOT "), repeat=size):
            first, *rest = (f"{sign}{{{i}}}" for i, sign in enumerate(signs))
            found.append(" ".join([first, *(f"{op} {term}" for op, term in zip(joins, rest, strict=True))]))
    return found


def filled(template: str, texts: Sequence[str]) -> Query:
    """The query of a template for its terms."""
    return _with_terms(_parsed(template), texts)


@cache
def _parsed(template: str) -> Query:
    return parse(re.sub(r"\{(\d+)\}", r'"\1"', template))


def _with_terms(query: Query, texts: Sequence[str]) -> Query:
    """The query with `texts` for the terms, whose texts are their numbers."""
    if isinstance(query, Term):
        return Term(texts[int(query.text)])
    if isinstance(query, Not):
        return Not(_with_terms(query.operand, texts))
    return type(query)(tuple(_with_terms(part, texts) for part in query.operands))


def drawn(texts: Sequence[str], rng: random.Random) -> Query:
    """A query with NOT on terms alone over four or more terms: AND and OR by turns, at most three deep."""
    if rng.random() < FLAT:
        return rng.choice((And, Or))(tuple(_literal(text, rng) for text in texts))
    return _group(list(texts), rng.choice((And, Or)), 3, rng)


def _group(texts: list[str], kind: type[And] | type[Or], depth: int, rng: random.Random) -> Query:
    if len(texts) == 1:
        return _literal(texts[0], rng)
    if depth == 1:
        return kind(tuple(_literal(text, rng) for text in texts))
    cuts = sorted(rng.sample(range(1, len(texts)), rng.choice((1, 2)) if len(texts) > 2 else 1))
    parts = [texts[a:b] for a, b in itertools.pairwise([0, *cuts, len(texts)])]
    return kind(tuple(_group(part, Or if kind is And else And, depth - 1, rng) for part in parts))


def _literal(text: str, rng: random.Random) -> Query:
    return Not(Term(text)) if rng.random() < NEGATED else Term(text)


def combinations(query: Query, rng: random.Random) -> tuple[list[Truth], list[Truth]]:
    """Truth values of the terms, in order of first use: some that match, and hard negatives (ITLR, appendix H).

    A hard negative does not match and is one flipped term away from a combination that does. At most LIMIT of each.
    """
    names = terms(query)
    rows: list[Truth] = list(itertools.product((True, False), repeat=len(names)))
    matches = {row: holds(query, dict(zip(names, row, strict=True))) for row in rows}
    positives = [row for row in rows if matches[row]]
    near = [row for row in rows if not matches[row] and any(matches[other] for other in _flips(row))]
    return rng.sample(positives, min(LIMIT, len(positives))), rng.sample(near, min(LIMIT, len(near)))


def _flips(row: Truth) -> list[Truth]:
    return [(*row[:i], not row[i], *row[i + 1 :]) for i in range(len(row))]
