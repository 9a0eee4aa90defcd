"""The baselines that go several ways at once and choose one: Self-RAG's beam of texts, RQ-RAG's tree of searches."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evaluation.baselines.steps import merge_steps, open_round, prompt_each, search
from revelator.errors import InvalidRequest
from revelator.tasks import Step
from revelator.trace import Node, Passage
from serving.batching import gather_all
from serving.executor.run import QuestionRun
from serving.models.endpoint_revelator import read_probabilities
from serving.protocols import GenerateRequest, Reading

SEGMENTS, BEAMS, RETRIEVE = 2, 2, 0.2  # Self-RAG: depth, width and threshold as QCompiler sets them (appendix G)
SEGMENT_PASSAGES = 5
RELEVANT, SUPPORTED, USEFUL = 1.0, 1.0, 0.5  # weights of the critiques
SUPPORT = {"fully": 1.0, "partially": 0.5, "unsupported": 0.0}
USE = {"1": -1.0, "2": -0.5, "3": 0.0, "4": 0.5, "5": 1.0}
ENDS = re.compile(r"\bso the answer is\b", re.IGNORECASE)

REFINEMENTS = ("rewrite", "decompose", "disambiguate")
DEPTH = 3  # RQ-RAG: refinements one after the other, as QCompiler sets it for HotpotQA (appendix G)
QUERY_PASSAGES = 3

Tokens = tuple[tuple[str, dict[str, float]], ...]
Select = Literal["ensemble", "confidence", "perplexity"]


@dataclass(frozen=True)
class Draft:
    """A text that is being written, and the score of each of its segments."""

    segments: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    has_ended: bool = False

    @property
    def score(self) -> float:
        return sum(self.scores) / len(self.scores)


async def run_self_rag(run: QuestionRun) -> None:
    """Self-RAG (Asai et al. 2023, arXiv 2310.11511, section 3.3): before each segment of its text the model decides
    whether to retrieve. It writes a candidate from each passage, side by side, and judges whether the passage is
    relevant, supports the candidate, and how useful that is. The candidates with the best weighted sums go on.

    Differs: prompts ask a language model for what the paper's model writes as reflection tokens that it was trained
    on; scores are averaged over segments; and a last prompt takes the bare answer from the text.
    """
    drafts = [Draft()]
    for _ in range(min(SEGMENTS, run.limits.steps)):
        drafts = sorted(await _continue_drafts(run, drafts), key=lambda draft: draft.score, reverse=True)[:BEAMS]
        if all(draft.has_ended for draft in drafts):
            break
    node = await merge_steps(run, run.question, [Step(run.question, drafts[0].segments)])
    run.answer(node.answers)


async def _continue_drafts(run: QuestionRun, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts with each candidate for their next segment; those that have ended as they are."""
    left = [draft for draft in drafts if not draft.has_ended]
    asked = {"question": run.question}
    decisions = await prompt_each(run, "self_rag_retrieve", [asked | {"text": draft.segments} for draft in left])
    searching = [d for d, said in zip(left, decisions, strict=True) if weigh(said, ("yes", "no"))["yes"] > RETRIEVE]
    nodes = open_round(run, "atomic", [" ".join([run.question, *draft.segments[-1:]]) for draft in searching])
    await gather_all([_search(run, node, SEGMENT_PASSAGES) for node in nodes])
    found: dict[Draft, list[Passage]] = {draft: node.documents for draft, node in zip(searching, nodes, strict=True)}
    nothing: list[Passage | None] = [None]
    pairs = [(draft, passage) for draft in left for passage in found.get(draft) or nothing]
    values = [asked | {"text": draft.segments, "passage": _show(passage)} for draft, passage in pairs]
    written = await prompt_each(run, "self_rag_segment", values)
    values = [value | {"segment": said.sentence} for value, said in zip(values, written, strict=True)]
    judged = await prompt_each(run, "self_rag_critique", values)
    ways = zip(pairs, written, judged, strict=True)
    return [draft for draft in drafts if draft.has_ended] + [
        Draft(
            (*draft.segments, *filter(None, [said.sentence])),
            (*draft.scores, score_segment(said, critique, has_passage=passage is not None)),
            not said.sentence or bool(ENDS.search(said.sentence)),
        )
        for (draft, passage), said, critique in ways
    ]


def score_segment(written: Reading, critique: Reading, *, has_passage: bool) -> float:
    """How likely the segment is, and the weighted sum of its critiques (Self-RAG, section 3.3)."""
    score = measure_confidence(written.tokens) + USEFUL * _expect(critique, USE)
    if has_passage:
        score += RELEVANT * weigh(critique, ("relevant", "irrelevant"))["relevant"]
        score += SUPPORTED * _expect(critique, SUPPORT)
    return score


def _expect(reading: Reading, values: dict[str, float]) -> float:
    """The mean of the choices' values, by their shares."""
    return sum(values[label] * share for label, share in weigh(reading, tuple(values)).items())


