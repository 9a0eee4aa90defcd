"""IRCoT (Trivedi et al. 2023, arXiv 2212.10509, section 3): retrieval and a chain of thought take turns. The first
search is the question, each later one the newest sentence of the thought; the passages pile up, and a reader answers
from all of them at the end.
"""

from __future__ import annotations

import re

from evaluation.baselines.steps import write
from revelator.trace import Passage
from serving.executor.run import Run
from serving.protocols import GenerateRequest

K = 4  # passages a search
MOST = 15  # passages in all
DONE = re.compile(r"\b(?:so )?the answer is\b", re.IGNORECASE)


async def ircot(run: Run) -> None:
    passages: dict[tuple[str, str], Passage] = {}
    thoughts: list[str] = []
    query = run.question
    for _ in range(run.limits.steps):
        node = run.open("atomic", query)
        node.asked = query
        with run.recorder.running(node):
            node.documents = await run.models.search(node, query, K)
        passages |= {(p.title, p.text): p for p in node.documents if len(passages) < MOST}
        read = [{"title": p.title, "text": p.text} for p in passages.values()]
        query = (await write(run, "ircot", question=run.question, passages=read, thoughts=thoughts)).partition("\n")[0]
        if not query or query in thoughts:
            break
        thoughts.append(query)
        if DONE.search(query):
            break
    last = run.open("merge", run.question)
    with run.recorder.running(last):
        await run.models.generate(last, GenerateRequest("read", run.question, tuple(passages.values())[:MOST]))
    run.answer(last.answers, last.sentence)
