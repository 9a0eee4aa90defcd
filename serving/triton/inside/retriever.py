"""The index behind its Triton model: searches by words that wait in the server's queue are one pass for each `k`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from revelator.errors import InvalidRequest, RevelatorError
from revelator.trace import Passage
from serving.retrieval import Index
from serving.retrieval.logical_search import search_logical
from serving.triton.inside.batches import run_together

QUERY_BYTES = 131_072  # a logical query of 20,000 characters in any script
MOST_PASSAGES = 1_000  # of one search


class Search(NamedTuple):
    """`language`: "words", or "logic" for a query of `revelator.plans.logic`."""

    query: str
    k: int
    language: str = "words"


def search(index: Index, searches: Sequence[Search]) -> list[list[Passage] | RevelatorError]:
    """One outcome a search, in order: at most `k` passages, or the error that it alone meets."""
    outcomes: dict[int, list[Passage] | RevelatorError] = {}
    groups: dict[tuple[str, int], list[int]] = {}
    for i, one in enumerate(searches):
        if one.k > MOST_PASSAGES:
            outcomes[i] = InvalidRequest(f"k must be {MOST_PASSAGES} at most, not {one.k}")
            continue
        groups.setdefault((one.language, one.k), []).append(i)
    for (language, k), members in groups.items():
        found = run_together(
            [searches[i].query for i in members], partial(_search_together, index, language, k), "retriever"
        )
        outcomes.update(zip(members, found, strict=True))
    return [outcomes[i] for i in range(len(searches))]


def _search_together(index: Index, language: str, k: int, queries: Sequence[str]) -> Sequence[list[Passage]]:
    if language == "words":
        return index.search_many(queries, k)
    if language == "logic":
        return [search_logical(index, query, k) for query in queries]
    raise InvalidRequest(f"there is no language {language!r}", hint="one of words, logic")
