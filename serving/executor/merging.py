"""What the reader makes of the answers of a question's steps, and the text of an answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from revelator.tasks import Step
from revelator.trace import Node, list_evidence, merge_evidence
from serving.executor.run import QuestionRun
from serving.knowledge.sources import take_turns
from serving.protocols import GenerateRequest

log = logging.getLogger(__name__)

LAST = "last stage"  # the method of an answer that is a chain's last value
CITATION = re.compile(r" ?\[(\d{1,4})\]")
PIECE_CHARACTERS = 20  # by which a text has grown when it is reported: each report holds the whole of it


async def merge_steps(run: QuestionRun) -> None:
    """Makes the answer of the loop: what the reader makes of its steps, else the last step's own.

    A last step without an answer leaves the others without the question that they lead to: none of them is the answer.
    """
    node = run.open("merge")
    known = tuple(step for step in run.steps if step.answers)
    with run.recorder.record(node):
        if known:
            await _merge(run, node, known)
        if not node.answers:
            node.answers = list(run.steps[-1].answers) if run.steps else []
            node.detail["method"] = LAST
        run.answer(node.answers)


async def judge_answers(run: QuestionRun, node: Node, answered: Sequence[Node]) -> None:
    """What the reader makes of the question and of what these nodes answered; where it makes nothing, as the embedded
    one, what it reads in the passages that they were answered from, the best of each first. The question is that of
    the node, where it has one of its own."""
    steps = tuple(Step(one.asked or one.question, tuple(one.answers)) for one in answered)
    await _merge(run, node, steps)
    if node.answers or node.cause:
        return
    found = [({passage.id: passage for passage in one.documents}, one.detail.get("kept", ())) for one in answered]
    kept = [[documents[id] for id in ids if id in documents] for documents, ids in found]
    passages = tuple({passage.id: passage for passage in take_turns(kept)}.values())[: run.limits.documents]
    if not passages:
        return
    node.documents = list(passages)
    await _ask_reader(run, node, GenerateRequest("read", node.asked or run.question, passages=passages))
    if node.answers:
        node.detail["method"] = "read from the passages of the parts"
    else:
        node.documents, node.sentence = [], ""


async def _merge(run: QuestionRun, node: Node, steps: tuple[Step, ...]) -> None:
    """Asks the reader to make one answer of what these steps answered; where it makes none, nothing is lost."""
    node.detail["method"] = "generator"
    await _ask_reader(run, node, GenerateRequest("merge", node.asked or run.question, steps=steps))
    if not node.answers and node.cause != "fault":
        node.end_well()


async def _ask_reader(run: QuestionRun, node: Node, request: GenerateRequest) -> None:
    """Asks the reader; that it fails is the node's fault alone."""
    try:
        await run.models.generate(node, request, run.limits.answer_floor)
    except Exception as error:
        log.warning("the reader failed to %s: %s: %s", request.mode, type(error).__name__, error)
        node.fail(error)


async def write_text(run: QuestionRun) -> None:
    """Writes the text of an answer that stands on passages, with citations; without passages, nothing is written.

    One step's sentence is the text, unless a style is wanted, else a language model writes it from what the steps have
    found (QCompiler, section 3; HANRAG, algorithm 2). The text says the values, and never changes them. It is reported
    as it is written. Where the language model fails, or time runs out, what was written so far ends with "…"; without
    any of it, the answer stays without a text.
    """
    trace, nodes = run.recorder.trace, run.recorder.nodes()
    evidence = merge_evidence(list_evidence(nodes))
    if not trace.answers or not evidence:
        return
    told = [node for node in nodes if "abandoned" not in node.detail]
    steps = [node for node in told if node.kind == "atomic" and node.asked and node.answers]  # no frame of a fan-out
    if not run.style and len(steps) == 1 and steps[0].sentence and steps[0].answers == trace.answers:
        trace.text = f"{' '.join(steps[0].sentence.split())} [1]"
        return
    node = run.open("write")
    known = tuple(Step(step.asked or "", tuple(step.answers)) for step in steps)
    values = Step(run.question, tuple(trace.answers))
    passages = tuple(one.passage for one in evidence)
    run.recorder.report("written", trace)

    def report_text(text: str) -> None:
        said = drop_unknown_citations(_end_at_letter(text), len(evidence))
        if len(said) >= len(trace.text) + PIECE_CHARACTERS:
            trace.text = said
            run.recorder.report("written", trace)

    request = GenerateRequest(
        "compose", run.question, passages, (*known, values), style=run.style, listener=report_text
    )
    is_whole = False
    try:
        with run.recorder.record(node):
            await run.models.generate(node, request)
            trace.text = drop_unknown_citations(node.sentence, len(evidence))
            node.sentence, node.answers = trace.text, []
            is_whole = True
    except Exception as error:
        log.warning("the text of the answer failed: %s: %s", type(error).__name__, error)
    finally:
        if trace.text and not is_whole:
            trace.text += " …"


def _end_at_letter(text: str) -> str:
    """The text up to its last letter: no citation, mark of a quotation or of code is cut in two there."""
    end = len(text)
    while end and not text[end - 1].isalpha():
        end -= 1
    return text[:end]


def drop_unknown_citations(text: str, count: int) -> str:
    """The text without citations of passages that there are not; `count` is the number of the last."""
    return CITATION.sub(lambda found: found[0] if 1 <= int(found[1]) <= count else "", text)
