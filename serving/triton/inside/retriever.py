"""The index behind its Triton model: searches that wait in the server's queue are one pass for each `k`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from revelator.errors import RevelatorError
from revelator.trace import Passage
from serving.retrieval import Index
from serving.retrieval.logical_search import LogicalSettings
from serving.retrieval.retriever import search_all
from serving.triton.inside.batches import run_groups


class Search(NamedTuple):
    query: str
    k: int


def search(index: Index, logic: LogicalSettings, searches: Sequence[Search]) -> list[list[Passage] | RevelatorError]:
    """One outcome a search, in order: at most `k` passages, or the error that it alone meets. `logic`: how logical
    queries are run."""
    return run_groups(searches, lambda one: (one.k,), partial(_search_together, index, logic))


def _search_together(
    index: Index, logic: LogicalSettings, k: int, searches: Sequence[Search]
) -> Sequence[list[Passage]]:
    return search_all(index, [one.query for one in searches], k, logic)
