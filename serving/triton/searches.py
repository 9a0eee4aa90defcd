"""The index behind its Triton model: searches by words that wait in the server's queue are one pass for each `k`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from revelator.errors import InvalidRequest, RevelatorError, ServingError
from revelator.trace import Passage
from serving.retrieval import Index
from serving.retrieval.logical_search import search_logical

log = logging.getLogger(__name__)


class Search(NamedTuple):
    """`language`: "words", or "logic" for a query of `revelator.language.logic`."""

    query: str
    k: int
    language: str = "words"


def search(index: Index, searches: Sequence[Search]) -> list[list[Passage] | RevelatorError]:
    """One outcome a search, in order: at most `k` passages, or the error that it alone meets."""
    outcomes: dict[int, list[Passage] | RevelatorError] = {}
    groups: dict[tuple[str, int], list[int]] = {}
    for i, one in enumerate(searches):
        groups.setdefault((one.language, one.k), []).append(i)
    for (language, k), members in groups.items():
        found = _group(index, language, [searches[i].query for i in members], k)
        outcomes.update(zip(members, found, strict=True))
    return [outcomes[i] for i in range(len(searches))]


def _group(index: Index, language: str, queries: Sequence[str], k: int) -> Sequence[list[Passage] | RevelatorError]:
    """One pass; when it fails, a pass a query."""
    try:
        return _pass(index, language, queries, k)
    except RevelatorError as error:
        failed = error.with_traceback(None)  # whose frames hold the scores of the pass
    except Exception as error:
        log.exception("%d queries", len(queries))
        failed = ServingError(f"{type(error).__name__}: {error}".splitlines()[0], where="retriever")
    if len(queries) == 1:
        return [failed]
    return [outcome for query in queries for outcome in _group(index, language, [query], k)]


def _pass(index: Index, language: str, queries: Sequence[str], k: int) -> Sequence[list[Passage]]:
    if language == "words":
        return index.search_many(queries, k)
    if language == "logic":
        return [search_logical(index, query, k) for query in queries]
    raise InvalidRequest(f"there is no language {language!r}", hint="one of words, logic")
