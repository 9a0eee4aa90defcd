"""A leaf's answer taken from where the same was asked before: in this plan, or in an earlier trace."""

from __future__ import annotations

from collections.abc import Mapping

from revelator.trace import Node, Trace


def take(node: Node, other: Node, how: str) -> None:
    """Gives `node` what `other` found, at no cost; `node.detail[how]` names it."""
    node.documents = list(other.documents)
    node.sentence = other.sentence
    node.answers = list(other.answers)
    node.status, node.error = other.status, other.error
    inner = ("shared_from", "reused_from", "retries", "calls", "fallback", "art")
    node.detail |= {k: v for k, v in other.detail.items() if k not in inner} | {how: other.id}


def answered(trace: Trace) -> Mapping[str, Node]:
    """The leaves of a trace that ended with an answer from documents, by what was asked, and the operators of a tree
    that sources answered, by their key.

    What was computed from other leaves' answers is left out: the same words may mean other values now.
    """
    ended = [node for node in trace.nodes if node.kind == "atomic" and node.status == "ok" and node.answers]
    leaves = {n.asked: n for n in ended if n.asked and n.detail.get("method", "generator") == "generator"}
    return leaves | {n.detail["key"]: n for n in ended if "key" in n.detail and "sources" in n.detail}
