"""The questions that a reader should see, each with two plans side by side: drawn as nested boxes of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evaluation.harness.folder import QuestionRow
from evaluation.report.runs import MEASURE_NAMES, LoadedRun, measure_row
from revelator.errors import DataError, ExpressionError
from revelator.files import sha256_text
from revelator.plans import Atomic, Dependent, Expression, bind, check, leaves, parse
from revelator.plans.drawing import letter, stages
from revelator.trace import Node, Trace, join_answers, sort_ids

CASES_SHOWN = 4
PASSAGES_SHOWN = 3
DOWN = Markup('<div class="then">↓</div>')


@dataclass(frozen=True)
class Side:
    """One half of a case: whose plan it is, the drawing, the answer and its score ("" for the gold plan)."""

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


def find_worst_cases(run: LoadedRun, measure: str, count: int = CASES_SHOWN) -> list[Case]:
    """The lowest scores. Of equal ones, those that found the fewest gold pages, then that cost the most tokens.

    Refused questions and those without a gold plan come last: there are no two plans to compare.
    """

    def rank(row: QuestionRow) -> tuple[bool, float, float, int, str]:
        is_last = row.status == "error" or not row.gold_plan
        score, recall = measure_row(row, measure) or 0.0, row.scores.get("recall", 0.0)
        return is_last, score, recall, -row.cost.tokens_in, sha256_text(row.id)

    rows = sorted((row for row in run.rows if measure_row(row, measure) is not None), key=rank)
    return [
        _build_case(row, run.name, Side("gold plan", draw_plan(row.gold_plan)), _build_side(row, run, measure))
        for row in rows[:count]
    ]


@dataclass(frozen=True)
class Gap:
    """The score of `other` on one question minus the reference's."""

    size: float
    row: QuestionRow
    reference_row: QuestionRow
    other: LoadedRun


