"""The index behind its Triton model: searches that wait in the server's queue are one pass for each `k`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from revelator.errors import InvalidRequest, RevelatorError
from revelator.trace import Passage
from serving.retrieval import Index
from serving.retrieval.logical_search import LogicalSettings
from serving.retrieval.retriever import search_all
from serving.triton.inside.batches import run_groups

QUERY_BYTES = 131_072  # a logical query of 20,000 characters in any script
MOST_PASSAGES = 1_000  # of one search


class Search(NamedTuple):
    query: str
    k: int


def search(index: Index, logic: LogicalSettings, searches: Sequence[Search]) -> list[list[Passage] | RevelatorError]:
    """One outcome a search, in order: at most `k` passages, or the error that it alone meets. `logic`: how logical
    queries are run."""
    return run_groups(searches, _choose_group, partial(_search_together, index, logic))


def _choose_group(one: Search) -> tuple[int] | RevelatorError:
    if one.k > MOST_PASSAGES:
        return InvalidRequest(f"k must be {MOST_PASSAGES} at most, not {one.k}")
    return (one.k,)


def _search_together(
    index: Index, logic: LogicalSettings, k: int, searches: Sequence[Search]
) -> Sequence[list[Passage]]:
    return search_all(index, [one.query for one in searches], k, logic)
