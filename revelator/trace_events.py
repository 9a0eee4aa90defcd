"""A trace while it is written: events in causal order, which replayed give the trace itself.

Each event holds what has changed since the one before it about the same node (or, `node` None, about the question as a
whole), as the plain values of the trace's JSON. So a client that keeps a `Replay` sees the trace grow, and after
`finished` holds the trace that the executor holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from revelator.trace import Node, Trace, in_order

Happening = Literal[
    "begun",  # the question, its strategy
    "planned",  # the plan that will be run
    "opened",  # a node stands in the trace and waits
    "started",
    "retrieved",  # documents with the retriever's scores
    "judged",  # the same documents with the revelator's relevance
    "answered",  # the node ended well
    "skipped",  # it was never asked: what it waits for gave nothing, or time ran out
    "failed",
    "finished",  # answer, outcome and sums of the whole question
]


@dataclass(frozen=True, slots=True)
class Event:
    """`at_ms` counts from the start of the trace; `changes` are fields of the node, or, without one, of the trace."""

    kind: Happening
    node: str | None
    at_ms: float
    changes: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "node": self.node, "at_ms": self.at_ms, "changes": self.changes}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Event:
        return cls(**value)


class Teller:
    """Makes events of a trace and its nodes as they change, and hands them to `listener` at once."""

    def __init__(self, listener: Callable[[Event], None]) -> None:
        self._listener = listener
        self._told: dict[str | None, dict[str, Any]] = {}

    def tell(self, kind: Happening, what: Node | Trace, at_ms: float) -> None:
        key, changes = self._changes(what)
        self._listener(Event(kind, key, at_ms, changes))
        self._told.setdefault(key, {}).update(changes)

    def is_told(self, node: Node) -> bool:
        return not self._changes(node)[1]

    def _changes(self, what: Node | Trace) -> tuple[str | None, dict[str, Any]]:
        if isinstance(what, Trace):
            key, now = None, replace(what, nodes=[]).to_json()
            del now["nodes"]
        else:
            key, now = what.id, what.to_json()
        told = self._told.get(key, {})
        return key, {name: value for name, value in now.items() if name not in told or told[name] != value}


class Replay:
    """The trace as far as its events have come."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._nodes: dict[str, dict[str, Any]] = {}

    def add(self, event: Event) -> None:
        value = self._whole if event.node is None else self._nodes.setdefault(event.node, {})
        value.update(event.changes)

    def trace(self) -> Trace:
        """Nodes that still wait or run have that status. Raises KeyError before the first event."""
        nodes = [self._nodes[id] for id in in_order(self._nodes)]
        return Trace.from_json({**self._whole, "nodes": nodes})


def replay(events: Iterable[Event]) -> Trace:
    """The trace that these events tell of."""
    told = Replay()
    for event in events:
        told.add(event)
    return told.trace()
