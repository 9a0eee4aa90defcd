"""Writes the trace of one question while it runs: node numbers, times, events, sums and the critical path."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from revelator import spans
from revelator.node_detail import STATUS_OF, Cause, Status
from revelator.plans import Atomic, Dependent, Expression, Operation
from revelator.plans.art import Art, number_nodes
from revelator.plans.bnf import spell_operation
from revelator.plans.graph import write_references
from revelator.trace import Event, EventKind, EventSender, Kind, Node, Outcome, Trace, Usage, sort_ids

FOLLOWING: frozenset[Cause] = frozenset({"no-answer-before", "not-reached"})  # from what became of another node
NOT_REACHED = "not reached"


class Recorder:
    """Nodes are numbered in the order in which they are opened, which never depends on which call ends first.

    `listener` gets the events as they happen, in causal order: a node is opened after its parent, started after what it
    waited for has ended, and ends once.
    """

    def __init__(
        self, question: str, strategy: str, listener: Callable[[Event], None] | None = None, where: str = ""
    ) -> None:
        self._began = time.perf_counter()
        self.trace = Trace(question, strategy, where=where, started_at=time.time())
        self._sender = EventSender(listener) if listener else None
        self._nodes: dict[str, Node] = {}
        self._after: dict[str, Sequence[str]] = {}
        self._enclosing: set[str] = set()  # frames, which take no time of their own
        self._last = 0
        self.report("begun", self.trace)

    def now_ms(self) -> float:
        return (time.perf_counter() - self._began) * 1000

    def report(self, kind: EventKind, what: Node | Trace) -> None:
        if self._sender:
            self._sender.send(kind, what, self.now_ms())

    def open(
        self, kind: Kind, question: str, *, parent: str | None = None, after: Sequence[str] = (), id: str | None = None
    ) -> Node:
        """Opens a waiting node, with the next number unless `id` is given. `after`: ids of the nodes that must end
        before it can start."""
        if id is None:
            self._last = number = self._last + 1
            id = str(number)
        now = self.now_ms()
        node = self._nodes[id] = Node(id, kind, question, parent, status="waiting", started_ms=now, ended_ms=now)
        if after:
            self._after[id] = after
        self.report("opened", node)
        return node

    def open_members(self, node: Node, count: int) -> list[Node]:
        """Opens the nodes of a fan-out, numbered below `node`; they are calls of the same step of the plan."""
        self._enclosing.add(node.id)
        ids = [f"{node.id}.{n}" for n in range(1, count + 1)]
        members = [self.open(node.kind, node.question, parent=node.id, id=id) for id in ids]
        if "step" in node.detail:
            for member in members:
                member.detail["step"] = node.detail["step"]
        return members

    def set_predecessors(self, node: Node, after: Sequence[str]) -> None:
        self._after[node.id] = after

    def open_plan(
        self, expression: Expression | Art, after: Sequence[str], parent: str | None = None
    ) -> tuple[Node, list[Node]]:
        """Opens the nodes of a plan before it runs, so that their numbers follow the plan: one a step, and a frame
        around each operator. Returns the outermost one and the steps, in the order of the plan's graph."""
        if isinstance(expression, Art):
            nodes: list[Node] = []
            for at in number_nodes(expression):
                kind: Kind = "atomic" if at.node.call else "merge"
                inside = None if at.parent is None else nodes[at.parent].id
                nodes.append(self.open(kind, write_references(at.node.question), parent=inside, after=after))
            return nodes[0], [*nodes[1:], nodes[0]]
        if isinstance(expression, Atomic):
            leaf = self.open("atomic", expression.text, parent=parent, after=after)
            return leaf, [leaf]
        in_order = isinstance(expression, Dependent | Operation)
        frame = self.open("dependent" if in_order else "sequence", "", parent=parent)
        self._enclosing.add(frame.id)
        steps = [step for item in expression.children for step in self.open_plan(item, after, frame.id)[1]]
        if isinstance(expression, Operation):
            steps.append(self.open("merge", f"=> {spell_operation(expression)}", parent=frame.id))
        return frame, steps

    def close_plan(self, root: Node) -> None:
        """Gives each frame, and each leaf that fans out, the times, answers and status of the nodes inside; nodes that
        still wait are skipped."""
        inside: dict[str, list[Node]] = {}
        for node in self.nodes():
            inside.setdefault(node.parent or "", []).append(node)
        self._close(root, inside)

    def _close(self, node: Node, inside: Mapping[str, Sequence[Node]]) -> None:
        held = inside.get(node.id, ())
        for inner in held:
            self._close(inner, inside)
        if node.id not in self._enclosing:
            if node.status == "waiting":
                self.leave_out(node, "not-reached", NOT_REACHED)
            return
        self._after[node.id] = [inner.id for inner in held]
        ran = [inner for inner in held if inner.status != "skipped"]
        node.started_ms = min([inner.started_ms for inner in ran], default=node.started_ms)
        node.ended_ms = max([inner.ended_ms for inner in ran], default=node.started_ms)
        giving = held[-1:] if node.kind == "dependent" else held
        node.answers = list(dict.fromkeys([answer for inner in giving for answer in inner.answers]))
        faulty = [inner for inner in held if inner.status != "ok"]
        if faulty:
            node.detail["without_answer"] = [inner.id for inner in faulty]
        if node.answers:
            node.end_well()
        elif not faulty:  # it is known that there are none
            node.end_well()
            node.detail["none"] = True
        else:
            causes = [inner.cause for inner in (*ran, *held) if inner.cause]
            failed = [cause for cause in causes if STATUS_OF.get(cause) == "failed"]
            [cause, *_] = failed or causes or ["not-said"]
            node.end_without_answer(
                cause, f"no answer from {', '.join(map(_name_node, faulty))}" if ran else NOT_REACHED
            )
        self.report_end(node)

    @contextmanager
    def record(self, node: Node) -> Iterator[Node]:
        """Times the work on `node`; an error marks the node failed and is raised again."""
        node.started_ms = node.ended_ms = self.now_ms()
        node.status, node.cause, node.error = "running", None, None
        self.report("started", node)
        try:
            with spans.open_span(node.kind, node=node.id):
                try:
                    yield node
                finally:
                    spans.describe(node.asked or node.question, node.answers)
            if node.status == "running":
                node.status = "ok"
        except asyncio.CancelledError:
            node.end_without_answer("stopped", "stopped before it was done")
            raise
        except Exception as error:
            node.fail(error)
            raise
        finally:
            node.ended_ms = self.now_ms()
            self.report_end(node)

    def report_end(self, node: Node) -> None:
        """Reports by its status how `node` ended."""
        ends: dict[Status, EventKind] = {"ok": "answered", "unanswered": "unanswered", "skipped": "skipped"}
        self.report(ends.get(node.status, "failed"), node)

    def leave_out(self, node: Node, cause: Cause, said: str) -> None:
        """Ends a node that is not asked."""
        node.end_without_answer(cause, said)
        self.report_end(node)

    def nodes(self) -> list[Node]:
        """All nodes by number; the members of a fan-out follow the node that they stand below."""
        return [self._nodes[id] for id in sort_ids(self._nodes)]

    def finish(self) -> Trace:
        """Completes the trace and returns it; nodes that still wait are skipped."""
        trace = self.trace
        for node in self._nodes.values():
            if node.status == "waiting":
                self.leave_out(node, "not-reached", NOT_REACHED)
        trace.nodes = self.nodes()
        trace.usage = Usage.total([node.usage for node in trace.nodes])
        trace.critical_path_ms = self._compute_critical_path_ms()
        trace.outcome = _judge_outcome(trace)
        if trace.outcome != "answered":
            reasons = dict.fromkeys(filter(None, [trace.reason, _find_reason(trace)]))
            trace.reason = "; ".join(reasons) or None
        trace.wall_ms = self.now_ms()
        self.report("finished", trace)
        return trace

    def _compute_critical_path_ms(self) -> float:
        """The longest sum of the nodes' own times along `after`: the latency with unlimited parallel capacity."""
        longest = {id: node.ended_ms - node.started_ms for id, node in self._nodes.items()}
        longest.update(dict.fromkeys(self._enclosing, 0.0))
        behind = dict(self._after)

        def path(id: str) -> float:
            if after := behind.pop(id, None):
                longest[id] += max([path(before) for before in after])
            return longest[id]

        for id in list(behind):
            path(id)
        return max(longest.values(), default=0.0)


