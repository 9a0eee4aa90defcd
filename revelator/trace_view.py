"""A trace as a tree for the terminal: each node's question, answer, documents and time, and how they hang together."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.text import Text
from rich.tree import Tree

from revelator.terminal import mask_controls
from revelator.trace import Node, Passage, Trace, join_answers, quote

FRAMES = {"dependent": "* one after the other", "sequence": "+ side by side"}
MARKS = {
    "waiting": ("·", "dim"),
    "running": ("…", "cyan"),
    "ok": ("✓", "green"),
    "unanswered": ("∅", "yellow"),
    "failed": ("✗", "red"),
    "skipped": ("–", "yellow"),
}
OUTCOMES = {"answered": "green", "partial": "yellow", "unanswered": "yellow", "failed": "red"}
DOCUMENTS_SHOWN = 5  # for each node


def print_trace(trace: Trace, console: Console) -> None:
    """Prints route, plan (quoted for a shell), the tree, and the answer with its marks. Control characters in any
    text are shown as dots."""
    trace = _mask_trace(trace)
    for line in _write_head(trace):
        console.print(line, soft_wrap=True)  # a plan is copied whole, into `ask --plan`
    console.print(tree(trace))
    console.print(_write_answer(trace))


def build_view(trace: Trace) -> Group:
    """Builds the view of a trace that may still grow: route, plan and tree."""
    trace = _mask_trace(trace)
    return Group(*_write_head(trace), tree(trace))


def _mask_trace(trace: Trace) -> Trace:
    return Trace.from_json(_mask_value(trace.to_json()))


def _mask_value(value: Any) -> Any:
    if isinstance(value, str):
        return mask_controls(value)
    if isinstance(value, dict):
        return {key: _mask_value(item) for key, item in value.items()}
    return [_mask_value(item) for item in value] if isinstance(value, list) else value


def tree(trace: Trace) -> Tree:
    """Builds the tree: nodes below the node that encloses them, in the order in which they were opened."""
    root = Tree(Text(trace.question, "bold"))
    branches: dict[str | None, Tree] = {None: root}
    for node in trace.nodes:
        branch = branches.get(node.parent, root).add(_write_label(node, trace.question))
        branches[node.id] = branch
        for passage in _choose_documents(node):
            branch.add(_write_document(node, passage))
    return root


def _write_head(trace: Trace) -> Iterator[Text]:
    if trace.route:
        [probabilities] = [n.detail.get("probabilities") for n in trace.nodes if n.kind == "route"][:1] or [None]
        likely = f"  P = {probabilities[0][trace.route]:.2f}" if probabilities else ""
        yield _write_field("route", trace.route + likely)
    if trace.plan:
        yield _write_field("plan", shlex.quote(trace.plan))
    if trace.degraded:
        yield _write_field("degraded", trace.reason or "the model's own plan could not be used", "yellow")


def _write_field(name: str, value: str, style: str = "cyan") -> Text:
    return Text.assemble((f"{name:<9}", "dim"), (value, style))


def _write_label(node: Node, whole: str) -> Text:
    """`whole`: the question of the trace, which stands at the root and nowhere again."""
    mark, colour = MARKS[node.status]
    asked = node.asked or node.question
    label = Text.assemble((f"{mark} ", colour), (f"{node.id} ", "dim"), FRAMES.get(node.kind, node.kind))
    if asked and asked != whole:
        label.append(f"  {asked}")
    if node.answers:
        label.append(" → ", "dim").append(join_answers(node.answers), "bold")
    elif "none" in node.detail:
        label.append(" → ", "dim").append("none", "bold")
    if node.status in ("ok", "unanswered", "failed"):
        label.append(f"  {node.ended_ms - node.started_ms:.0f} ms", "dim")
    if how := _describe_origin(node):
        label.append(f"  {how}", "dim")
    if "truncated" in node.detail:
        label.append(f"  cut off: {node.detail['truncated']}", "yellow")
    if node.error:
        label.append(f"\n{node.error}", colour)
    evidence = node.find_evidence()
    if node.sentence and node.sentence not in node.answers:
        label.append(f"\n{quote(node.sentence, evidence.text if evidence else '')}", "italic dim")
    if node.detail.get("call"):
        label.append(f"\nasked as {node.detail['call']}", "dim")
    if "logic" in node.detail:
        label.append(f"\nfound by {node.detail['logic']}", "dim")
    for source in node.detail.get("sources", ()):
        if "error" in source:
            label.append(f"\nwithout {source['source']}: {source['error']}", "yellow")
    for source, listed in node.detail.get("contradicts", {}).items():
        label.append(f"\n{source} says {join_answers(listed)}", "yellow")
    if evidence:
        likely = f", P = {node.detail['probability']:.2f}" if "probability" in node.detail else ""
        label.append(f"\nin {evidence.name}{likely}", "dim")
    if "unsupported" in node.detail:
        label.append(f"\n{node.detail['unsupported']}", "yellow")
    if "unsure" in node.detail:
        label.append(f"\n{node.detail['unsure']}", "dim")
    return label


def _describe_origin(node: Node) -> str:
    """Says where an answer comes from that this node did not look up."""
    if "shared_from" in node.detail:
        return f"as {node.detail['shared_from']}"
    if "reused_from" in node.detail:
        return "from the earlier trace"
    method = node.detail.get("method", "") if node.kind != "merge" or node.answers else ""
    return f"({method})" if method else ""


def _choose_documents(node: Node) -> list[Passage]:
    """Chooses the documents to show: those that were read first, then the most relevant."""
    kept = node.detail.get("kept", [])
    ranked = sorted(node.documents, key=lambda p: (p.id not in kept, -(p.relevance or 0.0)))
    return ranked[:DOCUMENTS_SHOWN]


def _write_document(node: Node, passage: Passage) -> Text:
    read = passage.id in node.detail.get("kept", [])
    relevance = "" if passage.relevance is None else f", relevant {passage.relevance:.2f}"
    label = Text.assemble(("read " if read else "     ", "green"), (passage.title, "" if read else "dim"))
    return label.append(f"  score {passage.score:.1f}{relevance}", "dim")


def _write_answer(trace: Trace) -> Text:
    text = Text.assemble(("answer   ", "dim"), (trace.answer or "none", f"bold {OUTCOMES[trace.outcome]}"))
    if trace.outcome != "answered":
        text.append(f"  ({trace.outcome})", OUTCOMES[trace.outcome])
    if trace.deadline_exceeded:
        text.append("  (time ran out)", "yellow")
    if trace.outcome != "answered" and trace.reason and not trace.degraded:
        text.append(f"\n{'reason':<9}", "dim").append(trace.reason, OUTCOMES[trace.outcome])
    if trace.text:
        text.append(f"\n{'text':<9}", "dim").append(trace.text)
    for place, source in enumerate(trace.list_citations()):
        text.append(f"\n{'' if place else 'evidence':<9}{source}", "dim")
    for note in trace.list_notes():
        text.append(f"\n{'note':<9}", "dim").append(note, "yellow")
    return text.append(f"\n{'cost':<9}{_describe_cost(trace)}", "dim")


def _describe_cost(trace: Trace) -> str:
    usage = trace.usage
    times = f"{trace.wall_ms:.0f} ms, longest chain {trace.critical_path_ms:.0f} ms"
    calls = f"{usage.model_calls} prompts, {usage.generator_calls} readings, {usage.retrievals} searches"
    return f"{times}; {calls}; {usage.tokens_in} tokens in, {usage.tokens_out} out"
