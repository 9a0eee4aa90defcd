"""The answer in sentences, with citations: a language model writes it from what the steps have found (QCompiler,
section 3; HANRAG, algorithm 2). Values stay what they were: the text says them, and never changes them.
"""

from __future__ import annotations

import logging
import re

from revelator.tasks import Step
from revelator.trace import list_evidence
from serving.executor.run import Run
from serving.protocols import GenerateRequest

log = logging.getLogger(__name__)
CITATION = re.compile(r" ?\[(\d{1,4})\]")


async def write_text(run: Run) -> None:
    """Writes the text of an answer that stands on passages; without one, nothing is written.

    One step's sentence is the text. Where the language model fails, the answer stays without a text.
    """
    trace, nodes = run.recorder.trace, run.recorder.nodes()
    evidence = list_evidence(nodes)
    if not trace.answers or not evidence:
        return
    steps = [node for node in nodes if node.kind == "atomic" and node.asked and node.answers]  # no frame of a fan-out
    if len(steps) == 1 and steps[0].sentence and steps[0].answers == trace.answers:
        trace.text = f"{steps[0].sentence} [1]"
        return
    node = run.open("write")
    known = tuple(Step(step.asked or "", tuple(step.answers)) for step in steps)
    values = Step(run.question, tuple(trace.answers))
    request = GenerateRequest(
        "compose", run.question, passages=tuple(one.passage for one in evidence), steps=(*known, values)
    )
    try:
        with run.recorder.record(node):
            await run.models.generate(node, request)
            trace.text = drop_unknown_citations(node.sentence, len(evidence))
            node.sentence, node.answers = trace.text, []
    except Exception as error:
        log.warning("the text of the answer failed: %s: %s", type(error).__name__, error)


def drop_unknown_citations(text: str, count: int) -> str:
    """The text without citations of passages that there are not; `count` is the number of the last."""
    return CITATION.sub(lambda found: found[0] if 1 <= int(found[1]) <= count else "", text)
