"""The index behind its Triton model: searches that wait in the server's queue are one pass for each `k`."""

from __future__ import annotations

from collections.abc import Sequence

from revelator.trace import Passage
from serving.retrieval import Index


def search(index: Index, queries: Sequence[tuple[str, int]]) -> list[list[Passage] | Exception]:
    """One outcome a query and its `k`, in order: at most `k` passages, or the error that it alone meets."""
    outcomes: dict[int, list[Passage] | Exception] = {}
    groups: dict[int, list[int]] = {}
    for i, (_, k) in enumerate(queries):
        groups.setdefault(k, []).append(i)
    for k, members in groups.items():
        outcomes.update(zip(members, _group(index, [queries[i][0] for i in members], k), strict=True))
    return [outcomes[i] for i in range(len(queries))]


def _group(index: Index, queries: Sequence[str], k: int) -> Sequence[list[Passage] | Exception]:
    """One pass; when it fails, a pass a query."""
    try:
        return index.search_many(queries, k)
    except Exception as error:
        if len(queries) > 1:
            return [outcome for query in queries for outcome in _group(index, [query], k)]
        return [error]