def find_most_different_cases(
    reference: LoadedRun, others: Sequence[LoadedRun], measure: str, count: int = CASES_SHOWN
) -> list[Case]:
    """The largest differences of a score on one question that neither system refused, half in favour of each side."""
    gaps = _measure_gaps(reference, others, measure)
    losses = _take_turns([gap for gap in gaps if gap.size < 0], count // 2, set())
    seen = {gap.row.id for gap in losses}
    wins = _take_turns([gap for gap in gaps if gap.size > 0], count - len(losses), seen)
    found = []
    for gap in [*losses, *wins]:
        better = gap.other.name if gap.size > 0 else reference.name
        sides = _build_side(gap.reference_row, reference, measure), _build_side(gap.row, gap.other, measure)
        found.append(_build_case(gap.row, f"{better} is better by {abs(gap.size):.2f}", *sides))
    return found


def _measure_gaps(reference: LoadedRun, others: Sequence[LoadedRun], measure: str) -> list[Gap]:
    """Every difference, the largest first; the order of equal ones is fixed by a digest."""
    rows = {row.id: row for row in reference.rows if row.status != "error"}
    found = []
    for other in others:
        for row in other.rows:
            if row.status == "error" or row.id not in rows:
                continue
            ours, theirs = measure_row(row, measure), measure_row(rows[row.id], measure)
            if ours is not None and theirs is not None and ours != theirs:
                found.append(Gap(ours - theirs, row, rows[row.id], other))
    return sorted(found, key=lambda gap: (-abs(gap.size), sha256_text(gap.row.id + gap.other.name)))


def _take_turns(gaps: Sequence[Gap], count: int, seen: set[str]) -> list[Gap]:
    """The first `count` gaps, one system after the other, without the questions in `seen` and each question once."""
    seen, taken = set(seen), list[Gap]()
    queues = {gap.other.name: iter([each for each in gaps if each.other is gap.other]) for gap in gaps}
    while queues and len(taken) < count:
        for name, queue in list(queues.items()):
            gap = next((gap for gap in queue if gap.row.id not in seen), None)
            if gap is None:
                del queues[name]
            elif len(taken) < count:
                taken.append(gap)
                seen.add(gap.row.id)
    return taken


def _build_case(row: QuestionRow, about: str, left: Side, right: Side) -> Case:
    hops = f"{row.hops} hops" if row.hops else "hops unknown"
    golds = join_answers(row.golds)
    return Case(row.id, row.question, golds, f"{about}, {hops}, route {row.route or 'none'}", left, right)


def _build_side(row: QuestionRow, run: LoadedRun, measure: str) -> Side:
    answer = row.prediction or row.error or "none"
    score = f"{MEASURE_NAMES[measure]} {measure_row(row, measure) or 0.0:.2f}"
    return Side(run.name, draw_plan(row.plan, _read_trace(row)), answer, score)


def _read_trace(row: QuestionRow) -> Trace | None:
    try:
        return Trace.from_json(row.trace) if isinstance(row.trace, dict) else row.trace
    except DataError:
        return None  # of an older format: the plan is shown without what its leaves found


def draw_plan(text: str, trace: Trace | None = None) -> Markup:
    """Draw a plan: parts of `+` side by side, stages of `*` below each other, with what `trace` found for each leaf.

    Without a plan, draw the steps of the trace. Text that is not a plan is shown as it is.
    """
    if not text:
        return _draw_steps(trace)
    try:
        plan = parse(text)
    except ExpressionError as error:
        return Markup('<p class="broken">no plan: {}</p><pre>{}</pre>').format(error.message, text)
    faults = check(plan)
    count = len(leaves(plan))
    sources = [{} for _ in range(count)] if faults else bind(plan).sources
    drawing = _draw_node(plan, zip(range(count), sources, _find_leaf_nodes(trace, count), strict=True))
    warning = Markup('<p class="broken">{}</p>').format(faults[0].message) if faults else Markup("")
    return Markup('<div class="plan">{}</div>').format(warning + drawing)


LeafFacts = tuple[int, Mapping[str, int], Node | None]  # its place, the leaves that fill its names, its trace node


def _draw_node(node: Expression, facts: Iterator[LeafFacts]) -> Markup:
    if isinstance(node, Atomic):
        return _draw_leaf(node, *next(facts))
    if isinstance(node, Dependent):
        below = [_draw_node(stage, facts) for stage in stages(node)]
        return Markup('<div class="chain">{}</div>').format(DOWN.join(below))
    beside = [_draw_node(item, facts) for item in node.children]
    return Markup('<div class="beside">{}</div>').format(Markup("").join(beside))


def _draw_leaf(leaf: Atomic, place: int, sources: Mapping[str, int], node: Node | None) -> Markup:
    origins = [f"{{{name}}} ← {letter(source)}" for name, source in sources.items()]
    parts = [
        Markup('<span class="letter">{}</span> {}').format(letter(place), _mark_names(leaf)),
        *(Markup('<span class="origin">{}</span>').format(text) for text in origins),
        *([_draw_result(node)] if node else []),
    ]
    return Markup('<div class="leaf">{}</div>').format(Markup(" ").join(parts))


def _mark_names(leaf: Atomic) -> Markup:
    """The text of a leaf with its `{names}` highlighted."""
    text, parts = leaf.text, []
    for name in leaf.placeholders:
        before, _, text = text.partition(f"{{{name}}}")
        parts += [Markup("{}<mark>{}</mark>").format(before, f"{{{name}}}")]
    return Markup("").join([*parts, Markup("{}").format(text)])


def _draw_result(node: Node) -> Markup:
    """The answers of a node and the titles that it found, those that were read first and in bold."""
    answers = join_answers(node.answers) or node.error or "no answer"
    style = "answer" if node.answers else "answer none"
    read = set(node.detail.get("kept", []))
    ranked = sorted(node.documents, key=lambda passage: passage.id not in read)[:PASSAGES_SHOWN]
    titles = Markup(", ").join(
        Markup("<b>{}</b>" if passage.id in read else "{}").format(passage.title) for passage in ranked
    )
    shown = Markup('<div class="titles">{}</div>').format(titles) if ranked else Markup("")
    return Markup('<div class="{}">→ {}</div>').format(style, answers) + shown


def _find_leaf_nodes(trace: Trace | None, count: int) -> Sequence[Node | None]:
    """The trace's nodes of a plan's leaves, in its order; no nodes if their number is not the plan's."""
    atomic = {node.id: node for node in trace.nodes if node.kind == "atomic"} if trace else {}
    own = [atomic[id] for id in sort_ids(atomic) if "." not in id]
    return own if len(own) == count else [None] * count


def _draw_steps(trace: Trace | None) -> Markup:
    """What a system without a plan did: one box for each search or reading."""
    nodes = [node for node in trace.nodes if node.kind in ("atomic", "direct")] if trace else []
    if trace is None or not nodes:
        return Markup('<p class="broken">no plan</p>')
    form = Markup('<div class="leaf"><span class="letter">{}</span> {} {}</div>')
    boxes = [
        form.format(place, node.asked or node.question or trace.question, _draw_result(node))
        for place, node in enumerate(nodes, 1)
    ]
    return Markup('<div class="plan"><div class="chain">{}</div></div>').format(DOWN.join(boxes))
