"""Logical queries over few terms, drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from revelator.plans.logic import And, Not, Or, Query, Term, join_queries


def extend(inner: st.SearchStrategy[Query]) -> st.SearchStrategy[Query]:
    several = st.lists(inner, min_size=2, max_size=4)
    return inner.map(Not) | several.map(lambda q: join_queries(And, q)) | several.map(lambda q: join_queries(Or, q))


few_terms = st.recursive(st.sampled_from("abcd").map(Term), extend, max_leaves=8)

# faults of numbers and operations, which a grammar without a memory cannot keep out
BEYOND_GRAMMAR = {"no-such-step", "later-step", "parallel-step", "each-and-all"}
BEYOND_GRAMMAR |= {"operation-reference", "one-part", "mixed-types"}
