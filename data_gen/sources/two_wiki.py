"""2WikiMultiHopQA as published (Ho et al., 2020): `evidences` triples, `type`, supporting facts, context.

The triples give the plan: compositional and inference questions follow one chain (`A * B`), a comparison asks for the
same fact of two things (`A + B`), a bridge comparison does so after one hop each (`A * B + C * D`). All four are route
complex: the answer to a comparison is not the list of its parts' answers but follows from them, so it is planned, not
split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion, Evidence
from data_gen.annotation import GoldStep, Planned, UnplannableError, plan
from data_gen.mention import mention
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from data_gen.trees import compared, tree
from revelator.errors import DataError
from revelator.plans import parse

LICENCE = "Apache-2.0"
TYPES = ("compositional", "inference", "comparison", "bridge_comparison")


def read_two_wiki(path: Path | str, source: str = "2wiki", licence: str = LICENCE) -> Iterator[Outcome]:
    """Complex questions with plan, steps, answers and, where there is context, the relevance of its paragraphs."""
    return read_annotated(path, lambda row: _annotate(row, source, licence))


def _annotate(row: dict[str, Any], source: str, licence: str) -> AnnotatedQuestion:
    question = fields.question(row)
    if row["type"] not in TYPES:
        raise DataError(f"field 'type' must be one of {', '.join(TYPES)}, found {row['type']!r}")
    supporting = list(dict.fromkeys(title for title, _ in fields.pairs(fields.nested(row, "supporting_facts"))))
    identity = f"{source}:{row.get('_id') or row['id']}"
    planned = plan(question, _steps(row, question, supporting), identity)
    return AnnotatedQuestion(
        id=identity,
        source=source,
        licence=licence,
        split="",
        question=question,
        route="complex",
        expression=planned.expression,
        steps=planned.steps,
        answers=(row["answer"],),
        passages=tuple(
            Evidence(title, " ".join(" ".join(sentences).split()), title in supporting)
            for title, sentences in fields.pairs(fields.nested(row, "context", []))
        ),
        entities=planned.entities,
        tree=_tree(row["type"], question, planned),
    )


def _tree(kind: str, question: str, planned: Planned) -> str:
    """A comparison ends in a node that names what is compared; none where its words are not understood."""
    if kind not in ("comparison", "bridge_comparison"):
        return tree(question, planned.nodes)
    judged = compared(question, parse(planned.expression), planned.nodes)
    return tree(question, [*planned.nodes, judged]) if judged else ""


@dataclass(frozen=True)
class _Fact:
    """A subject's values of one relation, and the supporting page that states them."""

    subject: str
    relation: str
    values: tuple[str, ...]
    title: str

    @property
    def answer(self) -> str:
        return "; ".join(self.values)


def _facts(row: dict[str, Any], supporting: list[str]) -> list[_Fact]:
    values: dict[tuple[str, str], list[str]] = {}
    for subject, relation, value in fields.nested(row, "evidences"):
        values.setdefault((subject, relation), []).append(value)
    places: list[int | None] = list(range(len(values))) if len(supporting) == len(values) else [None] * len(values)
    return [
        _Fact(subject, relation, tuple(found), _title(subject, supporting, place))
        for ((subject, relation), found), place in zip(values.items(), places, strict=True)
    ]


def _steps(row: dict[str, Any], question: str, supporting: list[str]) -> list[GoldStep]:
    """First hops in the order in which the question names their subjects, then second hops in that order."""
    facts = _facts(row, supporting)
    hops = {"comparison": len(facts), "bridge_comparison": len(facts) // 2}.get(row["type"], 1)
    first, second = facts[:hops], facts[hops:]
    if len(second) not in (0, hops) or (not second and row["type"] != "comparison"):
        raise UnplannableError(f"the evidences of a {row['type']} question do not pair up")
    names = [_mentioned(fact, supporting, question) for fact in first]
    order = sorted(range(hops), key=lambda index: question.find(names[index]))
    steps = [
        GoldStep(first[i].answer, subject=names[i], relation=first[i].relation, title=first[i].title) for i in order
    ]
    for place, index in enumerate(order[: len(second)], start=1):
        fact = next((other for other in second if other.subject in first[index].values), second[index])
        steps.append(GoldStep(fact.answer, subject=f"#{place}", relation=fact.relation, title=fact.title))
    return steps


def _title(subject: str, supporting: list[str], place: int | None) -> str:
    """The supporting page about `subject`: of the same name, or the one at its place in the list."""
    same = [title for title in supporting if title.casefold().startswith(subject.casefold())]
    return same[0] if same else supporting[place] if place is not None else ""


def _mentioned(fact: _Fact, supporting: list[str], question: str) -> str:
    """The question's name for the subject: its page's title where that is written out, else its own name."""
    for name in (fact.title, fact.subject, *supporting):
        if name and (found := mention(name, question)):
            return found
    raise UnplannableError("the question does not name the subject of its first triple")
