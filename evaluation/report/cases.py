"""The questions that a reader should see, each with two plans side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evaluation.harness.folder import QuestionRow
from evaluation.harness.run_metrics import MEASURES, measure_row
from evaluation.report.runs import LoadedRun
from revelator.errors import DataError, ExpressionError
from revelator.files import sha256_text
from revelator.plans import Atomic, check, draw_tree, list_steps, parse
from revelator.trace import Node, Trace, join_answers, sort_ids

CASES_SHOWN = 4
PASSAGES_SHOWN = 3


@dataclass(frozen=True)
class Side:
    """One half of a case: whose plan it is, the drawing, its answer or why there is none, its score ("" for gold)."""

    title: str
    plan: Markup
    answer: str
    is_answered: bool = True
    score: str = ""


@dataclass(frozen=True)
class Case:
    """A question, what is said about it, and two plans beside each other."""

    row: QuestionRow
    about: str
    left: Side
    right: Side


def find_worst_cases(run: LoadedRun, measure: str) -> list[Case]:
    """The lowest scores below 1. Of equal ones, those that found the fewest gold pages, then that cost the most tokens.

    Refused questions and those without a gold plan come last: there are no two plans to compare.
    """

    def rank(row: QuestionRow) -> tuple[bool, float, float, int, str]:
        is_last = row.status == "error" or not row.gold_plan
        score, recall = measure_row(row, measure) or 0.0, row.scores.get("recall", 0.0)
        return is_last, score, recall, -row.cost.tokens_in, sha256_text(row.id)

    scored = [(row, score) for row in run.rows if (score := measure_row(row, measure)) is not None]
    rows = sorted((row for row, score in scored if score < 1), key=rank)[:CASES_SHOWN]
    golds = [Side("gold plan", draw_plan(row.gold_plan), join_answers(row.golds)) for row in rows]
    return [Case(row, run.name, gold, _build_side(row, run, measure)) for row, gold in zip(rows, golds, strict=True)]


def find_most_different_cases(reference: LoadedRun, others: Sequence[LoadedRun], measure: str) -> list[Case]:
    """The largest differences of a score on one question that neither system refused, half in favour of each side, each
    question once."""
    rows = {row.id: row for row in reference.rows if row.status != "error"}
    gaps = []
    for other in others:
        for row in other.rows:
            if row.status != "error" and row.id in rows:
                ours, theirs = measure_row(row, measure), measure_row(rows[row.id], measure)
                if ours is not None and theirs is not None:
                    gaps.append((ours - theirs, row, other))
    gaps.sort(key=lambda gap: (-abs(gap[0]), sha256_text(gap[1].id + gap[2].name)))
    found: dict[str, Case] = {}
    for sign, room in ((-1, CASES_SHOWN // 2), (1, CASES_SHOWN)):
        for size, row, other in gaps:
            if sign * size > 0 and row.id not in found and len(found) < room:
                better = other.name if size > 0 else reference.name
                sides = _build_side(rows[row.id], reference, measure), _build_side(row, other, measure)
                found[row.id] = Case(row, f"{better} is better by {abs(size):.2f}", *sides)
    return list(found.values())


def _build_side(row: QuestionRow, run: LoadedRun, measure: str) -> Side:
    answer = row.prediction or row.error or "none"
    score = f"{MEASURES[measure]} {measure_row(row, measure) or 0.0:.2f}"
    return Side(run.name, draw_plan(row.plan, _read_trace(row)), answer, bool(row.prediction), score)


def _read_trace(row: QuestionRow) -> Trace | None:
    try:
        return Trace.from_json(row.trace) if isinstance(row.trace, dict) else row.trace
    except DataError:
        return None  # of an older format: the plan is shown without what its leaves found


def draw_plan(text: str, trace: Trace | None = None) -> Markup:
    """Draws a plan as an indented tree and lists what `trace` found for its leaves; without a plan, the steps of the
    trace. Text that is not a plan is shown as it is."""
    nodes = {node.id: node for node in trace.nodes if node.kind in ("atomic", "direct")} if trace else {}
    if not text:
        if trace is None or not nodes:
            return Markup('<p class="broken">no plan</p>')
        steps = enumerate(nodes.values(), 1)
        return _list_results({f"{n}. {node.asked or node.question or trace.question}": node for n, node in steps})
    try:
        plan = parse(text)
    except ExpressionError as error:
        return Markup('<p class="broken">no plan: {}</p><pre>{}</pre>').format(error.message, text)
    faults = Markup("").join(Markup('<p class="broken">{}</p>').format(fault.message) for fault in check(plan)[:1])
    own = [nodes[id] for id in sort_ids(nodes) if "." not in id and nodes[id].kind == "atomic"]
    asked = [str(number) for number, step in enumerate(list_steps(plan), 1) if isinstance(step, Atomic)]
    results = dict(zip(asked, own, strict=True)) if len(own) == len(asked) else {}
    return Markup("{}<pre>{}</pre>{}").format(faults, draw_tree(plan), _list_results(results))


def _list_results(nodes: Mapping[str, Node]) -> Markup:
    """The answers of each node and the titles that it found, those that were read first and in bold."""
    found = Markup("")
    for name, node in nodes.items():
        answers = join_answers(node.answers) or node.error or "no answer"
        read = set(node.detail.get("kept", []))
        ranked = sorted(node.documents, key=lambda passage: passage.id not in read)[:PASSAGES_SHOWN]
        titles = Markup(", ").join(Markup("<b>{}</b>" if p.id in read else "{}").format(p.title) for p in ranked)
        style = "answer" if node.answers else "answer none"
        form = Markup('<div class="leaf">{} <span class="{}">→ {}</span> <span class="titles">{}</span></div>')
        found += form.format(name, style, answers, titles)
    return found
