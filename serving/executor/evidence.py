"""Evidence for one leaf: judge the documents that were found, and read an answer from those that are relevant (HANRAG,
algorithm 1); or copy the answer from where the same was asked before, in this plan or in an earlier trace.

A leaf is left unanswered, and what depends on it is not asked, where no document is relevant, and where the likeliest
answer is too unlikely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np

from revelator.computing.values import says_value
from revelator.errors import ServingError
from revelator.limits import ANSWER_CHARACTERS, ANSWERS, Limits
from revelator.node_detail import Detail
from revelator.sentences import split_sentences
from revelator.trace import EventKind, Node, Passage, Trace, Usage, join_answers
from serving.circuit_breaker import CircuitBreaker
from serving.executor.model_calls import complete_task, count_retries, record_call
from serving.knowledge.labels import fold_label
from serving.latency import offload
from serving.protocols import GenerateRequest, Generator, Judge, Reading, Revelator
from serving.retrieval.fusion import fuse_ranks

Report = Callable[[EventKind, Node], None]
PASSAGE_CHARACTERS = 100_000  # of each passage that is read
VALUE_CHARACTERS = 10_000  # of a passage in which a date or quantity of another form is looked for: 0.1 s


@dataclass(frozen=True)
class Models:
    """The models that every route calls. Reading has a circuit breaker."""

    revelator: Revelator
    generator: Generator
    judge: Judge
    reading_breaker: CircuitBreaker = field(default_factory=lambda: CircuitBreaker("the generator"))

    async def generate(self, node: Node, request: GenerateRequest, floor: float = 0.0) -> Reading:
        """Writes the generator's reading into `node`, and returns it. Without answers, or with a probability below
        `floor`, the node is left unanswered, with the reason. Of a passage the first `PASSAGE_CHARACTERS` are read."""
        cut = [replace(passage, text=passage.text[:PASSAGE_CHARACTERS]) for passage in request.passages]
        request = replace(request, passages=tuple(cut))
        with record_call(node, request.mode) as call:
            call["passages"] = len(request.passages)
            reading = await self.reading_breaker.call(
                lambda: self.generator.answer(request), lambda: count_retries(node, "generator", 1)
            )
            call |= {"tokens_in": reading.tokens_in, "tokens_out": reading.tokens_out}
        node.usage += Usage(tokens_in=reading.tokens_in, tokens_out=reading.tokens_out, generator_calls=1)
        node.sentence = reading.sentence
        node.detail["generator"] = reading.method
        if reading.model:
            node.detail["reader"] = reading.model
        if reading.is_degraded:
            node.detail["degraded"] = True
        if (size := sum(map(len, reading.answers))) > ANSWER_CHARACTERS:
            raise ServingError(f"the answers have {size} characters; at most {ANSWER_CHARACTERS} are taken")
        node.answers = list(dict.fromkeys(reading.answers))
        if len(node.answers) > ANSWERS:
            node.detail["truncated"] = f"of {len(node.answers)} answers the first {ANSWERS} were taken"
            node.answers = node.answers[:ANSWERS]
        node.detail.pop("verdict", None)  # of an earlier reading
        node.detail.pop("likeliest", None)
        if reading.is_verdict:
            node.detail["verdict"] = True
        if reading.probability is not None:
            node.detail["probability"] = round(reading.probability, 4)
        if not node.answers:
            node.end_without_answer("not-said", reading.reason or "no answer was found")
        elif reading.probability is not None and reading.probability < floor:
            likeliest = f"the likeliest answer, {join_answers(node.answers)}, has P = {reading.probability:.2g}"
            node.end_without_answer("unlikely", f"{likeliest}; the limit answer_floor is {floor:g}")
            node.detail["likeliest"] = node.answers
            node.answers, node.sentence = [], ""
        elif request.mode == "direct":
            node.detail["unsupported"] = "answered without documents"
        elif request.mode == "read":
            await _name_document(node, reading, request.passages)
        return reading

    async def complete(self, node: Node, task: str, inputs: Sequence[object], temperature: float = 0.0) -> list[str]:
        """Puts a task to the revelator; result and errors are those of `complete_task`."""
        return await complete_task(self.revelator, node, task, inputs, temperature)


async def _name_document(node: Node, reading: Reading, passages: Sequence[Passage]) -> None:
    """Writes into the node's detail which passage holds its answers, and why an answer is unsupported that none holds.

    It is the passage that the reading names, if that holds one of them; else the first that holds most of them. So is
    the sentence: the reading's, if that holds one of them, else the first of the passage that holds most. A language
    model may name a passage or a sentence that does not say its answer, so what it names is checked; a verdict, which
    nobody writes down, has the passage that the reading names.
    """
    if reading.document:
        node.detail["document"] = reading.document
    if reading.is_verdict or (reading.document and not reading.model):  # the embedded reader marks what it answers
        return
    each = 100 * len(node.answers)  # each answer takes 0.2 ms, for its date or quantity is read as well
    said = sum(each + len(passage.text) for passage in passages)
    held = await offload(said, partial(_find_held_answers, node.answers, passages))
    if any(held):
        named = [place for place, passage in enumerate(passages) if passage.id == reading.document and held[place]]
        place = named[0] if named else held.index(max(held, key=len))
        text, of_text = passages[place].text, held[place]
        node.detail["document"] = passages[place].id
        if (reading.document and not named) or not _find_said_answers(of_text, node.sentence):
            node.sentence = await offload(each + len(text), partial(_find_sentence, of_text, text))
    if lost := set(node.answers).difference(*held):
        missing = [answer for answer in node.answers if answer in lost]
        node.detail["unsupported"] = f"no passage that was read says {join_answers(missing)}"


def _find_held_answers(answers: Sequence[str], passages: Sequence[Passage]) -> list[list[str]]:
    """The answers that each passage says, its title included."""
    return [_find_said_answers(answers, f"{passage.title}\n{passage.text}") for passage in passages]


def _find_said_answers(answers: Sequence[str], text: str) -> list[str]:
    """The answers that a text says: in these words, or as the same date or quantity in another form."""
    folded = _fold(text)
    return [answer for answer in answers if _fold(answer) in folded or says_value(text[:VALUE_CHARACTERS], answer)]


def _find_sentence(answers: Sequence[str], text: str) -> str:
    """The first sentence of a text that says most of the answers; "" where none says one."""
    sentences = split_sentences(text)
    counts = [len(_find_said_answers(answers, sentence)) for sentence in sentences]
    return sentences[counts.index(max(counts))] if any(counts) else ""


def _fold(text: str) -> str:
    """The text without case, accents and punctuation, and with a space at both ends: one that holds another holds it
    as whole words."""
    return f" {fold_label(text)} "


async def judge_documents(models: Models, node: Node, limits: Limits, report: Report) -> list[Passage]:
    """Lets the judge judge the node's documents, and returns those to be read; where there are none, the node is
    unanswered.

    They are the first `limits.kept` of those whose P(yes) reaches the threshold, in the order of `rank_by_both`; where
    none does, of those above the floor, and the node's detail says so. Of documents that stay unjudged they are the
    first.
    """
    likely = await models.judge.judge(node, node.asked or node.question, node.documents)
    if likely is not None:
        node.documents = [replace(p, relevance=yes) for p, yes in zip(node.documents, likely, strict=True)]
    possible = [p for p in rank_by_both(node.documents) if is_relevant(p, limits.relevance_floor)]
    relevant = [p for p in possible if is_relevant(p, limits.relevance_threshold)]
    kept = (relevant or possible)[: limits.kept]
    node.detail["kept"] = [p.id for p in kept]
    if kept and not relevant:
        node.detail["relevance"] = "none of the documents reaches the threshold: those above the floor were read"
    report("judged", node)
    if not kept:
        likeliest = f"no document is relevant: the likeliest has P = {max(likely or [0]):.2g}"
        said = f"{likeliest}; the limit relevance_floor is {limits.relevance_floor:g}"
        node.end_without_answer("not-relevant", said)
    return kept


def rank_by_both(found: Sequence[Passage]) -> list[Passage]:
    """The passages in the order of two rankings: that in which they were found, and that of their relevance."""
    if not found:
        return []
    by_relevance = np.argsort([-(passage.relevance or 0.0) for passage in found], kind="stable")
    _, places = fuse_ranks([np.arange(len(found)), by_relevance])
    return [found[place] for place in places]


def is_relevant(passage: Passage, least: float) -> bool:
    """Whether a passage has at least this probability, or was never judged."""
    return passage.relevance is None or passage.relevance >= least


async def answer_from_own_knowledge(models: Models, node: Node) -> None:
    """Asks a language model what no document answered; where it knows nothing either, the node's reason stays."""
    cause, reason = node.cause, node.error
    await models.generate(node, GenerateRequest("direct", node.asked or node.question))
    if node.answers:
        node.end_well()
        node.detail |= {"unsupported": f"from the language model's own knowledge: {reason}", "method": "own knowledge"}
        node.detail.pop("document", None)
    else:
        node.cause, node.error = cause, reason


def copy_answer(node: Node, other: Node, how: str) -> None:
    """Copies into `node` what `other` found, at no cost; `node.detail[how]` names `other`."""
    node.documents = list(other.documents)
    node.sentence = other.sentence
    node.answers = list(other.answers)
    node.status, node.cause, node.error = other.status, other.cause, other.error
    inner = ("shared_from", "reused_from", "cached_from", "retries", "calls", "fallback", "step")
    node.detail |= cast(Detail, {k: v for k, v in other.detail.items() if k not in inner} | {how: other.id})


def find_reusable_nodes(trace: Trace) -> Mapping[str, Node]:
    """The leaves of a trace that were answered from documents, by question, and the operators of a tree that sources
    answered, by key.

    Leaves that were computed from the answers of others are left out: the same words may mean other values now.
    """
    ended = [node for node in trace.nodes if node.kind == "atomic" and node.status == "ok" and node.answers]
    found = [n for n in ended if n.detail.get("method", "generator") == "generator" or "sources" in n.detail]
    leaves = {n.asked: n for n in found if n.asked}
    return leaves | {n.detail["key"]: n for n in found if "key" in n.detail and "sources" in n.detail}
