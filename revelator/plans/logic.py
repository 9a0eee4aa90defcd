"""Logical queries, `"a" AND ("b" OR NOT "c")` (ITLR): parse, render, check. `serving.retrieval` runs them."""

from revelator.plans.logic_check import MAX_LITERALS, MAX_TERMS, check, equivalent
from revelator.plans.logic_expression import (
    And,
    Not,
    Or,
    Query,
    Term,
    holds,
    literals,
    negations,
    normal_form,
    render,
    render_spaced,
    terms,
    walk,
)
from revelator.plans.logic_parser import parse

__all__ = [
    "MAX_LITERALS",
    "MAX_TERMS",
    "And",
    "Not",
    "Or",
    "Query",
    "Term",
    "check",
    "equivalent",
    "holds",
    "literals",
    "negations",
    "normal_form",
    "parse",
    "render",
    "render_spaced",
    "terms",
    "walk",
]
