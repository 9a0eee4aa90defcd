"""How a leaf of a plan is answered from several sources, and what a graph's list weighs beside what was read.

All selected sources are asked at once: those that search by words for the question, a graph for the one relation that
the model's own operator for the leaf names (`translate_art`), or else the question's words. Their passages, those of a
graph being its triples, are judged and read together into one answer (AtomR, section 3.3; HANRAG, algorithm 1). A
source that fails or is late is named in the trace, and never fails a leaf for which another gave something.

A graph's list is evidence as well. It is exact where the question was linked to the right relation, and whole, which
what passages say of a list seldom is. So it is the answer

* where nothing else that is relevant was found,
* where the reader finds nothing in the passages,
* where it finds something that is on the list: then the whole list is,
* where it finds something else in the list's own triples, and
* where it finds something else of which it is less sure than not (P < 0.5).

Where the reader is sure of something else in another passage, that is the answer, and the trace names the list that it
contradicts. A language model, which gives no probability, counts as sure. A list whose own triples are judged
irrelevant is left out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from revelator.errors import ExpressionError, RevelatorError, Unavailable
from revelator.limits import Limits
from revelator.plans import logic
from revelator.plans.operators import Call, spell_call
from revelator.tasks import TRANSLATE_ART, TRANSLATE_LOGIC, QuestionInput, Task
from revelator.trace import Node, Passage, Usage
from serving.executor.evidence import Models, Report, is_relevant, judge_documents
from serving.executor.model_calls import count_retries, record_call
from serving.knowledge.labels import fold_label
from serving.knowledge.operators import Query, SourceResult, build_direct_query, build_leaf_query
from serving.knowledge.sources import CombinedResult, Sources
from serving.protocols import GenerateRequest

Read = Callable[[], Awaitable[object]]
SURE = 0.5  # P of an answer that the reader holds against a graph's list


async def answer_from_sources(
    models: Models, sources: Sources, node: Node, limits: Limits, report: Report, logical: str | None = None
) -> None:
    """Answers `node.asked` from all selected sources and fills the node with documents, their relevance, sentence,
    answers and usage.

    A `logical` query takes the place of the question's words where texts are searched. Raises what `search_sources`
    raises.
    """
    asked = node.asked or node.question
    query = build_direct_query(asked, node.question)
    if not sources.is_index:
        written = await _write_operator(models, sources, node, asked)
        query = build_leaf_query(node.question, asked, written, sources.settings.own_words)
    if query.call:
        node.detail["call"] = spell_call(query.call)
    if not logical and sources.settings.logic:
        logical = await _write_logical_query(models, node, asked)
    if logical:
        node.detail["logic"] = logical
        query = replace(query, logical=logical)
    result = await search_sources(sources, node, query, limits.documents)
    report("retrieved", node)
    if not node.documents:
        said = "no document was found" if sources.is_index else f"nothing was found ({result.describe_reports()})"
        node.end_without_answer("nothing-found", said)
        return
    kept = await judge_documents(models, node, limits, report)
    listed = result.typed if _is_relevant(node, result, limits) else None
    request = GenerateRequest("read", asked, passages=tuple(kept))
    await read_beside_list(node, listed, result, kept, lambda: models.generate(node, request, limits.answer_floor))
    if not listed and node.status == "unanswered" and (lost := [one.source for one in result.reports if one.error]):
        node.error = f"{node.error}; without {', '.join(lost)}, which failed or came too late"


async def read_beside_list(
    node: Node, listed: SourceResult | None, result: CombinedResult, passages: Sequence[Passage], read: Read
) -> None:
    """Reads passages, unless all of them are a list's own triples, and weighs the list against what was read. Where
    there is a list, a reader that fails is named in the trace."""
    if passages and not (listed and all(passage.id in result.triples for passage in passages)):
        try:
            await read()
        except RevelatorError as error:
            if not listed:
                raise
            node.detail["unread"] = str(error)
    if listed:
        _weigh_list(node, listed, result)


async def search_sources(sources: Sources, node: Node, query: Query, k: int) -> CombinedResult:
    """Asks the sources, and writes into the node the documents that they found for the query's first text, and what
    became of each source. An index alone is one call of the node, `search`.

    Raises its own error where the only source failed; Unavailable where all of several failed or were late.
    """
    if sources.is_index:
        node.usage += Usage(retrievals=1)
        with record_call(node, "search"):
            result = await sources.gather(query, k)
            [report] = result.reports
            if report.retries:
                count_retries(node, report.source, report.retries)
            if report.failure:
                raise report.failure
        _describe_search(node, result)
    else:
        result = await sources.gather(query, k)
        write_reports(node, result)
        if all(report.failure for report in result.reports):
            hint = "ask again; if it stays so, are the sources of the deployment running?"
            raise Unavailable(f"no source answered ({result.describe_reports()})", hint=hint)
    node.documents = drop_copies(result.passages[0])
    return result


async def _write_operator(models: Models, sources: Sources, node: Node, asked: str) -> Call | None:
    """The model's operator for a leaf, where there is a graph to put it to; None where it writes none."""
    if all(source.kind != "graph" for source in sources.all):
        return None
    written = await _translate(models, node, TRANSLATE_ART, asked)
    return written.call if written else None


