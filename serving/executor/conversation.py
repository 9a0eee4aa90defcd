"""A message in a conversation becomes a question that can be understood without it."""

from __future__ import annotations

from collections.abc import Sequence

from revelator.errors import InvalidRequest, TaskOutputError
from revelator.tasks import TASKS, Step, StepsInput
from revelator.tasks.task import UNKNOWN
from revelator.trace import Node
from serving.executor.run import QuestionRun
from serving.protocols import GenerateRequest

TURNS, TURN_CHARACTERS = 10, 500  # of a conversation: what a language model reads to see what a question refers to
RECENT = 3  # of the turns: what the revelator reads of them
REWRITE = "rewrite"
UNCLEAR = (
    "the question can only be understood from what was said before, and it is not clear how ({reason}): "
    'ask the whole question, with its names ("Where was Ana Berg born?", not "Where was she born?")'
)
ASKS_NOTHING = "the message asks for no information: nothing was searched"


async def read_in_conversation(run: QuestionRun, history: Sequence[Step]) -> bool:
    """Makes the question one that can be understood without the conversation; returns whether there is one to answer.

    A language model that reads writes it, or says that the message asks for nothing; a first message is then asked as
    it stands. Where there is none, or it cannot, the revelator writes it. Where that is not sure either, the question
    is unanswered.
    """
    steps = tuple(
        Step(step.question[:TURN_CHARACTERS], tuple(answer[:TURN_CHARACTERS] for answer in step.answers))
        for step in history[-TURNS:]
    )
    node = run.open("refine")
    with run.recorder.record(node):
        reading = await run.models.generate(node, GenerateRequest("rewrite", run.question, steps=steps))
        if reading.asks_nothing:
            run.recorder.trace.reason = ASKS_NOTHING
            node.detail["asks_nothing"] = True
            node.end_well()
            return False
        written = " ".join(node.answers[0].split()) if len(node.answers) == 1 else ""
        if not steps:
            written = run.question
        elif not 0 < len(written) <= run.limits.question_characters:
            written, reason = await _rewrite(run, node, steps[-RECENT:])
            if not written:
                run.recorder.trace.reason = UNCLEAR.format(reason=reason)
                node.answers = []
                node.end_without_answer("unclear", reason)
                return False
        node.answers = [written]
        node.end_well()
        if run.question != written:
            node.detail["rewritten"] = run.question = written
    return True


async def _rewrite(run: QuestionRun, node: Node, steps: Sequence[Step]) -> tuple[str, str]:
    """What the revelator takes the question for, or "" and why it has none."""
    shown = [Step(step.question, (step.answer[:TURN_CHARACTERS],) if step.answers else ()) for step in steps]
    [output] = await run.models.complete(node, REWRITE, [StepsInput(run.question, tuple(shown))])
    try:
        written: str = TASKS[REWRITE].parse(output)
        run.limits.check_question(written)
    except (TaskOutputError, InvalidRequest) as error:
        return "", str(error)
    if UNKNOWN in written and UNKNOWN not in run.question:
        return "", "what it refers to has no answer"
    likely, floor = node.detail.get("text_probability", 1.0), run.limits.rewrite_floor
    if likely < floor:
        return "", f"“{written}” has P = {likely:.2f} a token; the limit rewrite_floor is {floor:g}"
    return written, ""
