"""Iter-RetGen (Shao et al. 2023, arXiv 2305.15294, section 3): the answer of one round is added to the question for the
search of the next. Every round reads the whole question anew from what that search found.
"""

from __future__ import annotations

from evaluation.baselines.steps import read
from revelator.trace import join_answers
from serving.executor.run import Run

K = 5
ROUNDS = 3  # the paper's figures rise little after the second


async def iter_retgen(run: Run) -> None:
    said = ""
    for _ in range(min(ROUNDS, run.limits.steps)):
        node = await read(run, run.question, K, query=f"{run.question} {said}".strip())
        run.answer(node.answers, node.sentence)
        if (node.sentence or join_answers(node.answers)) == said:
            break  # the next search would be the same
        said = node.sentence or join_answers(node.answers)
