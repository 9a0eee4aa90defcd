"""Questions with several hops as published: MuSiQue, 2WikiMultiHopQA, HotpotQA, StrategyQA and Break."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from data_gen.annotate.endings import Branch, choose_ending
from data_gen.annotate.names import find_mention
from data_gen.annotate.plan import GoldPlan, GoldStep, write_gold_plan
from data_gen.annotate.qdmr_operations import read_plan_steps
from data_gen.annotate.trees import build_nodes, compare_answers, render_tree
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, DroppedError
from data_gen.sources import fields
from data_gen.sources.rows import ReadResult, read_annotated
from revelator.errors import DataError
from revelator.plans import Atomic, Expression, check, list_leaves, parse, render
from revelator.plans.operators import Filter, Relate
from revelator.plans.steps import OperationStep, Steps, UnspelledError, write_plan
from revelator.tasks import TRANSLATE_BNF


def read_musique(path: Path | str) -> Iterator[ReadResult]:
    """Complex questions with plan, steps, answers and, where there are paragraphs, their relevance."""
    return read_annotated(path, _annotate_musique)


def _annotate_musique(row: dict[str, Any]) -> AnnotatedQuestion:
    question = fields.read_question(row)
    paragraphs = row.get("paragraphs", [])
    titles = {paragraph["idx"]: paragraph["title"] for paragraph in paragraphs}
    decomposition = row["question_decomposition"]
    if not isinstance(decomposition, list) or not decomposition:
        raise DataError("field 'question_decomposition' must be a list of steps")
    steps = [_read_step(step, titles) for step in decomposition]
    identity = f"musique:{fields.read_text(row, 'id')}"
    planned = write_gold_plan(question, steps, identity)
    return AnnotatedQuestion(
        id=identity,
        source="musique",
        licence="CC-BY-4.0",
        split="",
        question=question,
        route="complex",
        expression=planned.expression,
        steps=planned.steps,
        answers=tuple(dict.fromkeys([fields.read_text(row, "answer"), *_read_aliases(row)])),
        passages=tuple(AnnotatedPassage(p["title"], p["paragraph_text"], bool(p["is_supporting"])) for p in paragraphs),
        entities=planned.entities,
        tree=render_tree(question, planned.nodes),
    )


def _read_step(step: dict[str, Any], titles: dict[int | None, str]) -> GoldStep:
    title = titles.get(step.get("paragraph_support_idx"), "") if titles else _read_title(step)
    text, answers = fields.read_text(step, "question"), (fields.read_text(step, "answer"),)
    if ">>" in text:
        subject, relation = (" ".join(part.split()) for part in text.rsplit(">>", 1))
        return GoldStep(subject=subject, relation=relation, answers=answers, title=title)
    return GoldStep(text, answers=answers, title=title)


def _read_title(step: dict[str, Any]) -> str:
    """The title in a `document_id` such as "UHF (film)_0"."""
    return str(step.get("document_id") or "").rpartition("_")[0]


def _read_aliases(row: dict[str, Any]) -> list[str]:
    aliases = row.get("answer_aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise DataError(f"field 'answer_aliases' must be a list of texts, found {aliases!r:.60}")
    return aliases


COMPARISONS = ("comparison", "bridge_comparison")
TYPES = ("compositional", "inference", *COMPARISONS)


def read_two_wiki(path: Path | str) -> Iterator[ReadResult]:
    """Complex questions with plan, steps, answers and, where there is context, the relevance of its paragraphs."""
    return read_annotated(path, _annotate_two_wiki)


def _annotate_two_wiki(row: dict[str, Any]) -> AnnotatedQuestion:
    question = fields.read_question(row)
    if row["type"] not in TYPES:
        raise DataError(f"field 'type' must be one of {', '.join(TYPES)}, found {row['type']!r}")
    supporting = list(
        dict.fromkeys(title for title, _ in fields.list_pairs(fields.read_nested(row, "supporting_facts")))
    )
    identity = f"2wiki:{row.get('_id') or row['id']}"
    planned = write_gold_plan(question, _order_steps(row, question, supporting), identity)
    ending = _choose_ending(row, planned) if row["type"] in COMPARISONS else ""
    return AnnotatedQuestion(
        id=identity,
        source="2wiki",
        licence="Apache-2.0",
        split="",
        question=question,
        route="complex",
        expression=planned.expression,
        steps=planned.steps,
        answers=(row["answer"],),
        passages=_read_context(row, supporting),
        entities=planned.entities,
        ending=ending,
        tree=_render_tree(ending, question, planned),
    )


def _read_context(row: dict[str, Any], supporting: Collection[str]) -> tuple[AnnotatedPassage, ...]:
    context = fields.list_pairs(fields.read_nested(row, "context", []))
    return tuple(
        AnnotatedPassage(title, " ".join(" ".join(sentences).split()), title in supporting)
        for title, sentences in context
    )


def _render_tree(ending: str, question: str, planned: GoldPlan) -> str:
    """A comparison ends in a node that names what is compared; none where no single node says it."""
    if not ending:
        return render_tree(question, planned.nodes)
    judged = compare_answers(ending, parse(planned.expression), planned.nodes)
    return render_tree(question, [*planned.nodes, judged]) if judged else ""


def _choose_ending(row: dict[str, Any], planned: GoldPlan) -> str:
    """The ending of a comparison by the gold answers of its branches, each a chain of leaves."""
    steps, nodes = iter(planned.steps), iter(planned.nodes)
    branches = []
    for branch in parse(planned.expression).children:
        leaves = list_leaves(branch)
        [first, *_] = islice(nodes, len(leaves))
        assert isinstance(first.call, Relate)
        branches.append(Branch(first.call.head, tuple(step.answers for step in islice(steps, len(leaves)))))
    return choose_ending(branches, row["answer"])


@dataclass(frozen=True)
class _Fact:
    """A subject's values of one relation, and the supporting page that states them."""

    subject: str
    relation: str
    values: tuple[str, ...]
    title: str

    def to_step(self, subject: str) -> GoldStep:
        """The step that asks for the values, of `subject` as the question or an earlier step gives it."""
        return GoldStep(subject=subject, relation=self.relation, answers=self.values, title=self.title)


