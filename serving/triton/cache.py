"""Whole answers kept for questions that are asked again in the same words, with the same options, of the same version.

Triton has a response cache of its own, and it cannot serve here: its key is the executor's inputs and version, not the
revelator's, so a promotion would not show, and it would keep partial answers as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cachetools import TTLCache

from revelator.files import sha256_text
from revelator.trace import Trace

SECONDS = 3600.0  # what a graph or the web says may change
Lookup = Literal["hit", "miss"]


class AnswerCache:
    """The `entries` traces used last, none older than an hour. `looked_up` is told of each look."""

    def __init__(self, entries: int, looked_up: Callable[[Lookup], object]) -> None:
        self._kept: TTLCache[str, Trace] = TTLCache(entries, SECONDS)
        self._looked_up = looked_up

    def find(self, question: str, options: str, version: str) -> Trace | None:
        """The trace that this version of the revelator gave the first time, times and all."""
        found = self._kept.get(_key(question, options, version))
        self._looked_up("hit" if found else "miss")
        return found

    def keep(self, question: str, options: str, version: str, trace: Trace) -> None:
        """Keeps a complete answer that came about in the way that was meant; every other is asked again.

        So is one that another version had to help with because `version` was unloaded meanwhile.
        """
        meant = trace.versions.get("revelator", version) == version and not trace.degraded
        if trace.outcome == "complete" and meant:
            self._kept[_key(question, options, version)] = trace


def _key(*parts: str) -> str:
    return sha256_text("\0".join(parts))
