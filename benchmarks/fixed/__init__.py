"""Plans, and services whose every leaf takes the same time: what the benchmarks of executors run."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from revelator.limits import Limits
from revelator.plans import Expression, bind, list_leaves, parse, substitute
from revelator.trace import Node, Passage
from serving.executor.evidence import Models
from serving.executor.judges import RevelatorJudge
from serving.executor.source_answers import answer_from_sources
from serving.knowledge.sources import Sources
from serving.protocols import Completion, GenerateRequest, Reading

LIMITS = Limits(leaves=64, depth=64, concurrency=64)


def choose_answer(question: str) -> str:
    """An answer that the question does not say itself: such a one would be none."""
    return "beta" if "alpha" in question else "alpha"


class FixedServices:
    """Services that take `latency` seconds a leaf, all of it in retrieval, and give one answer each."""

    def __init__(self, latency: float, passages: int) -> None:
        self.latency = latency
        self.passages = passages

    async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
        if self.latency:
            await asyncio.sleep(self.latency)
        # they name what is asked about and state the answer: else the executor reads none, or doubts it
        return [Passage(str(n), query, "alpha beta " * 50) for n in range(self.passages)]

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        return [Completion("yes", {"yes": 0.9, "no": 0.1}) for _ in prompts]

    async def answer(self, request: GenerateRequest) -> Reading:
        return Reading("", (choose_answer(request.question),))


def list_plans() -> dict[str, str]:
    tree = "(Who wrote book{n}? * Where was {{{wrote}}} born? + Where is river{n}?) * Who knows {{{born}}}?"
    trees = [f"({tree.format(n=n, wrote=4 * n + 1, born=4 * n + 2)})" for n in range(16)]
    return {
        "1 leaf": "Who wrote book?",
        "list of 8": " + ".join(f"Who wrote book{n}?" for n in range(8)),
        "list of 64": " + ".join(f"Who wrote book{n}?" for n in range(64)),
        "chain of 8": " * ".join(["Who wrote book?", *(f"Who taught {{{n}}} subject{n}?" for n in range(1, 8))]),
        "tree of 8": " + ".join(trees[:2]),
        "tree of 64": " + ".join(trees),
    }


async def run_sequentially(plan: str, services: FixedServices) -> None:
    """The plan in depth-first order, each leaf after the one before it."""
    expression = parse(plan)
    sources = bind(expression).sources
    models, index = Models(services, services, RevelatorJudge(services)), Sources.of_index(services)
    answers: list[str] = []
    for leaf, source in zip(list_leaves(expression), sources, strict=True):
        asked = substitute(leaf.text, {name: answers[i] for name, i in source.items()})
        node = Node("1", "atomic", leaf.text, asked=asked)
        await answer_from_sources(models, index, node, LIMITS, lambda kind, node: None)
        answers.append(node.answers[0])


def compute_critical_path(expression: Expression, seconds: Mapping[str, float]) -> float:
    """Seconds of the longest chain of leaves, each of which waits for its own producers only."""
    ends: list[float] = []
    for leaf, source in zip(list_leaves(expression), bind(expression).sources, strict=True):
        ends.append(seconds[leaf.text] + max((ends[producer] for producer in source.values()), default=0.0))
    return max(ends)
