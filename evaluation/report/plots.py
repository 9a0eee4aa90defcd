"""Which plots a report has, and from which runs each is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evaluation.metrics.bootstrap import bootstrap_columns
from evaluation.metrics.retrieval import title_recall
from evaluation.report import charts
from evaluation.report.charts import Figure, Series
from evaluation.report.runs import Loaded, measure_name
from revelator.errors import ExpressionError
from revelator.plans import parse, to_letters
from revelator.tasks import TASKS

DEPTH = 20  # documents of a recall curve


@dataclass(frozen=True)
class Plot:
    """A figure of the page; `kind` says what it shows, `runs` are ids of the cards that it is made from."""

    id: str
    kind: str
    title: str
    note: str
    svg: Markup
    runs: list[str]
    legend: list[Series]


def plots_of(benchmark: str, runs: Sequence[Loaded], measure: str) -> list[Plot]:
    """Those for which the runs of one benchmark have figures."""
    runs = plotted(runs)
    plots: list[Plot] = []

    def add(kind: str, title: str, note: str, svg: Markup, drawn: Sequence[Loaded]) -> None:
        number = len(plots)
        legend = [run.series for run in drawn]
        plots.append(Plot(f"plot-{benchmark}-{number}", kind, title, note, svg, [run.card for run in drawn], legend))

    name = measure_name(measure)
    drawn = [run for run in runs if measure in run.figures and "wall_s" in run.figures]
    if drawn:
        note = "Up and to the left is better. Whiskers are 95 % intervals of both means."
        tokens = [(run.series, run.tokens, run.figures[measure]) for run in drawn]
        times = [(run.series, run.figures["wall_s"], run.figures[measure]) for run in drawn]
        for kind, label, points in (("tokens", "tokens a question", tokens), ("latency", "seconds a question", times)):
            add(f"quality-{kind}", f"{name} against {label}", note, charts.scatter(points, label, name), drawn)
    shown = "acc" if all("acc" in run.figures for run in runs) else measure
    for kind, group in (("by-hops", "hops"), ("by-shape", "shape"), ("by-negation", "negations")):
        drawn = [run for run in runs if _holds(run, group, shown)]
        names = dict.fromkeys(key for run in drawn for key in run.metrics["groups"][group])
        blocks = [(group_name(group, key), _members(drawn, group, key, shown)) for key in sorted(names, key=_order)]
        if any(members for _, members in blocks):
            title = f"{measure_name(shown)} by {'shape of the gold plan' if group == 'shape' else group}"
            note = "Groups of fewer than 5 questions are left out."
            add(kind, title, note, charts.bars(blocks, measure_name(shown)), drawn)
    for run in runs:
        if counts := run.metrics["confusion"]:
            labels = [label for label in TASKS["route"].labels or () if _used(counts, label)]
            note = f"Gold routes down, {run.name}'s across; as dark as the share of the row."
            add("confusion", f"Routes of {run.name}", note, charts.confusion(counts, labels), [run])
    for task in dict.fromkeys(task for run in runs for task in run.metrics["calibration"]):
        drawn = [run for run in runs if task in run.metrics["calibration"]]
        curves = [(run.series, run.metrics["calibration"][task]["bins"]) for run in drawn]
        said = "; ".join(f"{run.name} {_ece(run, task)}" for run in drawn)
        note = f"Expected calibration error: {said}. A dot's area is the share of answers in its bin."
        add("reliability", f"Reliability of {task}", note, charts.reliability(curves), drawn)
    drawn = [run for run in runs if any(row.gold_titles and row.retrieved for row in run.rows)]
    if drawn:
        curves_ = [(run.series, list(range(1, DEPTH + 1)), _recalls(run)) for run in drawn]
        note = "Gold pages among the first that the searches of an answered question found, taking turns."
        add("recall-curves", "Recall of gold pages", note, charts.lines(curves_, "pages", "recall"), drawn)
    return plots


def plotted(runs: Sequence[Loaded]) -> Sequence[Loaded]:
    """All, or of many those without a switch: more marks than colours cannot be told apart at a glance."""
    whole = [run for run in runs if not run.run.ablation]
    return whole if whole and len(runs) > charts.COLOURS else runs


def group_name(group: str, key: str) -> str:
    """`2` as "2 hops", a shape in the letters of its leaves."""
    if group == "shape":
        try:
            return to_letters(parse(key.replace("*", " * ").replace("+", " + ")))
        except ExpressionError:
            return key
    return f"{key} {group.removesuffix('s') if key == '1' else group}"


def _holds(run: Loaded, group: str, measure: str) -> bool:
    return any(measure in figures for figures in run.metrics["groups"].get(group, {}).values())


def _members(runs: Sequence[Loaded], group: str, key: str, measure: str) -> list[tuple[Series, Figure]]:
    groups = [(run.series, run.metrics["groups"][group].get(key, {})) for run in runs]
    return [(series, figures[measure]) for series, figures in groups if measure in figures]


def _order(key: str) -> tuple[int, str]:
    return (len(key), key)


def _used(counts: dict[str, dict[str, int]], label: str) -> bool:
    return label in counts or any(label in row for row in counts.values())


def _ece(run: Loaded, task: str) -> str:
    found = run.metrics["calibration"][task]["ece"]
    return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}], n={found['n']}"


def _recalls(run: Loaded) -> list[Figure]:
    rows = [row for row in run.rows if row.gold_titles and row.status != "error"]
    values = [[title_recall([row.retrieved], row.gold_titles, k) for k in range(1, DEPTH + 1)] for row in rows]
    return [{"n": one.n, "value": one.mean, "low": one.low, "high": one.high} for one in bootstrap_columns(values)]
