"""How one node of a tree gets its answer: an operator over sources, child and sibling reasoning, direct RAG.

Every node ends with a sentence and a clean list (AtomR, section 3.3). A node makes at most one generator call: an
operator for which a graph alone has something makes none, and reasoning over children makes none where code is sure of
the answer. A fallback to direct RAG is a node of its own, so that its cost can be seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from revelator.errors import RevelatorError
from revelator.limits import Limits
from revelator.plans.operators import Filter, spell_call
from revelator.tasks import Step
from revelator.trace import Node, Passage
from serving.executor.evidence import Models
from serving.executor.source_answers import drop_copies, weigh_list, write_answer, write_reports
from serving.knowledge.conditions import exclude_named
from serving.knowledge.labels import fold_label
from serving.knowledge.operators import PASSAGES, Query, compute_overlap
from serving.knowledge.sources import CombinedResult, Sources, take_turns
from serving.latency import offload
from serving.merge.compute import compute
from serving.merge.parts import Member, Part, measure_parts
from serving.merge.wording import asks_count, needs_judgement
from serving.protocols import GenerateRequest

_BESIDE = re.compile(r"(?:^[^,]*,|(?<=\))(?:,| or)) (.+?) \(((?:\[\d+\](?:, )?)+)\)")
PASSAGES_READ = 12  # at most so many reach the generator, but one for each entity that is judged


async def run_operator(
    models: Models, sources: Sources, node: Node, query: Query, limits: Limits
) -> CombinedResult | None:
    """Runs a node's operator (or, without one, direct RAG), fills the node, and returns what the sources knew.

    A node without an answer is left unanswered or failed, with the reason.
    """
    if isinstance(query.call, Filter):
        left = await offload(query.characters, partial(exclude_named, query.call.condition, query.call.entities))
        if left is not None:
            write_answer(node, left, "other than", decided=True)
            return None
    result = await sources.gather(query, PASSAGES)
    write_reports(node, result)
    listed = result.typed
    judged = result.passages if isinstance(query.call, Filter) else ()
    said = sum(len(passage.text) for group in judged for passage in group)
    passages = await offload(said, partial(_select_passages, node, query, result, sources.settings.overlap))
    node.documents = passages
    if not passages and not listed:
        is_fault = any(report.error for report in result.reports)
        node.status = "failed" if is_fault else "unanswered"
        node.error = _explain_failure(result, node, sources.settings.overlap)
    elif not (listed and all(passage.id in result.triples for passage in passages)):
        try:
            await _read_passages(models, node, query, passages, limits)
        except RevelatorError as error:
            if not listed:
                raise
            node.detail["unread"] = str(error)
    if listed:
        weigh_list(node, listed, result)
    return result


async def _read_passages(models: Models, node: Node, query: Query, passages: Sequence[Passage], limits: Limits) -> None:
    if len(query.heads) > len(query.texts):
        node.detail["truncated"] = f"{len(query.texts)} of {len(query.heads)} entities were searched for"
    operator = spell_call(query.call) if query.call else ""
    request = GenerateRequest("read", query.question, passages=tuple(passages), operator=operator)
    await models.generate(node, request, limits.answer_floor)
    if isinstance(query.call, Filter):
        await offload(sum(map(len, query.heads)), partial(_keep_entities, node, query.call))


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A sub-question with its answers. `is_last`: no other sub-question of the set used them. `count`: how many things
    a graph found, which may share a name or be more than are listed."""

    question: str
    answers: tuple[str, ...]
    is_last: bool = True
    count: int | None = None


def find_names_beside(question: str) -> dict[int, str]:
    """The name that a `[DR]` question gives each answer: `Which is older, Ada ([1]) or Bo ([2])?` gives 1 Ada, 2 Bo."""
    return {int(number): m[1] for m in _BESIDE.finditer(question) for number in re.findall(r"\d+", m[2])}


async def answer_from_answers(models: Models, node: Node, question: str, known: Sequence[KnownAnswer]) -> None:
    """Answers from the answers of other nodes (one or more): child and sibling answer reasoning.

    An operation that code is sure of (count, compare, intersect, …); else the generator where several answers are to
    be judged or a `[DR]` question asks for more than they say; else the last answers, one after the other.
    """
    parts = [Part((one.question,), (Member({}, one.answers),)) for one in known if one.is_last]
    if merged := await offload(len(question) + measure_parts(parts), partial(compute, question, parts)):
        counts = [one.count for one in known if one.is_last]
        exact = merged.method == "count" and len(counts) == 1 and counts[0] is not None
        write_answer(node, (str(counts[0]),) if exact else merged.answers, merged.method)
        if merged.is_verdict:
            node.detail["verdict"] = True
    elif needs_judgement(question) and len(parts) > 1:
        steps = tuple(Step(one.question, one.answers) for one in known)
        await models.generate(node, GenerateRequest("merge", question, steps=steps))
    else:
        write_answer(node, tuple(dict.fromkeys(a for part in parts for a in part.answers)), "last step")


def answer_from_none(node: Node, question: str) -> None:
    """Answers from sets that are known to be empty: a count is 0, any other answer is empty too."""
    if asks_count(question):
        write_answer(node, ("0",), "count")
    else:
        write_answer(node, (), "last step", decided=True)


def _select_passages(node: Node, query: Query, result: CombinedResult, overlap: float) -> list[Passage]:
    """Selects the passages for the generator; drops the entities of a filter whose passages share too little."""
    groups = result.passages
    if isinstance(query.call, Filter):
        shared = [compute_overlap(text, group) for text, group in zip(query.texts, groups, strict=True)]
        node.detail["overlap"] = {e: round(o, 3) for e, o in zip(query.call.entities, shared, strict=False)}
        groups = tuple(group for group, o in zip(groups, shared, strict=True) if o >= overlap)
    limit = max(PASSAGES_READ, sum(map(bool, groups)))
    return drop_copies(take_turns(groups))[:limit]


def _keep_entities(node: Node, call: Filter) -> None:
    """Keeps those entities of a filter that the reply names: its answer is always a subset of them."""
    said = {fold_label(answer) for answer in node.answers}
    node.answers = [entity for entity in call.entities if fold_label(entity) in said]
    if not node.answers and node.status != "unanswered":
        node.status, node.error = "unanswered", "the reply names none of the entities"


def _explain_failure(result: CombinedResult, node: Node, overlap: float) -> str:
    if any(result.passages):
        best = max(node.detail["overlap"].values())
        return f"overlap below {overlap:g} between every entity's passages and its query (at most {best:g})"
    return f"nothing was found ({result.describe_reports()})"
