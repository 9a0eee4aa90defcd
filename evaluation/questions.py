"""Which questions are shown or sampled: by a pinned rule over their ids, never by how they turn out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from data_gen.questions import AnnotatedQuestion
from revelator.errors import DataError
from revelator.files import sha256_text
from revelator.plans import leaves, parse, to_letters


def read_questions(path: Path) -> list[AnnotatedQuestion]:
    """All rows of a `questions.jsonl`. Raises DataError with the line of a row that cannot be read."""
    rows = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(AnnotatedQuestion.from_json(json.loads(line)))
            except (ValueError, DataError) as error:
                raise DataError(f"cannot be read: {error}", where=f"{path}:{number}") from error
    return rows


def has_parentheses(question: AnnotatedQuestion) -> bool:
    return bool(question.expression) and "(" in to_letters(parse(question.expression))


def fans_out(question: AnnotatedQuestion) -> bool:
    """Whether some step has several values that a later one is asked for each: the steps outnumber the leaves."""
    return question.route == "complex" and len(question.steps) > len(leaves(parse(question.expression)))


def _plain(route: str) -> Callable[[AnnotatedQuestion], bool]:
    return lambda q: q.route == route and not has_parentheses(q) and not fans_out(q)


KINDS: dict[str, Callable[[AnnotatedQuestion], bool]] = {
    "straightforward": lambda q: q.route == "straightforward",
    "single": _plain("single"),
    "compound": _plain("compound"),
    "complex": _plain("complex"),
    "parentheses": lambda q: has_parentheses(q) and not fans_out(q),
    "fan-out": fans_out,
}


def by_id_hash(questions: Iterable[AnnotatedQuestion]) -> list[AnnotatedQuestion]:
    """The same questions in the order of sha256(id): a sample is a prefix of it."""
    return sorted(questions, key=lambda q: sha256_text(q.id))


def one_of_each_kind(questions: Iterable[AnnotatedQuestion], split: str = "test") -> dict[str, AnnotatedQuestion]:
    """For each kind its first question of `split` in the order of sha256(id). Raises DataError for a missing kind."""
    ordered = by_id_hash(q for q in questions if q.split == split)
    chosen = {}
    for kind, fits in KINDS.items():
        question = next((q for q in ordered if fits(q)), None)
        if question is None:
            raise DataError(f"no {kind} question in the {split} split", hint="make a larger world: --size")
        chosen[kind] = question
    return chosen
