"""Answers of leaves that earlier questions asked: the least recently used leave first.

A leaf is answered from here if everything that decides its answer is the same (`LeafKey`): its words, what is searched,
which version judges, and the limits that count. Planner, judge, reader and the settings of the sources never change
while an executor lives, so each executor has a cache of its own.

An answer is kept only if nothing went wrong on the way to it (`ended_well`). A leaf without an answer is kept as well:
asked again of the same documents, it has none either. Sources that cannot say whether they are as they were, such as
the web, are always asked.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from revelator.limits import Limits
from revelator.trace import Node
from serving.executor.evidence import copy_answer
from serving.executor.judges import JUDGE
from serving.knowledge.sources import Sources
from serving.models.releases import REVELATOR, VersionChoice, find_choice, use_choice

ENTRIES = 10_000
BYTES = 64_000_000  # of all entries together; one with ten documents of 200 words has 20,000
# the limits that decide an answer
COUNTED = ("documents", "kept", "retries", "relevance_threshold", "relevance_floor", "answer_floor")


class LeafKey(NamedTuple):
    """What decides the answer of a leaf. `template` is its question as planned, by which one of several sources is
    selected; `query` the logical query that stands in for its words; `version` that of the release."""

    asked: str
    template: str
    query: str | None
    limits: tuple[float, ...]
    own_knowledge: bool
    version: str
    sources: str


@dataclass(frozen=True)
class _Entry:
    """`node` holds what was found, `answered` the versions that found it, by model, `found` when: never who asked."""

    node: Node
    answered: Mapping[str, frozenset[str]]
    found: str
    size: int


class LeafCache:
    """At most `entries` answers of at most `size` bytes together. Used by one event loop."""

    def __init__(self, entries: int = ENTRIES, size: int = BYTES) -> None:
        self._most, self._room = entries, size
        self._entries: OrderedDict[LeafKey, _Entry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def answer(self, node: Node, key: LeafKey | None, ask: Callable[[], Awaitable[None]]) -> None:
        """Fills the node with the answer that is known, at no cost; `detail["cached_from"]` says when it was found.
        Else asks, and keeps the answer. Without a key it always asks."""
        if key is None:
            await ask()
        elif entry := self._entries.get(key):
            self._entries.move_to_end(key)
            copy_answer(node, entry.node, "cached_from")
            node.detail["cached_from"] = entry.found
            for model, versions in entry.answered.items():
                find_choice().answered[model] |= versions
        else:
            await self._ask(node, key, ask)

    async def _ask(self, node: Node, key: LeafKey, ask: Callable[[], Awaitable[None]]) -> None:
        choice = find_choice()
        with use_choice(replace(choice, answered=defaultdict(set))) as own:
            try:
                await ask()
            finally:
                for model, versions in own.answered.items():
                    choice.answered[model] |= versions
        if ended_well(node) and _is_of_version(own):
            self._keep(key, _make_entry(key, node, own))

    def _keep(self, key: LeafKey, entry: _Entry) -> None:
        if former := self._entries.pop(key, None):  # two questions asked it at the same time
            self._size -= former.size
        self._entries[key] = entry
        self._size += entry.size
        while len(self._entries) > self._most or self._size > self._room:
            _, oldest = self._entries.popitem(last=False)
            self._size -= oldest.size


def make_key(node: Node, query: str | None, sources: Sources, limits: Limits, own_knowledge: bool) -> LeafKey | None:
    """The key of a leaf; None for one that must be asked: a source cannot say whether it has changed, or a canary
    answers, whose outputs are to be compared."""
    choice, state = find_choice(), sources.find_state()
    if state is None or choice.released is not None:
        return None
    counted = tuple(getattr(limits, name) for name in COUNTED)
    asked, template = node.asked or node.question, "" if sources.is_index else node.question
    return LeafKey(asked, template, query, counted, own_knowledge, choice.version, state)


def ended_well(node: Node) -> bool:
    """Whether no model, no reply and no source failed, so that the same would be found again."""
    detail = node.detail
    failures = [report for report in detail.get("sources", ()) if "error" in report]
    failed = failures or "error" in detail.get("selection", ()) or "unread" in detail or "degraded" in detail
    return node.status != "failed" and not failed


def _is_of_version(choice: VersionChoice) -> bool:
    """Whether the chosen version alone judged: another stands in for one that was unloaded meanwhile."""
    judged = choice.answered.get(JUDGE) or choice.answered.get(REVELATOR, set())
    return not choice.version or judged <= {choice.version}


def _make_entry(key: LeafKey, node: Node, choice: VersionChoice) -> _Entry:
    kept = Node(node.id, node.kind, node.question)
    copy_answer(kept, node, "cached_from")
    if kept.status == "running":
        kept.status = "ok"
    answered = {model: frozenset(versions) for model, versions in choice.answered.items()}
    found_at = datetime.now(UTC).isoformat(timespec="seconds")
    return _Entry(kept, answered, found_at, _measure(key, kept))


def _measure(key: LeafKey, node: Node) -> int:
    """The bytes of their texts, near enough."""
    texts = [text for p in node.documents for text in (p.id, p.title, p.text)]
    texts += [key.asked, key.template, key.query or "", node.question, node.sentence, node.error or "", *node.answers]
    return sum(map(sys.getsizeof, texts)) + 2 * len(repr(node.detail)) + 500 * (1 + len(node.documents))
