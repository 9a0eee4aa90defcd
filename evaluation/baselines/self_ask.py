"""Self-Ask with search (Press et al. 2023, arXiv 2210.03350, section 3): the language model asks itself follow-up
questions one at a time until it says that it can answer; each one is answered by one step of retrieval.

As published the search engine answers a follow-up; here our generator reads the answer from the passages, as it does in
every other system.
"""

from __future__ import annotations

import re

from evaluation.baselines.steps import merge, read, step, write
from serving.executor.run import Run

K = 3  # passages a follow-up
FOLLOW_UP = re.compile(r"follow[- ]?up\s*:\s*(.+)", re.IGNORECASE)


async def self_ask(run: Run) -> None:
    while len(run.steps) < run.limits.steps:
        said = FOLLOW_UP.search(await write(run, "self_ask", question=run.question, steps=[vars(s) for s in run.steps]))
        asked = said[1].strip() if said else ""
        if not asked or asked in {s.question for s in run.steps}:
            break
        run.steps.append(step(await read(run, asked, K)))
    node = await merge(run, run.question, run.steps) if run.steps else await read(run, run.question, K)
    run.answer(node.answers, node.sentence)
