"""The nodes of a plan in its trace: one a leaf, a frame around each operator, members below a leaf that fans out."""

from __future__ import annotations

from collections.abc import Sequence

from revelator.plans import Atomic, Dependent, Expression
from revelator.trace import Kind, Node
from serving.executor.recording import Recorder

NOT_REACHED = "not reached"


class PlanNodes:
    """Opened before the plan runs, so that their numbers follow the plan; closed when it has ended or was stopped."""

    def __init__(self, expression: Expression, recorder: Recorder, after: Sequence[str]) -> None:
        self.leaves: list[Node] = []
        self._recorder = recorder
        self._after = tuple(after)
        self._frames: list[tuple[Node, list[Node]]] = []
        self._fans: list[tuple[Node, list[Node]]] = []
        self.root = self._open(expression, None)

    def open_members(self, node: Node, count: int) -> list[Node]:
        members = self._recorder.open_members(node, count)
        self._fans.append((node, members))
        return members

    def close(self) -> None:
        """Gives each frame the span, answers and status of what it holds; what was opened last lies innermost."""
        fanned = {node.id for node, _ in self._fans}
        for node in [*self.leaves, *(member for _, members in self._fans for member in members)]:
            if node.status == "waiting" and node.id not in fanned:
                self._recorder.skip(node, NOT_REACHED)
        for node, held in reversed(self._fans):
            self._close_frame(node, held, held)
        for node, held in reversed(self._frames):
            self._close_frame(node, held, held[-1:] if node.kind == "dependent" else held)

    def _open(self, expression: Expression, parent: str | None) -> Node:
        if isinstance(expression, Atomic):
            node = self._recorder.open("atomic", expression.text, parent=parent, after=self._after)
            self.leaves.append(node)
            return node
        kind: Kind = "dependent" if isinstance(expression, Dependent) else "sequence"
        inside = (expression.left, expression.right) if isinstance(expression, Dependent) else expression.items
        node = self._recorder.open(kind, "", parent=parent)
        held: list[Node] = []
        self._frames.append((node, held))
        held += [self._open(item, node.id) for item in inside]
        return node

    def _close_frame(self, node: Node, held: Sequence[Node], giving: Sequence[Node]) -> None:
        self._recorder.enclose(node, held)
        node.answers = list(dict.fromkeys([answer for inner in giving for answer in inner.answers]))
        faulty = [inner.id for inner in held if inner.status != "ok"]
        if faulty:
            node.detail["without_answer"] = faulty
        if node.answers:
            node.status, node.error = "ok", None
        elif all(inner.status == "skipped" for inner in held):
            node.status, node.error = "skipped", NOT_REACHED
        else:
            node.status, node.error = "failed", f"no answer from {', '.join(faulty)}"
        self._recorder.ended(node)
