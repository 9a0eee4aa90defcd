"""How an operator is answered from the sources, and a node from its children (AtomR, section 3.3).

Each ends with a sentence and a clean list, and makes at most one generator call: an operator for which a graph alone
has something makes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from revelator.limits import Limits
from revelator.plans.operators import Filter, spell_call
from revelator.trace import Node, Passage
from serving.executor.evidence import Models
from serving.executor.source_answers import drop_copies, read_beside_list, write_answer, write_reports
from serving.knowledge.conditions import exclude_named
from serving.knowledge.labels import fold_label
from serving.knowledge.operators import PASSAGES, Ids, Query, compute_overlap
from serving.knowledge.sources import CombinedResult, Sources, take_turns
from serving.latency import offload
from serving.protocols import GenerateRequest

PASSAGES_READ = 12  # at most so many reach the generator, but one for each entity that is judged


async def run_operator(models: Models, sources: Sources, node: Node, query: Query, limits: Limits) -> None:
    """Runs a node's operator (or, without one, direct RAG) and fills the node, with who its answers are where a graph
    knows. A node without an answer is left unanswered or failed, with the reason.
    """
    settings = sources.settings
    if isinstance(query.call, Filter) and settings.conditions:
        left = await offload(query.characters, partial(exclude_named, query.call.condition, query.call.entities))
        if left is not None:
            write_answer(node, left, "other than", decided=True)
            _write_ids(node, query.ids)
            return
    result = await sources.gather(query, PASSAGES)
    write_reports(node, result)
    listed = result.typed if settings.conditions or not isinstance(query.call, Filter) else None
    judged = result.passages if isinstance(query.call, Filter) else ()
    said = sum(len(passage.text) for group in judged for passage in group)
    passages = await offload(said, partial(_select_passages, node, query, result, settings.overlap))
    node.documents = passages
    if not passages and not listed:
        is_fault = any(report.error for report in result.reports)
        why = _explain_failure(result, node, settings.overlap)
        node.end_without_answer("fault" if is_fault else "nothing-found", why)
        return
    read = partial(_read_passages, models, node, query, passages, limits)
    await read_beside_list(node, listed, result, passages, read)
    if listed and node.detail.get("method") == result.by:
        _write_ids(node, result.ids)
        if listed.count is not None:
            node.detail["count"] = listed.count


async def _read_passages(models: Models, node: Node, query: Query, passages: Sequence[Passage], limits: Limits) -> None:
    if len(query.heads) > len(query.texts):
        node.detail["truncated"] = f"{len(query.texts)} of {len(query.heads)} entities were searched for"
    operator = spell_call(query.call) if query.call else ""
    request = GenerateRequest("read", query.question, passages=tuple(passages), operator=operator)
    await models.generate(node, request, limits.answer_floor)
    if isinstance(query.call, Filter):
        await offload(sum(map(len, query.heads)), partial(_keep_entities, node, query.call))


def _write_ids(node: Node, ids: Ids) -> None:
    """Writes the identifiers of the answers into the trace, so that a plan that is run again can reuse them."""
    if any(ids.values()):
        node.detail["ids"] = {source: {name: list(iris) for name, iris in of.items()} for source, of in ids.items()}


def collect_ids(nodes: Iterable[Node]) -> Ids:
    """The identifiers of what the nodes answered, by source and name."""
    merged: dict[str, dict[str, tuple[str, ...]]] = {}
    for node in nodes:
        for source, names in node.detail.get("ids", {}).items():
            merged.setdefault(source, {}).update({name: tuple(iris) for name, iris in names.items()})
    return merged


def answer_from_children(node: Node, last: Sequence[Node]) -> None:
    """Answers a node from its children, `last` being those that no other one uses: with their answers, one after the
    other. Of children that are known to have none there are none."""
    if last and all("none" in one.detail for one in last):
        write_answer(node, (), "last step", decided=True)
    elif last and all(one.answers for one in last):
        write_answer(node, tuple(dict.fromkeys(answer for one in last for answer in one.answers)), "last step")
    else:
        node.end_without_answer("no-answer-before", "no answer to draw it from")
    _write_ids(node, collect_ids(last))


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
        node.end_without_answer("not-said", "the reply names none of the entities")


def _explain_failure(result: CombinedResult, node: Node, overlap: float) -> str:
    if any(result.passages):
        best = max(node.detail["overlap"].values())
        return f"overlap below {overlap:g} between every entity's passages and its query (at most {best:g})"
    return f"nothing was found ({result.describe_reports()})"