async def _write_logical_query(models: Models, node: Node, asked: str) -> str:
    """The model's logical query for a leaf, if it joins several terms and can be run; else ""."""
    written = await _translate(models, node, TRANSLATE_LOGIC, asked)
    return logic.render(written) if written and logic.has_conditions(written) else ""


async def _translate(models: Models, node: Node, task: Task, asked: str) -> Any:
    """What the model writes for a leaf; None where it cannot be read: the question's own words stand in for it."""
    [output] = await models.complete(node, task.name, [QuestionInput(asked)])
    if node.detail.pop("degraded", False):
        return None
    try:
        return task.parse(output)
    except ExpressionError:
        return None


def write_reports(node: Node, result: CombinedResult) -> None:
    """Writes into the node which sources were asked, who chose them, and what became of each."""
    node.usage += Usage(retrievals=sum(report.searches for report in result.reports))
    node.detail["sources"] = [report.to_json() for report in result.reports]
    if detail := result.selection.detail:
        node.detail["selection"] = dict(detail)
    if call := result.selection.call:
        node.detail.setdefault("calls", []).append(dict(call))
        node.usage += result.selection.usage
    _describe_search(node, result)


def _describe_search(node: Node, result: CombinedResult) -> None:
    """Writes into the node which words were read as others, and where a logical query scored not all passages."""
    if result.respelled:
        node.detail["respelled"] = dict(result.respelled)
    if result.scored:
        node.detail["scored"] = {name: {"scored": n, "of": count} for name, (n, count) in result.scored.items()}


def _weigh_list(node: Node, listed: SourceResult, result: CombinedResult) -> None:
    """Makes a graph's list the answer of a node, unless what was read contradicts it."""
    agrees = _share_an_answer(node.answers, listed.answers)
    is_sure = node.detail.get("probability", 1.0) >= SURE and node.detail.get("document") not in result.triples
    if node.answers and is_sure and not agrees:
        node.detail["contradicts"] = {result.by: list(listed.answers)}
        return
    sentence = node.sentence
    node.end_well()
    if not agrees:
        node.detail.pop("probability", None)
        sentence, document = "", next((p.id for p in node.documents if p.id in result.triples), None)
        node.detail |= {"document": document} if document else {}
    node.detail.pop("unsupported", None)
    node.detail.pop("verdict", None)
    write_answer(node, listed.answers, result.by, decided=listed.decided)
    node.sentence = sentence or node.sentence
    if listed.truncated:
        node.detail["truncated"] = listed.note


def write_answer(node: Node, answers: Sequence[str], method: str, *, decided: bool = False) -> None:
    """Writes answers and a sentence into the node. `decided`: an empty list is an answer; `detail["none"]` says so."""
    node.answers = list(answers)
    node.sentence = f"{node.asked or node.question} {', '.join(answers) or 'None'}." if answers or decided else ""
    node.detail["method"] = method
    if not answers and decided:
        node.detail["none"] = True
    elif not answers:
        node.end_without_answer("not-said", "no answer was found")


def drop_copies(passages: Sequence[Passage]) -> list[Passage]:
    """Two sources may hold the same passage: the first stays."""
    distinct: dict[tuple[str, str], Passage] = {}
    for passage in passages:
        distinct.setdefault((passage.title, passage.text), passage)
    return list(distinct.values())


def _is_relevant(node: Node, result: CombinedResult, limits: Limits) -> bool:
    """Whether there is a graph's list, with triples that were not judged irrelevant."""
    triples = [passage for passage in node.documents if passage.id in result.triples]
    return bool(result.answers and triples) and all(is_relevant(p, limits.relevance_floor) for p in triples)


def _share_an_answer(read: Sequence[str], listed: Sequence[str]) -> bool:
    """Whether one of the answers that were read is on the list, or is a part of one that is, or holds it: "Quill" is
    "Ada Quill", and 1987 the year of "12 May 1987"."""
    said, known = ({f" {fold_label(answer)} " for answer in answers} for answers in (read, listed))
    return any(one in other or other in one for one in said for other in known)
