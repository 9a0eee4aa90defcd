"""Writes the trace of one question while it runs: node numbers, times, sums and the critical path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from revelator.trace import Kind, Node, Trace, Usage


class Recorder:
    """Nodes are numbered in the order in which they are opened, which never depends on which call ends first."""

    def __init__(self, question: str, strategy: str) -> None:
        self._began = time.perf_counter()
        self.trace = Trace(question, strategy, started_at=time.time())
        self._nodes: dict[str, Node] = {}
        self._members: dict[str, list[Node]] = {}  # of fan-outs: numbered below their parent ("3.1")
        self._after: dict[str, Sequence[str]] = {}
        self._enclosing: set[str] = set()
        self._last = 0

    def now_ms(self) -> float:
        return (time.perf_counter() - self._began) * 1000

    def open(self, kind: Kind, question: str, *, parent: str | None = None, after: Sequence[str] = ()) -> Node:
        """A new node; `after` are the ids of the nodes that had to end before it could start."""
        self._last += 1
        return self._add(Node(str(self._last), kind, question, parent), after)

    def open_members(self, node: Node, count: int) -> list[Node]:
        """The nodes of a fan-out, numbered below `node`."""
        ids = [f"{node.id}.{number}" for number in range(1, count + 1)]
        members = [self._add(Node(id, node.kind, node.question, node.id), ()) for id in ids]
        self._members[node.id] = members
        return members

    def _add(self, node: Node, after: Sequence[str]) -> Node:
        node.started_ms = node.ended_ms = self.now_ms()
        self._nodes[node.id] = node
        self._after[node.id] = after
        return node

    def follows(self, node: Node, after: Sequence[str]) -> None:
        self._after[node.id] = after

    def enclose(self, node: Node, held: Sequence[Node]) -> None:
        """Makes `node` a frame around other nodes: it takes their span of time and none of its own."""
        self._enclosing.add(node.id)
        self._after[node.id] = [inner.id for inner in held]
        ran = [inner for inner in held if inner.status != "skipped"]
        node.started_ms = min([inner.started_ms for inner in ran], default=node.started_ms)
        node.ended_ms = max([inner.ended_ms for inner in ran], default=node.started_ms)

    def running(self, node: Node) -> Running:
        """Times the work on `node`; an error marks it failed and goes on."""
        return Running(self, node)

    def nodes(self) -> list[Node]:
        """All of them by number, the members of a fan-out right after the node that they stand below."""
        if not self._members:
            return list(self._nodes.values())
        return [node for top in self._nodes.values() if "." not in top.id for node in self._with_members(top)]

    def _with_members(self, node: Node) -> Iterator[Node]:
        yield node
        for member in self._members.get(node.id, ()):
            yield from self._with_members(member)

    def finish(self) -> Trace:
        trace = self.trace
        trace.nodes = self.nodes()
        trace.usage = Usage.total([node.usage for node in trace.nodes])
        trace.critical_path_ms = self._critical_path_ms()
        trace.wall_ms = self.now_ms()
        return trace

    def _critical_path_ms(self) -> float:
        """The longest sum of own times along `after`: how long the question takes with endless parallel capacity."""
        longest: dict[str, float] = {}

        def path(id: str) -> float:
            if id not in longest:
                node = self._nodes[id]
                own = 0.0 if id in self._enclosing else node.ended_ms - node.started_ms
                longest[id] = own + max([path(before) for before in self._after[id]], default=0.0)
            return longest[id]

        return max([path(id) for id in self._nodes], default=0.0)


@dataclass(slots=True)
class Running:
    """Work on a node: a context manager that keeps its times and its error."""

    recorder: Recorder
    node: Node

    def __enter__(self) -> Node:
        node = self.node
        node.started_ms = self.recorder.now_ms()
        node.status, node.error = "ok", None
        return node

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        node = self.node
        node.ended_ms = self.recorder.now_ms()
        if isinstance(error, asyncio.CancelledError):
            node.status, node.error = "failed", "stopped before it was done"
        elif isinstance(error, Exception):
            node.status, node.error = "failed", f"{type(error).__name__}: {error}"