def weigh(reading: Reading, labels: tuple[str, ...]) -> dict[str, float]:
    """The share of each choice: by the log probabilities of its tokens, else 1 for the one that was written. Where
    none was, all are equal."""
    said = next((label for label in labels if re.search(rf"\b{label}\b", reading.sentence, re.IGNORECASE)), None)
    return read_probabilities(said, labels, reading.tokens) if said else dict.fromkeys(labels, 1 / len(labels))


def measure_confidence(tokens: Tokens) -> float:
    """The geometric mean of the tokens' probabilities; 1 where an endpoint gives none."""
    return math.exp(sum(likely[token] for token, likely in tokens) / len(tokens)) if tokens else 1.0


@dataclass(frozen=True)
class Trajectory:
    """Queries one after the other, the passages that they found, and what was answered from these. `tokens` are those
    of the queries, `said` those of the answer."""

    queries: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()
    answers: tuple[str, ...] = ()
    tokens: Tokens = ()
    said: Tokens = ()


async def run_rq_rag(run: QuestionRun, select: Select) -> None:
    """RQ-RAG (Chan et al. 2024, arXiv 2404.00610): a tree of trajectories. At each step the model
    rewrites, decomposes or disambiguates the question into one more query, whose passages are added, or ends and
    answers; all of these are tried up to a depth. The answer is that of the trajectory whose answer is most likely
    (`confidence`) or whose text has the lowest perplexity, or the one that trajectories give with the greatest
    confidence together (`ensemble`).

    Differs: prompts ask a language model for what the paper's model was trained to write. Where the endpoint gives no
    log probabilities, the ensemble is a vote, and the other two are refused.
    """
    node = run.open("direct")
    with run.recorder.record(node):
        reading = await run.models.generate(node, GenerateRequest("direct", run.question, logprobs=True))
    if select != "ensemble" and not reading.tokens:
        raise InvalidRequest(f"the endpoint gives no log probabilities for {select}", hint="rq-rag takes a vote")
    tree = level = [Trajectory(answers=tuple(node.answers), said=reading.tokens)]
    for _ in range(min(DEPTH, run.limits.steps)):
        level = await _refine_each(run, level)
        tree = tree + level
    run.answer(choose_answers([one for one in tree if one.answers], select))


async def _refine_each(run: QuestionRun, level: Sequence[Trajectory]) -> list[Trajectory]:
    """Each trajectory with one more query, of each kind that gives a new one, and its own answer."""
    ways = [(one, kind) for one in level for kind in REFINEMENTS]
    values = [
        {
            "question": run.question,
            "queries": one.queries,
            "passages": [_show(passage) for passage in one.passages],
            "refinement": kind,
        }
        for one, kind in ways
    ]
    written = await prompt_each(run, "rq_rag", values)
    longer: dict[tuple[str, ...], tuple[Trajectory, Tokens]] = {}
    for (one, _), said in zip(ways, written, strict=True):
        query = said.sentence.partition("\n")[0].strip()
        if query and query not in one.queries:
            longer.setdefault((*one.queries, query), (one, one.tokens + said.tokens))
    nodes = open_round(run, "atomic", [queries[-1] for queries in longer])
    return await gather_all(
        [
            _answer_trajectory(run, node, queries, one.passages, tokens)
            for node, (queries, (one, tokens)) in zip(nodes, longer.items(), strict=True)
        ]
    )


async def _answer_trajectory(
    run: QuestionRun, node: Node, queries: tuple[str, ...], known: Sequence[Passage], tokens: Tokens
) -> Trajectory:
    with run.recorder.record(node):
        await search(run, node, queries[-1], QUERY_PASSAGES)
        passages = tuple({(p.title, p.text): p for p in (*known, *node.documents)}.values())
        reading = await run.models.generate(
            node, GenerateRequest("read", run.question, passages=passages, logprobs=True)
        )
    return Trajectory(queries, passages, tuple(node.answers), tokens, reading.tokens)


def choose_answers(answered: Sequence[Trajectory], select: Select) -> tuple[str, ...]:
    """The answers of the trajectory that is selected; () where none answers."""
    if not answered:
        return ()
    if select == "confidence":
        return max(answered, key=lambda one: measure_confidence(one.said)).answers
    if select == "perplexity":  # the inverse of the confidence of the whole text
        return max(answered, key=lambda one: measure_confidence(one.tokens + one.said)).answers
    together: dict[tuple[str, ...], float] = defaultdict(float)
    for one in answered:
        together[one.answers] += measure_confidence(one.said)
    return max(together, key=together.__getitem__)


async def _search(run: QuestionRun, node: Node, k: int) -> None:
    with run.recorder.record(node):
        await search(run, node, node.question, k)


def _show(passage: Passage | None) -> dict[str, str] | None:
    return {"title": passage.title, "text": passage.text} if passage else None
