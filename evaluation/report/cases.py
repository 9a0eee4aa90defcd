"""The cases that a reader should see: where a system did worst, and where two did most differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evaluation.harness.folder import QuestionRow
from evaluation.report.plans import drawn
from evaluation.report.runs import Loaded, measure_name, value_of
from revelator.errors import DataError
from revelator.files import sha256_text
from revelator.trace import Trace, join_answers

SHOWN = 4


@dataclass(frozen=True)
class Side:
    """One half of a case: whose plan it is, the drawing, and what came of it ("" for gold)."""

    title: str
    plan: Markup
    answer: str = ""
    score: str = ""


@dataclass(frozen=True)
class Case:
    """A question with its gold answers, and two plans beside each other."""

    id: str
    question: str
    golds: str
    about: str
    left: Side
    right: Side


def worst(run: Loaded, measure: str, count: int = SHOWN) -> list[Case]:
    """The lowest scores; of equal ones those that found the fewest gold pages, then that cost the most tokens.
    Questions that were refused or have no gold plan come last: they have no two plans to compare."""

    def key(row: QuestionRow) -> tuple[bool, float, float, int, str]:
        last = row.status == "error" or not row.gold_plan
        score, found = value_of(row, measure) or 0.0, row.scores.get("recall", 0.0)
        return last, score, found, -row.cost.tokens_in, sha256_text(row.id)

    rows = sorted((row for row in run.rows if value_of(row, measure) is not None), key=key)[:count]
    return [
        _case(row, f"{run.name}, {_kind(row)}", Side("gold plan", drawn(row.gold_plan)), _side(row, run, measure))
        for row in rows
    ]


def most_different(reference: Loaded, others: Sequence[Loaded], measure: str, count: int = SHOWN) -> list[Case]:
    """The largest differences of a score on one question that neither refused, half of them in favour of each side,
    each question once and the other systems in turn."""
    theirs = {row.id: row for row in reference.rows if row.status != "error"}
    pairs = [
        (ours - base, row, other)
        for other in others
        for row in other.rows
        if row.id in theirs
        and row.status != "error"
        and (ours := value_of(row, measure)) is not None
        and (base := value_of(theirs[row.id], measure)) is not None
        and ours != base
    ]
    found: list[Case] = []
    used: set[str] = set()
    for sign in (-1, 1):
        ordered = sorted(
            (p for p in pairs if p[0] * sign > 0), key=lambda p: (-abs(p[0]), sha256_text(p[1].id + p[2].name))
        )
        turns: dict[str, int] = {}
        for gap, row, other in ordered:
            if len(found) >= (count // 2 if sign < 0 else count):
                break
            if row.id in used or turns.get(other.name, 0) > min((turns.get(o.name, 0) for o in others), default=0):
                continue
            used.add(row.id)
            turns[other.name] = turns.get(other.name, 0) + 1
            better = other.name if gap > 0 else reference.name
            sides = _side(theirs[row.id], reference, measure), _side(row, other, measure)
            found.append(_case(row, f"{better} is better by {abs(gap):.2f}, {_kind(row)}", *sides))
    return found


def _case(row: QuestionRow, about: str, left: Side, right: Side) -> Case:
    return Case(row.id, row.question, join_answers(row.golds), about, left, right)


def _side(row: QuestionRow, run: Loaded, measure: str) -> Side:
    score = value_of(row, measure) or 0.0
    answer = row.prediction or row.error or "none"
    return Side(run.name, drawn(row.plan, _trace(row)), answer, f"{measure_name(measure)} {score:.2f}")


def _trace(row: QuestionRow) -> Trace | None:
    try:
        return Trace.from_json(row.trace) if isinstance(row.trace, dict) else row.trace
    except DataError:
        return None


def _kind(row: QuestionRow) -> str:
    hops = f"{row.hops} hops" if row.hops else "hops unknown"
    return f"{hops}, route {row.route or 'none'}"
