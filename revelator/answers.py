"""An answer as people read it: its values, its text, how sure it is and, where there is none, why.

All of it is read from the structure of a trace: kinds and states of its nodes, and their details. The executor's own
reasons name limits and models, for whoever runs the server; these sentences are for whoever asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal

from revelator.trace import Node, Trace, join_answers

Certainty = Literal["sure", "doubtful", "partial", "none"]
SURE = (
    0.8  # P that a passage says the answer, below which it is doubtful: how often either is right is in docs/results.md
)
CITATION = re.compile(r" ?\[(\d{1,4})\]")
# what people read in place of the names that routes and kinds of node have in prompts and traces
ROUTES = {"atomic": "tree", "direct": "without documents", "straightforward": "without documents"}
KINDS = {"atomic": "step", "direct": "without documents"}


def find_values(trace: Trace) -> str:
    """The bare values; "none" where it is known that there is none, "" without an answer."""
    return trace.answer or ("none" if trace.outcome == "answered" else "")


def find_settled_text(trace: Trace) -> str:
    """What `find_text` will keep of a text that is still written and ends with a letter, whatever follows: "" while it
    may be left out as a whole."""
    said = CITATION.sub("", trace.text)
    may_be_json = _drop_fences(said)[:1] in ("", "{", "[")
    may_say_no_more = any(known.startswith(_fold(said)) for known in _list_known(trace))
    return "" if may_be_json or may_say_no_more else find_text(trace)


def find_text(trace: Trace) -> str:
    """The written answer, with `[n]` for the n-th of `trace.list_sources()`.

    "" where it says no more than the values or a quoted sentence do, where it is marks alone, and where it is JSON: a
    small language model may copy the form that it was asked for elsewhere.
    """
    sources = trace.list_sources()
    said = _fold(CITATION.sub("", trace.text))
    if said in _list_known(trace) or _is_json(CITATION.sub("", trace.text)):
        return ""
    return CITATION.sub(lambda mark: mark[0] if 1 <= int(mark[1]) <= len(sources) else "", trace.text).strip()


def _list_known(trace: Trace) -> set[str]:
    """What a text would say again, folded."""
    return {"", _fold(find_values(trace)), *(_fold(one.sentence) for one in trace.list_evidence())}


def _fold(text: str) -> str:
    """The letters and digits of a text, without case: what a text says, however it is punctuated."""
    return "".join(filter(str.isalnum, text.casefold()))


def _drop_fences(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("```")).strip()


def _is_json(text: str) -> bool:
    """Whether a text is a JSON object or list, in a code fence or without one, or begins like an object."""
    bare = _drop_fences(text)
    if bare.startswith("{"):
        return True
    try:
        return isinstance(json.loads(bare), list)
    except (ValueError, RecursionError):
        return False


def judge_certainty(trace: Trace) -> Certainty:
    """`partial`: a part has no answer, or not its whole one; `doubtful`: what was answered may be wrong."""
    if not find_values(trace):
        return "none"
    cut = any("truncated" in node.detail for node in trace.nodes)
    if trace.deadline_exceeded or cut or any(_list_silent(trace)):
        return "partial"
    return "doubtful" if trace.outcome != "answered" or list_doubts(trace) else "sure"


def list_doubts(trace: Trace) -> list[str]:
    """Sentences that say why an answer is not whole, or not sure; none for one that is both."""
    doubts = ["Time ran out: this is made of what had been found by then."] if trace.deadline_exceeded else []
    for node in trace.nodes:
        if node.answers and "unsupported" in node.detail:
            doubts.append(_describe_support(node, trace.question))
        if "truncated" in node.detail:
            doubts.append(f"Something was cut off: {node.detail['truncated']}.")
        for source, listed in node.detail.get("contradicts", {}).items():
            doubts.append(f"{source} says something else: {join_answers(listed)}.")
    for one in trace.list_evidence():
        if one.probability is not None and one.probability < SURE:
            likely = f"its passage answers this with a probability of only {one.probability:.2f}"
            doubts.append(f"{join_answers(one.answers)} is doubtful: {likely}.")
    doubts += [f"No answer to “{node.asked or node.question}”: {_explain(node)}." for node in _list_silent(trace)]
    if not doubts and trace.outcome == "partial":
        doubts.append(f"Not sure: {trace.reason or 'a part of the way to it failed'}.")
    return list(dict.fromkeys(doubts))


def _describe_support(node: Node, question: str) -> str:
    if node.kind != "direct" and node.detail.get("method") != "own knowledge":
        return f"Not sure: {node.detail['unsupported']}."
    asked = node.asked or node.question
    what = "This" if asked == question else f"The answer to “{asked}”"
    return f"{what} is from the language model's own knowledge, not from the documents."


def _list_silent(trace: Trace) -> Iterator[Node]:
    """The steps that were asked and have no answer. A frame says only that a step inside it has none."""
    frames = {node.parent for node in trace.nodes}
    for node in trace.nodes:
        ended = node.status in ("unanswered", "failed") or node.cause == "too-long"
        if node.kind in ("atomic", "direct") and node.id not in frames and ended:
            yield node


def _list_lost_sources(node: Node) -> list[str]:
    return [source["source"] for source in node.detail.get("sources", ()) if "error" in source]


def _explain(node: Node) -> str:
    """Why a step has no answer."""
    lost = _list_lost_sources(node)
    without = f" ({', '.join(lost)} did not answer)" if lost else ""
    if node.cause == "stopped":
        return "time ran out while it was asked (the limit deadline_ms)"
    if node.cause == "too-long" or node.kind == "direct":
        return node.error or ""
    if node.status == "failed":
        return f"a part of the service failed ({node.error})"
    if not node.documents:
        return f"nothing was found about it{without}"
    if node.detail.get("kept") == []:
        return f"no passage that was found is about it{without}"
    if "generator" not in node.detail and node.error:
        return f"{node.error}{without}"
    clearly = " clearly enough" if "likeliest" in node.detail else ""
    return f"the passages that were read do not say it{clearly}{without}"


def explain_silence(trace: Trace) -> str:
    """Why there is no answer at all, as a clause without a full stop; "" where no step says why."""
    for node in _list_silent(trace):
        asked = node.asked or node.question
        return _explain(node) if asked == trace.question else f"“{asked}”: {_explain(node)}"
    return "time ran out" if trace.deadline_exceeded else ""


def found_nothing(trace: Trace) -> bool:
    """Whether the question was asked as it stands, of all sources, and no passage is about it: it may be none to them
    at all, such as a greeting."""
    silent = [node for node in _list_silent(trace) if node.status == "unanswered" and not _list_lost_sources(node)]
    asked = [node.asked for node in silent if not node.documents or node.detail.get("kept") == []]
    return asked == [trace.question]


def asks_nothing(trace: Trace) -> bool:
    """Whether a language model said that the message asks for no information, so that nothing was searched."""
    return any("asks_nothing" in node.detail for node in trace.nodes)


def is_unclear(trace: Trace) -> bool:
    """Whether the question was not asked, as nobody could tell what of the conversation it refers to."""
    return [(node.kind, node.status) for node in trace.nodes] == [("refine", "unanswered")]
