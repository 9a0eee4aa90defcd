"""How a logical query that a model wrote is held against the gold one."""

from __future__ import annotations

from dataclasses import dataclass

from evaluation.measures.metrics import normalise
from revelator.errors import ExpressionError
from revelator.plans.logic import And, Not, Or, Query, Term, check, equivalent, parse
from revelator.plans.logic_expression import joined


@dataclass(frozen=True)
class QueryScore:
    """`valid`: parses and can be run; `truth`: the same terms, SQuAD's text of them, and the same truth table over
    them; `exact`: the same query, word for word."""

    valid: bool
    truth: bool
    exact: bool


def query_score(output: str, gold: Query) -> QueryScore:
    """Scores the text that a model wrote; a text that does not parse scores nothing."""
    try:
        query = parse(output)
    except ExpressionError:
        return QueryScore(False, False, False)
    return QueryScore(not check(query), equivalent(_normalised(query), _normalised(gold)), query == gold)


def _normalised(query: Query) -> Query:
    if isinstance(query, Term):
        return Term(normalise(query.text) or query.text)
    if isinstance(query, Not):
        return Not(_normalised(query.operand))
    return joined(And if isinstance(query, And) else Or, [_normalised(part) for part in query.operands])