def _name_node(node: Node) -> str:
    """A step by its number in the plan, a frame by its node."""
    return f"step {node.detail['step']}" if "step" in node.detail else f"node {node.id}"


def _judge_outcome(trace: Trace) -> Outcome:
    """Answered when there is an answer and every leaf and merge gave its own whole, which passages hold. Without an
    answer a fault decides: where there was none, nothing supports an answer. The knowledge that there is nothing is an
    answer too."""
    counted = [node for node in trace.nodes if node.kind in ("atomic", "merge")]
    answered = trace.answers or any("none" in node.detail for node in counted)
    whole = all(node.status == "ok" and "truncated" not in node.detail for node in counted)
    if answered and whole and not trace.deadline_exceeded and not any(map(_is_unsupported, trace.nodes)):
        return "answered"
    if trace.answers:
        return "partial"
    if trace.deadline_exceeded or any(node.status == "failed" for node in counted):
        return "partial" if any(node.answers for node in counted) else "failed"
    return "unanswered"


def _is_unsupported(node: Node) -> bool:
    return bool(node.answers) and "unsupported" in node.detail


def _find_reason(trace: Trace) -> str | None:
    """Why the question has no answer, or one that is not whole: the first node that has a cause of its own, else one
    that something before it left without an answer, else what a limit cut off."""
    asked = [node for node in trace.nodes if node.kind in ("atomic", "merge", "direct")]
    own = [node for node in asked if "without_answer" not in node.detail]  # no frame, whose own nodes say more
    for follows in (False, True):
        for node in own:
            if node.error and node.cause and (node.cause in FOLLOWING) == follows:
                return node.error
            if _is_unsupported(node):
                return str(node.detail["unsupported"])
    return next((node.detail["truncated"] for node in trace.nodes if "truncated" in node.detail), None)
