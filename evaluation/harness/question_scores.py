"""Turns a question and its trace into the row of a run: scores against gold, and cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import chain, zip_longest

from data_gen.questions import AnnotatedQuestion
from evaluation.harness.benchmarks import Benchmark
from evaluation.harness.folder import Cost, QuestionRow
from evaluation.harness.formats import BenchmarkQuestion
from evaluation.metrics.plans import PlanSummary, summarise_plan
from evaluation.metrics.retrieval import score_titles
from revelator.errors import ExpressionError
from revelator.plans import logic
from revelator.scores import score_answer, score_list_answer
from revelator.tasks import PLANNING
from revelator.trace import Trace, join_answers

CUTOFFS = (2, 5, 10)


def find_gold_titles(question: AnnotatedQuestion) -> tuple[str, ...]:
    """Finds the titles of the passages that state the steps' answers or, if the steps name none, of relevant
    passages."""
    named = [step.title for step in question.steps if step.title]
    return tuple(dict.fromkeys(named or [passage.title for passage in question.passages if passage.relevant]))


def start_row(question: BenchmarkQuestion, benchmark: Benchmark) -> QuestionRow:
    """Makes the row of a question that has not been asked yet."""
    gold, plan = question.gold, question.plan
    query = logic.parse(gold.query) if gold.query else None
    return QuestionRow(
        id=gold.id,
        benchmark=benchmark.name,
        question=gold.question,
        golds=gold.answers,
        gold_route=gold.route,
        gold_plan=gold.expression,
        shape=plan.letters if plan else "",
        hops=len(gold.steps) or (plan.leaves if plan else 0),
        depth=plan.depth if plan else 0,
        terms=len(logic.list_terms(query)) if query else 0,
        negations=logic.count_negations(query) if query else 0,
        kind=question.kind,
        gold_titles=find_gold_titles(gold),
    )


def score_answers(
    prediction: str,
    predictions: Collection[str],
    golds: Collection[str],
    normaliser: str,
    *,
    is_list: bool,
    spellings: Sequence[tuple[str, ...]] = (),
) -> dict[str, float]:
    """Computes em, acc and f1 by the rule of the benchmark, or by that of lists if all of several gold values count.
    Of a value that has other `spellings` the one counts that a prediction comes closest to."""
    ways = [(gold, *others) for gold, others in zip_longest(golds, spellings, fillvalue=())]
    if is_list and len(golds) > 1:
        return dict(vars(score_list_answer([*predictions], [_choose_spelling(way, predictions) for way in ways])))
    return dict(vars(score_answer(prediction, [*chain(*ways)], normaliser)))


def _choose_spelling(ways: tuple[str, ...], predictions: Collection[str]) -> str:
    return max(ways, key=lambda way: max((astuple(score_answer(one, [way])) for one in predictions), default=()))


def score_prediction(
    row: QuestionRow, question: BenchmarkQuestion, benchmark: Benchmark, values: Sequence[str]
) -> QuestionRow:
    """Makes the row of a question of which only the answers are known."""
    text, rule, is_list = join_answers(values), benchmark.normaliser, benchmark.has_list_answers
    if row.golds:
        scores = score_answers(text, values, row.golds, rule, is_list=is_list, spellings=question.spellings)
    else:
        scores = {"refused": float(not text)}
    status = "answered" if text else "unanswered"
    return replace(row, prediction=text, predictions=tuple(values), status=status, scores=scores)


def score_trace(
    row: QuestionRow,
    question: BenchmarkQuestion,
    benchmark: Benchmark,
    trace: Trace,
    *,
    compiles_plans: bool = True,
    sequential: bool = False,
    switched_off: Collection[str] = (),
) -> QuestionRow:
    """Makes the row of an answered question. `compiles_plans`: a missing plan is a wrong one. `sequential`: the
    system runs one step after the other. `switched_off`: tasks replaced by the ablation; their model calls are not
    counted."""
    row = score_prediction(row, question, benchmark, trace.answers)
    scores, found = dict(row.scores), _list_retrieved_titles(trace)
    probabilities = [node.detail["probability"] for node in trace.nodes if "probability" in node.detail]
    judged = [[p.relevance for p in node.documents if p.relevance is not None] for node in trace.nodes]
    if row.gold_titles and any(node.usage.retrievals for node in trace.nodes):
        scores |= score_titles(found, row.gold_titles, CUTOFFS)
    if compiles_plans and question.plan and row.gold_route in ("complex", "compound"):
        scores |= score_plan(trace.plan or "", question.plan, own=trace.plan_source == "model")
    if trace.route and row.gold_route:
        scores["route"] = float(trace.route == row.gold_route)
    if "refused" in scores and trace.outcome == "failed":
        scores["refused"] = 0.0
    return replace(
        row,
        status=trace.outcome,
        error=trace.reason or "",
        route=trace.route or "",
        plan=trace.plan or "",
        retrieved=found,
        scores=scores,
        probability=min(probabilities, default=None),
        relevance=min((max(leaf) for leaf in judged if leaf), default=None),
        cost=count_cost(trace, sequential=sequential, switched_off=switched_off),
        trace=trace,
    )


def score_plan(plan: str, gold: PlanSummary, *, own: bool) -> dict[str, float]:
    """`valid`: the plan checks, and is the model's `own`. `letters`: it has gold's shape, up to the order of `+`."""
    found = None
    if own and plan:
        with suppress(ExpressionError):
            found = summarise_plan(plan)
    if found is None:
        return {"valid": 0.0, "letters": 0.0}
    return {"valid": float(found.valid), "letters": float(found.letters == gold.letters)}


def count_cost(trace: Trace, *, sequential: bool = False, switched_off: Collection[str] = ()) -> Cost:
    """Returns the cost; times in seconds. `switched_off`: as of `score_trace`."""
    calls: dict[str, int] = {}
    for call in (call for node in trace.nodes for call in node.list_calls()):
        task = call["task"]
        if task in PLANNING and "tokens_in" in call and task not in switched_off:  # what failed has no tokens
            calls[task] = calls.get(task, 0) + call["count"]
    usage = trace.usage
    return Cost(
        usage.tokens_in,
        usage.tokens_out,
        usage.generator_calls,
        calls,
        usage.retrievals,
        count_rounds(trace, sequential=sequential),
        trace.wall_ms / 1000,
        trace.critical_path_ms / 1000,
        sum(call.get("passages", 0) for node in trace.nodes for call in node.list_calls()),
    )


def count_rounds(trace: Trace, *, sequential: bool = False) -> int:
    """Counts sequential rounds of retrieval and generation: the longest chain of leaves that searched or, without a
    plan or if `sequential`, every search, but those of one `round` of a baseline once."""
    searched = [node for node in trace.nodes if node.usage.retrievals]
    if sequential or not trace.plan:
        return len({node.detail.get("round", node.id) for node in searched})
    by_id = {node.id: node for node in trace.nodes}
    members: dict[str, list[str]] = {}
    for node in trace.nodes:
        if node.parent and "." in node.id:
            members.setdefault(node.parent, []).append(node.id)
    known: dict[str, int] = {}

    def stage(id: str) -> int:
        if id not in known:
            known[id] = 0  # a node that stands for several waits for none of them
            node = by_id[id]
            before = [stage(other) for other in node.inputs.values() if other in by_id]
            own = max(before, default=0) + bool(node.usage.retrievals)
            known[id] = max([own, *(stage(member) for member in members.get(id, ()))])
        return known[id]

    return max((stage(node.id) for node in searched), default=0)


def _list_retrieved_titles(trace: Trace) -> tuple[str, ...]:
    """Lists distinct titles: the first of every leaf, then the second of every leaf, and so on."""
    rankings = [[passage.title for passage in node.documents] for node in trace.nodes if node.usage.retrievals]
    return tuple(dict.fromkeys(title for title in chain.from_iterable(zip_longest(*rankings)) if title is not None))
