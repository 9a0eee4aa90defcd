"""What can be executed is executed: a gold plan is checked, bound and replayed before anything is learnt from it.

Each validator gives None or the reason for which the question is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

from data_gen.annotate.names import find_capitalised
from data_gen.annotate.trees import is_writable
from data_gen.questions import AnnotatedQuestion
from revelator import plans
from revelator.errors import ExpressionError
from revelator.fingerprints import normalise
from revelator.plans import art, logic
from revelator.plans.bnf import blank_placeholders
from revelator.plans.language import ART, BNF, LOGIC, PlanLanguage
from revelator.trace import join_answers


def check_plan(question: AnnotatedQuestion) -> str | None:
    """The plan parses, is canonical and checks. A chain of steps, or a route alone, may have none, and a logical
    question has its query instead."""
    if not question.expression:
        return "no plan" if question.route == "single" and not question.query else None
    return _check_text("plan", question.expression, BNF)


def check_query(question: AnnotatedQuestion) -> str | None:
    """A logical query parses, is canonical, can be run, and each of its terms stands in the question."""
    if not question.query:
        return None
    if fault := _check_text("query", question.query, LOGIC):
        return fault
    asked, terms = question.question.casefold(), logic.list_terms(logic.parse(question.query))
    return None if all(term.casefold() in asked for term in terms) else "a term is not in the question"


def check_tree(question: AnnotatedQuestion) -> str | None:
    """The tree parses, is canonical, checks, and is one that a decoder can write."""
    if not question.tree:
        return None
    if fault := _check_text("tree", question.tree, ART):
        return fault
    return None if is_writable(art.parse(question.tree)) else "tree names what a decoder cannot"


def _check_text(kind: str, text: str, language: PlanLanguage) -> str | None:
    """The text parses, is canonical, and checks."""
    try:
        plan = language.parse(text)
    except ExpressionError as error:
        return f"{kind} does not parse ({error.code})"
    if language.render(plan) != text:
        return f"{kind} is not canonical"
    if diagnostics := language.check(plan):
        return f"{kind} does not check ({diagnostics[0].code})"
    return None


def check_replay(question: AnnotatedQuestion) -> str | None:
    """Filling each leaf with the answers of the leaves it is bound to gives the steps, and the last one the answer.

    A plan that fans out has more steps than leaves; then each step must at least come after what it is filled with. One
    that needs a step in two branches has fewer.
    A plan of a source that tells no answers of its steps has none, and is not replayed.
    """
    if question.route != "complex" or not question.expression or not question.steps:
        return None
    expression = plans.parse(question.expression)
    leaves, steps = plans.list_leaves(expression), question.steps
    if len(steps) == len(leaves):
        sources = plans.bind(expression).sources
        if plans.list_steps(expression)[: len(leaves)] != leaves:
            return None  # it goes on from an operation, whose answer no step tells
        for leaf, wired, step in zip(leaves, sources, steps, strict=False):
            known = {name: join_answers(steps[source].answers) for name, source in wired.items()}
            if plans.substitute(leaf.text, known) != step.question:
                return "steps do not replay the plan"
    elif len(steps) < len({blank_placeholders(leaf.text) for leaf in leaves}):
        return "fewer steps than leaves"
    if not all(step.answers and all(map(str.strip, step.answers)) for step in steps):
        return "a step has no answer"
    chained = isinstance(expression, plans.Dependent) and len(steps) == len(leaves) and not question.ending
    if chained and not share_answer(steps[-1].answers, question.answers):
        return "steps do not reach the answer"
    return None


def share_answer(answers: Sequence[str], gold: Sequence[str]) -> bool:
    """Whether one of the answers is one of the known ones, up to spelling."""
    return bool({normalise(answer) for answer in answers} & {normalise(answer) for answer in gold})


def check_relevance(question: AnnotatedQuestion) -> str | None:
    """Every step's page is among the passages marked relevant, where there are passages."""
    relevant = {passage.title for passage in question.passages if passage.relevant}
    missing = [step.title for step in question.steps if step.title and step.title not in relevant]
    return "a step's page is not marked relevant" if question.passages and missing else None


def check_sources(question: AnnotatedQuestion) -> str | None:
    """Every step's sources are among the question's."""
    there = {source.name for source in question.sources}
    return None if all(there.issuperset(step.sources) for step in question.steps) else "a step's source is not listed"


def check_coverage(threshold: float, question: AnnotatedQuestion) -> str | None:
    """The plan or the parts keep the part `threshold` of the question's names, each with all of its words."""
    planned = normalise(" ".join([question.expression, *question.parts])).split()
    names = question.entities or find_capitalised(question.question)
    covered = [name for name in names if set(normalise(name).split()) <= set(planned)]
    if planned and names and len(covered) / len(names) < threshold:
        return f"plan covers less than {threshold:.0%} of the names"
    return None


def find_fault(question: AnnotatedQuestion, threshold: float) -> str | None:
    """The first reason against a question, or None."""
    checks = (check_plan, check_query, check_tree, check_replay, check_relevance, check_sources)
    found = next((reason for check in checks if (reason := check(question))), None)
    return found or check_coverage(threshold, question)
