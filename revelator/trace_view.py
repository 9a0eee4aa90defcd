"""A trace on the terminal: the answer, how sure it is and where it stands; below it the steps, as a tree."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.text import Text
from rich.tree import Tree

from revelator.answers import (
    KINDS,
    ROUTES,
    Certainty,
    explain_silence,
    find_text,
    find_values,
    judge_certainty,
    list_doubts,
)
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
COLOURS: dict[Certainty, str] = {"sure": "green", "doubtful": "yellow", "partial": "yellow", "none": "red"}
DOCUMENTS_SHOWN = 5  # for each node


def print_trace(trace: Trace, console: Console, steps: bool = True) -> None:
    """Prints the answer, how sure it is, and its sources; with `steps` also route, plan (quoted for a shell), the tree
    and the cost. Control characters in any text are shown as dots."""
    trace = _mask_trace(trace)
    console.print(_write_answer(trace), soft_wrap=True)
    if not steps:
        return
    console.print()
    for line in _write_head(trace):
        console.print(line, soft_wrap=True)  # a plan is copied whole, into `ask --plan`
    console.print(tree(trace))
    console.print(_write_field("cost", _describe_cost(trace), "dim"))


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
        yield _write_field("route", ROUTES.get(trace.route, trace.route) + likely)
    if trace.plan:
        yield _write_field("plan", shlex.quote(trace.plan))
    if trace.degraded:
        yield _write_field("instead", trace.reason or "the model's own plan could not be used", "yellow")


def _write_field(name: str, value: str, style: str = "cyan") -> Text:
    return Text.assemble((f"{name:<9}", "dim"), (value, style))


def _write_label(node: Node, whole: str) -> Text:
    """`whole`: the question of the trace, which stands at the root and nowhere again."""
    mark, colour = MARKS[node.status]
    asked = node.asked or node.question
    kind = FRAMES.get(node.kind) or KINDS.get(node.kind, node.kind)
    if "step" in node.detail:
        kind = f"step {node.detail['step']}"
    label = Text.assemble((f"{mark} ", colour), (f"{node.id} ", "dim"), kind)
    if asked and asked != whole:
        label.append(f"  {asked}")
    if node.answers:
        shown = [ROUTES.get(answer, answer) for answer in node.answers] if node.kind == "route" else node.answers
        label.append(" → ", "dim").append(join_answers(shown), "bold")
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
    if isinstance(tried := node.detail.get("fallback"), str):
        label.append(f"\n{tried}", "dim")
    for report in node.detail.get("sources", ()):
        if "error" in report:
            label.append(f"\nwithout {report['source']}: {report['error']}", "yellow")
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
    if "cached_from" in node.detail:
        return "from an earlier question"
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
    return label.append(f"  score {passage.score:.4g}{relevance}", "dim")


def _write_answer(trace: Trace) -> Text:
    """The values come first, then how sure they are or why there are none, then text, sources and notes."""
    certainty = judge_certainty(trace)
    colour = COLOURS[certainty]
    shown = Text(find_values(trace) or "no answer", f"bold {colour}")
    fields: list[tuple[str, str, list[str]]]  # name, style, lines
    fields = [("why" if certainty == "none" else certainty, colour, _describe_certainty(trace, certainty))]
    fields += [("text", "", [text])] if (text := find_text(trace)) else []
    fields += [
        ("sources", "dim", trace.list_citations() if trace.answer else []),
        ("note", "yellow", trace.list_notes()),
    ]
    for name, style, lines in fields:
        for place, line in enumerate(lines):
            shown.append(f"\n{'' if place else name:<9}", style or "dim").append(line, style)
    return shown


def _describe_certainty(trace: Trace, certainty: Certainty) -> list[str]:
    if certainty == "none":
        return [explain_silence(trace) or trace.reason or "nothing says why"]
    if certainty != "sure":
        return list_doubts(trace)
    sources = trace.list_sources()
    if not sources:
        return ["as the sources list it"]
    likely = [one.probability for one in sources if one.probability is not None]
    passages = "1 passage" if len(sources) == 1 else f"{len(sources)} passages"
    return [f"from {passages}" + (f", P = {min(likely):.2f}" if likely else "")]


def _describe_cost(trace: Trace) -> str:
    usage = trace.usage
    times = f"{trace.wall_ms:.0f} ms, longest chain {trace.critical_path_ms:.0f} ms"
    calls = f"{usage.model_calls} prompts, {usage.generator_calls} readings, {usage.retrievals} searches"
    return f"{times}; {calls}; {usage.tokens_in} tokens in, {usage.tokens_out} out"
