"""A message in a conversation becomes a question that can be understood without it."""

from __future__ import annotations

from collections.abc import Sequence

from revelator.errors import ExpressionError, PlanError
from revelator.plans import Atomic, Dependent, Expression, list_leaves, list_steps, render
from revelator.plans import Sequence as ListOf
from revelator.plans.bnf import blank_placeholders, renumber
from revelator.plans.names import find_name_words, find_words
from revelator.tasks import TRANSLATE_BNF, QuestionInput, Step
from revelator.trace import Node
from serving.executor.routes import require_valid
from serving.executor.run import QuestionRun
from serving.protocols import GenerateRequest

TURNS, TURN_CHARACTERS = 10, 500  # of a conversation: what a language model reads to see what a question refers to
UNCLEAR = (
    "the question can only be understood from what was said before, and it is not clear how ({reason}): "
    'ask the whole question, with its names ("Where was Ana Berg born?", not "Where was she born?")'
)
ASKS_NOTHING = "the message asks for no information: nothing was searched"


async def read_in_conversation(run: QuestionRun, history: Sequence[Step]) -> bool:
    """Makes the question one that can be understood without the conversation; returns whether there is one to answer.

    A language model writes it, or says that the message asks for nothing; a first message is then asked as it stands.
    Where there is none, or it cannot, the planner reads the question together with an earlier one, and the step that it
    adds is asked. Otherwise a question that names something, or that the planner adds as it stands, is asked so, and
    any other is unanswered.
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
        asked = run.question
        if not steps:
            written = asked
        elif 0 < len(written) <= run.limits.question_characters:
            run.question = written
        else:
            reason = node.error or "the language model gave no question"
            added = await _read_with_earlier_question(run, node, steps)
            if len(added) == 2 and _ask_the_same(*added):
                written = render(added[0])
                if isinstance(added[0], Atomic):
                    run.question = added[0].text
                else:
                    run.expression = added[0]
            elif find_name_words(asked) or Atomic(asked) in added:
                written = asked
            else:
                run.recorder.trace.reason = UNCLEAR.format(reason=reason)
                node.answers = []
                node.end_without_answer("unclear", reason)
                return False
        node.answers = [written]
        node.end_well()
        if run.question != asked or run.expression:
            node.detail["rewritten"] = written
    return True


async def _read_with_earlier_question(run: QuestionRun, node: Node, steps: Sequence[Step]) -> list[Expression]:
    """What the planner adds to the plan of the last question that names something when the new question follows it, in
    one way of joining them and in another: one step, with those that it takes values of; nothing of a way in which it
    adds no step, or several."""
    earlier = next((step.question for step in reversed(steps) if find_name_words(step.question)), steps[-1].question)
    asked = run.question
    begins_with_name = find_name_words(asked)[:1] == find_words(asked)[:1]
    clause = asked if begins_with_name else asked[:1].lower() + asked[1:]
    texts = (earlier, f"{earlier} {asked}", f"{earlier.rstrip('? ')}, {clause}")
    outputs = await run.models.complete(node, TRANSLATE_BNF.name, [QuestionInput(text) for text in texts])
    try:
        alone, *joined = (TRANSLATE_BNF.parse(output) for output in outputs)
        for plan in joined:
            require_valid(plan, run.limits)
    except (ExpressionError, PlanError):
        return []
    return [keep_last_step(plan) for plan in joined if _count_questions(plan) == _count_questions(alone) + 1]


def _count_questions(plan: Expression) -> int:
    """How many different questions a plan asks; two branches may need the same."""
    return len({blank_placeholders(leaf.text) for leaf in list_leaves(plan)})


def keep_last_step(plan: Expression) -> Expression:
    """The last leaf, behind those that it may take values of; the steps that are left are numbered anew."""
    dropped = set[int]()

    def keep(node: Expression, first: int) -> Expression:
        """`first`: the number of the first step of `node`."""
        if isinstance(node, ListOf):
            *before, last = node.items
            start = first + sum(len(list_steps(item)) for item in before)
            dropped.update(range(first, start))
            return keep(last, start)
        if isinstance(node, Dependent):
            return Dependent(node.left, keep(node.right, first + len(list_steps(node.left))))
        return node

    kept = keep(plan, 1)
    return renumber(kept, lambda number: number - sum(gone < number for gone in dropped))


def _ask_the_same(plan: Expression, other: Expression) -> bool:
    """Whether the last leaves of two plans are the same but for what their placeholders are called."""
    ours, theirs = (blank_placeholders(list_leaves(each)[-1].text) for each in (plan, other))
    return ours == theirs