def _read_facts(row: dict[str, Any], supporting: list[str]) -> list[_Fact]:
    values: dict[tuple[str, str], list[str]] = {}
    for subject, relation, value in fields.read_nested(row, "evidences"):
        values.setdefault((subject, relation), []).append(value)
    places: list[int | None] = list(range(len(values))) if len(supporting) == len(values) else [None] * len(values)
    return [
        _Fact(subject, relation, tuple(found), _choose_title(subject, supporting, place))
        for ((subject, relation), found), place in zip(values.items(), places, strict=True)
    ]


def _order_steps(row: dict[str, Any], question: str, supporting: list[str]) -> list[GoldStep]:
    """First hops in the order in which the question names their subjects, then second hops in that order."""
    facts = _read_facts(row, supporting)
    hops = {"comparison": len(facts), "bridge_comparison": len(facts) // 2}.get(row["type"], 1)
    first, second = facts[:hops], facts[hops:]
    if len(second) not in (0, hops) or (not second and row["type"] != "comparison"):
        raise DroppedError(f"the evidences of a {row['type']} question do not pair up")
    names = [_find_subject(fact, supporting, question) for fact in first]
    order = sorted(range(hops), key=lambda index: question.find(names[index]))
    steps = [first[index].to_step(names[index]) for index in order]
    for place, index in enumerate(order[: len(second)], start=1):
        fact = next((other for other in second if other.subject in first[index].values), second[index])
        steps.append(fact.to_step(f"#{place}"))
    return steps


def _choose_title(subject: str, supporting: list[str], place: int | None) -> str:
    """The supporting page about `subject`: of the same name, or the one at its place in the list."""
    same = [title for title in supporting if title.casefold().startswith(subject.casefold())]
    return same[0] if same else supporting[place] if place is not None else ""


def _find_subject(fact: _Fact, supporting: list[str], question: str) -> str:
    """The question's name for the subject: its page's title where that is written out, else its own name."""
    for name in (fact.title, fact.subject, *supporting):
        if name and (found := find_mention(name, question)):
            return found
    raise DroppedError("the question does not name the subject of its first triple")


def read_hotpot(path: Path | str) -> Iterator[ReadResult]:
    """Complex questions without a plan; where there is context, each paragraph with its relevance."""
    return read_annotated(path, lambda row: annotate_hotpot(row, "hotpotqa", "CC-BY-SA-4.0"))


def annotate_hotpot(row: dict[str, Any], source: str, licence: str) -> AnnotatedQuestion:
    """A row of HotpotQA, in whose format other data sets are published, too."""
    asked = fields.read_question(row)
    supporting = {title for title, _ in fields.list_pairs(fields.read_nested(row, "supporting_facts", []))}
    return AnnotatedQuestion(
        id=fields.make_id(row, source, asked, "_id", "id"),
        source=source,
        licence=licence,
        split="",
        question=asked,
        route="complex",
        answers=fields.read_texts(row, "answer"),
        passages=_read_context(row, supporting),
    )


def read_strategy(path: Path | str) -> Iterator[ReadResult]:
    """Complex questions with a plan; the answers of the steps are not told, so there are none."""
    return read_annotated(path, _annotate_strategy)


def _annotate_strategy(row: dict[str, Any]) -> AnnotatedQuestion:
    asked = fields.read_question(row)
    steps = fields.read_nested(row, "decomposition")
    if not isinstance(steps, list) or not steps or not all(isinstance(step, str) and step.strip() for step in steps):
        raise DataError(f"field 'decomposition' must be a list of questions, found {row['decomposition']!r:.60}")
    if not isinstance(row["answer"], bool):
        raise DataError(f"field 'answer' must be true or false, found {row['answer']!r:.60}")
    if len(steps) == 1:
        raise DroppedError("a decomposition of one step, which says the question again")
    identity = fields.make_id(row, "strategyqa", asked, "qid", "id")
    planned = write_gold_plan(asked, [GoldStep(" ".join(step.split())) for step in steps], identity)
    return AnnotatedQuestion(
        id=identity,
        source="strategyqa",
        licence="MIT",
        split="",
        question=asked,
        route="complex",
        expression=planned.expression,
        answers=("yes" if row["answer"] else "no",),
        entities=planned.entities,
        ending="judge_last",
    )


ABOUT_PICTURES = "NLVR2"  # statements about two pictures that are shown beside them: no question is asked


def read_qdmr(path: Path | str) -> Iterator[ReadResult]:
    """Questions of Break with plans that name their steps by number and end in operations; without steps and answers,
    which Break does not tell."""
    return read_annotated(path, _annotate_qdmr)


def _annotate_qdmr(row: dict[str, Any]) -> AnnotatedQuestion:
    question = _read_break_question(row, "qdmr")
    plan = _write_break_plan(_read_break_steps(row))
    if isinstance(plan, Atomic):
        raise DroppedError("a plan of one step, which says the question again")
    return replace(question, expression=render(plan), tasks=("route", TRANSLATE_BNF.name))


def read_break(path: Path | str) -> Iterator[ReadResult]:
    """Questions with a filter step, with plan and tree, and neither steps nor answers, which Break does not tell."""
    return read_annotated(path, _annotate_break)


def _annotate_break(row: dict[str, Any]) -> AnnotatedQuestion:
    question = _read_break_question(row, "break")
    steps = _read_break_steps(row, discard="filter")  # a tree asks what is left of a list without another one
    if any(isinstance(step, OperationStep) for step in steps):
        raise DroppedError("an operator that no source is asked for")
    plan = _write_break_plan(steps)
    nodes = build_nodes(plan, [None] * len(steps))
    if not any(isinstance(node.call, Filter) for node in nodes):
        raise DroppedError("no step keeps some of a list")
    return replace(question, expression=render(plan), tree=render_tree(question.question, nodes))


def _read_break_steps(row: dict[str, Any], discard: str = "discard") -> Steps:
    """`discard`: the operator by which such a step is read."""
    operators = [discard if name == "discard" else name for name in fields.read_nested(row, "operators")]
    return read_plan_steps(fields.read_text(row, "decomposition"), operators)


def _write_break_plan(steps: Steps) -> Expression:
    try:
        plan = write_plan(steps)
    except UnspelledError as error:
        raise DroppedError(str(error)) from None
    if faults := check(plan):
        raise DroppedError(f"the plan does not check ({faults[0].code})")
    return plan


def _read_break_question(row: dict[str, Any], form: str) -> AnnotatedQuestion:
    """A row of Break without its plan; `form` begins its id."""
    asked = fields.read_question(row, "question_text")
    identity = fields.make_id(row, form, asked, "question_id")
    if identity.split(":")[1].startswith(ABOUT_PICTURES):
        raise DroppedError("a statement about two pictures, no question")
    return AnnotatedQuestion(identity, "break", "MIT", split="", question=asked, route="complex")
