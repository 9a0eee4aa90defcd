"""Naive RAG (Lewis et al. 2020, arXiv 2005.11401): one search with the whole question, one reading of `k` passages."""

from __future__ import annotations

from evaluation.baselines.steps import read
from serving.executor.run import Run


async def naive_5(run: Run) -> None:
    await _naive(run, 5)


async def naive_10(run: Run) -> None:
    await _naive(run, 10)


async def _naive(run: Run, k: int) -> None:
    node = await read(run, run.question, k)
    run.answer(node.answers, node.sentence)
