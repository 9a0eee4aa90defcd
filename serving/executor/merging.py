"""How the answers of a question's parts become its own: by code where code is sure, else by the generator; and the text
of an answer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import partial

from revelator.tasks import Step
from revelator.trace import Node, list_evidence, merge_evidence
from serving.executor.run import QuestionRun
from serving.executor.scheduler import PlanRun
from serving.knowledge.sources import take_turns
from serving.latency import offload
from serving.merge.compute import compute
from serving.merge.parts import Member, MergedAnswer, Part, measure_parts
from serving.merge.wording import can_be_read, needs_judgement
from serving.protocols import GenerateRequest

log = logging.getLogger(__name__)

LAST = "last stage"  # the method of an answer that is a chain's last value
CITATION = re.compile(r" ?\[(\d{1,4})\]")
PIECE_CHARACTERS = 20  # by which a text has grown when it is reported: each report holds the whole of it


async def merge_plan(run: QuestionRun, plan: PlanRun) -> None:
    """Makes the answer of a plan from those of its leaves.

    A tree, and a plan that spells its operations or names its steps by number, answers with its last stage. Of another
    one, a chain answers with its last stage, and its first where the question begins with that; a list with the answers
    of its parts. Where the question compares, counts or judges them, code answers if it is sure, else the generator,
    from what the parts answer or, where it writes nothing, from the passages that they were read from, unless
    `Writing.merge` says otherwise. Code is not sure of a fan-out that a limit cut or that failed in part.
    """
    if plan.graph.is_explicit:
        ended = [one for step in plan.graph.results for one in plan.list_answered_calls(step)]
        run.answer(list(dict.fromkeys(answer for one in ended for answer in one.answers)))
        return
    node = run.open("merge")
    with run.recorder.record(node):
        parts = plan.make_parts()
        by_code, written = await _answer_by_code(run.question, parts), None
        is_open = by_code is None and run.route != "compound" and needs_judgement(run.question)
        if run.writing.merge == "generator" or (run.writing.merge == "auto" and is_open):
            written = await _answer_by_generator(run, node, _list_answered_steps(plan))
            if is_open and written is None and _differ(parts):
                written = await _read_again(run, node, plan, parts)
        if is_open and written is None and sum(bool(part.answers) for part in parts) > 1:
            node.detail["unsupported"] = "what the parts answer could not be put together: their answers are listed"
        merged = written or by_code or _list_answers(parts)
        if merged.method == LAST and merged.answers and (opening := _find_opening_answers(run.question, plan)):
            merged = MergedAnswer(tuple(dict.fromkeys((*opening, *merged.answers))), "first and last stage")
        _write_answer(run, node, merged)


def _find_opening_answers(question: str, plan: PlanRun) -> tuple[str, ...]:
    """The answers of a chain's first leaf if it is a question that the question begins with, so that they were asked
    for, too: "Who leads Tern, and where did she study?", but not "Where did the leader of Tern study?"."""
    first = plan.steps[0].text.rstrip("? ")
    rest = question[len(first) :]
    goes_on = rest.startswith(("?", ",", " and ")) and rest.strip("? ")
    if len(plan.steps) == 1 or not question.startswith(first) or not goes_on:
        return ()
    return tuple(answer for call in plan.list_answered_calls(0) for answer in call.answers)


async def merge_steps(run: QuestionRun) -> None:
    """Makes the answer of the loop: by an operation over its steps, by the generator, or with the last step's own.

    A last step without an answer leaves the others without the question that they lead to: none of them is the answer.
    """
    node = run.open("merge")
    known = [step for step in run.steps if step.answers]
    parts = [Part((step.question,), (Member({}, step.answers),)) for step in known]
    whole = known[-1:] == run.steps[-1:]
    with run.recorder.record(node):
        sure = whole and len(parts) > 1 and run.writing.merge != "generator"
        merged = await _try_operations(run.question, parts) if sure else None
        if merged is None and run.writing.merge != "code":
            merged = await _answer_by_generator(run, node, tuple(known))
        _write_answer(run, node, merged or _list_answers(parts[-1:] if whole else []))


async def merge_at_deadline(run: QuestionRun) -> None:
    """Makes an answer from what has been found, without another call, for a question whose time ran out."""
    if run.plan is not None and run.plan.graph.is_explicit:
        await merge_plan(run, run.plan)
    elif run.plan is not None:
        node = run.open("merge")
        with run.recorder.record(node):
            parts = run.plan.make_parts()
            _write_answer(run, node, await _answer_by_code(run.question, parts) or _list_answers(parts))


async def judge_steps(run: QuestionRun, node: Node, steps: Sequence[Step]) -> None:
    """What the reader makes of the question and of what these steps answered; nothing where it fails."""
    judged = await _answer_by_generator(run, node, tuple(steps))
    node.answers = list(judged.answers) if judged else []
    node.detail["method"] = judged.method if judged else "generator"


def _list_answered_steps(plan: PlanRun) -> tuple[Step, ...]:
    ended = [one for leaf in range(len(plan.steps)) for one in plan.list_answered_calls(leaf)]
    return tuple(Step(one.node.asked or one.node.question, one.answers) for one in ended)


async def _answer_by_code(question: str, parts: list[Part]) -> MergedAnswer | None:
    merged = await _try_operations(question, parts)
    if merged is None and len(parts) == 1 and (parts[0].whole or not parts[0].answers):
        return MergedAnswer(parts[0].answers, LAST)
    return merged


async def _try_operations(question: str, parts: list[Part]) -> MergedAnswer | None:
    try:
        return await offload(measure_parts(parts), partial(compute, question, parts))
    except Exception:  # values come from documents: what no operation is ready for is judged or listed
        log.exception("operation of the question")
        return None


def _list_answers(parts: list[Part]) -> MergedAnswer:
    return MergedAnswer(tuple(answer for part in parts for answer in part.answers), "all parts")


async def _answer_by_generator(run: QuestionRun, node: Node, steps: tuple[Step, ...]) -> MergedAnswer | None:
    """Asks the generator to merge the answers of the parts."""
    request = GenerateRequest("merge", run.question, steps=steps)
    return await _generate(run, node, request, "generator") if steps else None


async def _read_again(run: QuestionRun, node: Node, plan: PlanRun, parts: Sequence[Part]) -> MergedAnswer | None:
    """Reads the question itself in the passages that its parts were read from, the best of each part first. Returns
    None where what was read cannot be the answer."""
    calls = [one.node for leaf in range(len(plan.steps)) for one in plan.list_answered_calls(leaf)]
    kept = [[p for p in call.documents if p.id in call.detail.get("kept", ())] for call in calls]
    node.documents = list({passage.id: passage for passage in take_turns(kept)}.values())[: run.limits.documents]
    request = GenerateRequest("read", run.question, passages=tuple(node.documents))
    read = await _generate(run, node, request, "read from the passages of the parts") if node.documents else None
    if read:
        check = partial(can_be_read, run.question, [part.questions for part in parts], read.answers)
        if await offload(measure_parts(parts), check):
            return read
    node.documents, node.sentence = [], ""
    node.detail.pop("document", None)
    node.detail.pop("probability", None)
    return None


async def _generate(run: QuestionRun, node: Node, request: GenerateRequest, method: str) -> MergedAnswer | None:
    """Returns None where the generator fails or gives nothing: the answers of the parts are then listed."""
    try:
        await run.models.generate(node, request, run.limits.answer_floor)
    except Exception as error:
        log.warning("merge failed: %s: %s", type(error).__name__, error)
        node.end_without_answer("fault", f"{type(error).__name__}: {error}")
        return None
    if not node.answers:
        node.end_well()  # nothing was lost
        return None
    return MergedAnswer(tuple(node.answers), method)


def _differ(parts: Sequence[Part]) -> bool:
    """Whether each part has answers, and no two the same: reading cannot tell apart what is equal."""
    answers = {part.answers for part in parts}
    return len(parts) > 1 and len(answers) == len(parts) and () not in answers


def _write_answer(run: QuestionRun, node: Node, merged: MergedAnswer) -> None:
    node.answers = list(merged.answers)
    node.detail["method"] = merged.method
    run.answer(merged.answers)


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
    steps = [node for node in nodes if node.kind == "atomic" and node.asked and node.answers]  # no frame of a fan-out
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
