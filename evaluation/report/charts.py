"""The charts of a report, drawn by matplotlib as SVG that stands in the page and takes its colours, light or dark.

matplotlib draws with the stand-in colours of `COLOURS`; `draw` replaces each by a colour of the page's style sheet.
Text stays text. What the mouse should tell about a mark is the mark's `gid`, "class|title"; `draw` makes a class and a
title of it and drops all ids that nothing refers to, so that ids are unique in the page.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from evaluation.metrics.bootstrap import bootstrap_columns
from evaluation.metrics.retrieval import title_recall
from evaluation.report.runs import MEASURE_NAMES, Estimate, LoadedRun, Series
from revelator.errors import ExpressionError
from revelator.plans import parse, to_letters
from revelator.tasks import TASKS

WIDTH = 400  # of a chart in px where a page shows it at its own size
BAR = 15  # height of a bar with its gap in px
SYSTEM_COLOURS = 8
MARKS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"))  # of matplotlib, and as a character of the legend
LOG_FROM = 20  # an axis whose largest value is so many times its smallest is logarithmic
QUARTERS = (0, 0.25, 0.5, 0.75, 1)
DEPTH = 20  # documents of a recall curve

NAMED = ("ink", "soft", "grid", "paper", "cell", "on-cell", *(f"s{number}" for number in range(SYSTEM_COLOURS)))
COLOURS = {name: f"#0000{number:02x}" for number, name in enumerate(NAMED, 1)}
INK, SOFT, GRID, PAPER = (COLOURS[name] for name in NAMED[:4])
STYLE: dict[Any, Any] = {  # matplotlib's type of its parameters is a list of all their names
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib brings it, so that it can measure texts
    "font.size": 12,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": SOFT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": GRID,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
    "lines.markersize": 9,
    "lines.markeredgecolor": PAPER,
}

Paint = Callable[[Axes], None]


@dataclass(frozen=True)
class Chart:
    """A chart to draw: `kind` says what it shows, `runs` are those that it is made from, `height` is in px."""

    kind: str
    title: str
    note: str
    runs: Sequence[LoadedRun]
    height: float
    paint: Paint

    def draw(self, id: str) -> Markup:
        return draw(id, self.title, self.height, self.paint)


def choose_charts(runs: Sequence[LoadedRun], measure: str) -> list[Chart]:
    """The charts for which the runs of one benchmark have figures."""
    runs = select_charted_runs(runs)
    return [
        *_chart_quality_against_cost(runs, measure),
        *_chart_quality_by_group(runs, measure),
        *_chart_route_confusion(runs),
        *_chart_label_reliability(runs),
        *_chart_accuracy_by_coverage(runs),
        *_chart_recall_by_depth(runs),
    ]


def select_charted_runs(runs: Sequence[LoadedRun]) -> Sequence[LoadedRun]:
    """All runs, or only those without an ablation if there are more runs than colours."""
    whole = [run for run in runs if not run.run.ablation]
    return whole if whole and len(runs) > SYSTEM_COLOURS else runs


def _chart_quality_against_cost(runs: Sequence[LoadedRun], measure: str) -> Iterator[Chart]:
    runs = [run for run in runs if measure in run.figures and "wall_s" in run.figures]
    if not runs:
        return
    note = "Up and to the left is better. Whiskers are 95 % intervals of both means."
    tokens = [(run.series, run.tokens, run.figures[measure]) for run in runs]
    seconds = [(run.series, run.figures["wall_s"], run.figures[measure]) for run in runs]
    for kind, label, points in (("tokens", "tokens a question", tokens), ("latency", "seconds a question", seconds)):
        title = f"{MEASURE_NAMES[measure]} against {label}"
        paint = partial(paint_scatter, points=points, x_label=label, y_label=MEASURE_NAMES[measure])
        yield Chart(f"quality-{kind}", title, note, runs, 300, paint)


def _chart_quality_by_group(runs: Sequence[LoadedRun], measure: str) -> Iterator[Chart]:
    if all("acc" in run.figures for run in runs):
        measure = "acc"
    groups = {"by-hops": "hops", "by-shape": "shape", "by-negation": "negations", "by-kind": "kind"}
    titles = {"shape": "shape of the gold plan", "kind": "kind of question"}
    for kind, group in groups.items():
        measured = [(run, _estimate_groups(run, group, measure)) for run in runs]
        keys = dict.fromkeys(key for _, estimates in measured for key in estimates)
        blocks = [
            (name_group(group, key), [(run.series, found[key]) for run, found in measured if key in found])
            for key in sorted(keys, key=lambda key: (len(key) if group != "kind" else 0, key))
        ]
        if blocks:
            title = f"{MEASURE_NAMES[measure]} by {titles.get(group, group)}"
            height = 40 + sum(BAR * (2.2 + len(members)) for _, members in blocks)
            paint = partial(paint_bars, blocks=blocks, label=MEASURE_NAMES[measure])
            drawn = [run for run, estimates in measured if estimates]
            yield Chart(kind, title, "Groups of fewer than 5 questions are left out.", drawn, height, paint)


def _estimate_groups(run: LoadedRun, group: str, measure: str) -> dict[str, Estimate]:
    groups = run.metrics["groups"].get(group, {})
    return {key: estimates[measure] for key, estimates in groups.items() if measure in estimates}


def name_group(group: str, key: str) -> str:
    """`2` as "2 hops", a shape in the letters of its leaves."""
    if group == "kind":
        return key
    if group == "shape":
        try:
            return to_letters(parse(key.replace("*", " * ").replace("+", " + ")))
        except ExpressionError:
            return key
    return f"{key} {group.removesuffix('s') if key == '1' else group}"


def _chart_route_confusion(runs: Sequence[LoadedRun]) -> Iterator[Chart]:
    for run in runs:
        if counts := run.metrics["confusion"]:
            used = {*counts, *(label for row in counts.values() for label in row)}
            labels = [label for label in TASKS["route"].labels or () if label in used]
            note = "Gold routes down, predicted ones across. A cell is as dark as its share of the row."
            paint = partial(paint_confusion, counts=counts, labels=labels)
            yield Chart("confusion", f"Routes of {run.name}", note, [run], 40 + 45 * len(labels), paint)


def _chart_label_reliability(runs: Sequence[LoadedRun]) -> Iterator[Chart]:
    for task in dict.fromkeys(task for run in runs for task in run.metrics["calibration"]):
        drawn = [run for run in runs if task in run.metrics["calibration"]]
        found = [(run, run.metrics["calibration"][task]) for run in drawn]
        errors = "; ".join(f"{run.name} {_format_interval(one['ece'])}, n={one['ece']['n']}" for run, one in found)
        note = f"Expected calibration error: {errors}. A dot's area is the share of answers in its bin."
        paint = partial(paint_reliability, curves=[(run.series, one["bins"]) for run, one in found])
        yield Chart("reliability", f"Reliability of {task}", note, drawn, 320, paint)


def _chart_accuracy_by_coverage(runs: Sequence[LoadedRun]) -> Iterator[Chart]:
    for limit in ("answer_floor", "relevance_floor"):
        curves = [(run, curve) for run in runs if (curve := run.metrics.get("coverage", {}).get(limit))]
        if curves:
            note = "From right to left the floor rises: fewer questions keep their answer, and more of these are right."
            paint = partial(paint_coverage, curves=[(run.series, curve) for run, curve in curves])
            drawn = [run for run, _ in curves]
            yield Chart("coverage", f"Accuracy against coverage by {limit}", note, drawn, 300, paint)


def _chart_recall_by_depth(runs: Sequence[LoadedRun]) -> Iterator[Chart]:
    runs = [run for run in runs if any(row.gold_titles and row.retrieved for row in run.rows)]
    if runs:
        note = "Gold pages among the first that the searches of an answered question found, taking turns."
        paint = partial(paint_curves, curves=[(run.series, _measure_recalls(run)) for run in runs])
        yield Chart("recall-curves", "Recall of gold pages", note, runs, 280, paint)


def _measure_recalls(run: LoadedRun) -> list[Estimate]:
    """The recall of gold pages among the first 1, 2, … `DEPTH`."""
    rows = [row for row in run.rows if row.gold_titles and row.status != "error"]
    values = [[title_recall([row.retrieved], row.gold_titles, k) for k in range(1, DEPTH + 1)] for row in rows]
    return [{"n": one.n, "value": one.mean, "low": one.low, "high": one.high} for one in bootstrap_columns(values)]


def paint_scatter(axes: Axes, points: Sequence[tuple[Series, Estimate, Estimate]], x_label: str, y_label: str) -> None:
    """One mark for each series at its two means, with both intervals."""
    lowest, highest = min(x["low"] for _, x, _ in points), max(x["high"] for _, x, _ in points)
    if lowest > 0 and highest / lowest >= LOG_FROM:
        axes.set_xscale("log")
        axes.set_xlim(lowest / 1.3, highest * 1.3)
        subs = (1.0, 2.0, 5.0) if highest / lowest < 60 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_formatter(NullFormatter())
        x_label += " (log)"
    else:
        axes.set_xlim(0, 1.08 * highest or 1)
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_ylim(0, min(1, 1.08 * max(y["high"] for *_, y in points) or 1))
    axes.set(xlabel=x_label, ylabel=y_label)
    _format_ticks(axes)
    for series, x, y in points:
        colour = _choose_colour(series)
        axes.plot([x["low"], x["high"]], [y["value"]] * 2, color=colour, alpha=0.75, linewidth=1.8)
        axes.plot([x["value"]] * 2, [y["low"], y["high"]], color=colour, alpha=0.75, linewidth=1.8)
        _draw_mark(axes, series, x["value"], y["value"], f"{format_number(x['value'])}, {y['value']:.3f}")


def paint_bars(axes: Axes, blocks: Sequence[tuple[str, Sequence[tuple[Series, Estimate]]]], label: str) -> None:
    """A block of horizontal bars for each group: a mark, the bar with its interval, and the value in [0, 1]."""
    beside = axes.get_yaxis_transform()  # x in shares of the width, so that marks and values stand outside of the axes
    y = 0.0
    for name, members in blocks:
        axes.text(0, y, name, weight="bold", va="center")
        for series, estimate in members:
            y += 1
            end, low, high = (max(0.0, min(1.0, estimate[part])) for part in ("value", "low", "high"))
            title = f"{series.name}, {name}: {_format_interval(estimate)}, n={estimate['n']:.0f}"
            axes.barh(y, max(end, 0.003), 0.85, color=_choose_colour(series), gid=f"bar|{title}")
            axes.plot([low, high], [y, y], color=INK, alpha=0.75, linewidth=1.8)
            axes.plot(
                -0.045, y, _choose_marker(series)[0], color=_choose_colour(series), clip_on=False, transform=beside
            )
            axes.text(1.02, y, f"{estimate['value']:.2f}", va="center", transform=beside)
        y += 1.6
    axes.set(xlim=(0, 1), ylim=(y - 0.8, -0.8), xlabel=label, xticks=QUARTERS, yticks=())
    _format_ticks(axes)


def paint_confusion(axes: Axes, counts: Mapping[str, Mapping[str, int]], labels: Sequence[str]) -> None:
    """Gold labels down, predicted ones across. A cell has its count, and is as dark as its share of the row."""
    for y, gold in enumerate(labels):
        total = sum(counts.get(gold, {}).values())
        for x, predicted in enumerate(labels):
            count = counts.get(gold, {}).get(predicted, 0)
            share = count / total if total else 0.0
            cell = Rectangle((x - 0.49, y - 0.48), 0.98, 0.96, color=COLOURS["cell"], alpha=0.06 + 0.94 * share)
            cell.set_gid(f"cell|{gold} taken for {predicted}: {count} of {total}")
            axes.add_patch(cell)
            ink = COLOURS["on-cell"] if share > 0.68 else INK
            axes.text(x, y, f"{count}", ha="center", va="center", color=ink)
    places = range(len(labels))
    axes.set(xlim=(-0.5, len(labels) - 0.5), ylim=(len(labels) - 0.5, -0.5))
    axes.set_xticks(places, labels, fontsize=10.5)
    axes.set_yticks(places, labels, fontsize=10.5)
    axes.xaxis.tick_top()
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


def paint_reliability(axes: Axes, curves: Sequence[tuple[Series, Sequence[Mapping[str, float]]]]) -> None:
    """The share of right answers by confidence; a dot for each bin, as large as the bin. The diagonal is calibrated."""
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle=(0, (4, 4)), linewidth=1)
    for series, bins in curves:
        total = sum(one["n"] for one in bins) or 1
        x, y = [one["confidence"] for one in bins], [one["accuracy"] for one in bins]
        axes.plot(
            x, y, color=_choose_colour(series), alpha=0.7, linewidth=1.2, clip_on=False, gid=f"curve|{series.name}"
        )
        for one in bins:
            title = f"{one['accuracy']:.2f} right of {one['n']:.0f} given with {one['confidence']:.2f}"
            size = 2 * (3 + 9 * math.sqrt(one["n"] / total))
            _draw_mark(axes, series, one["confidence"], one["accuracy"], title, size)
    _set_unit_axes(axes, "confidence", "share that is right")
    axes.set(xlim=(0, 1), xticks=QUARTERS)


def paint_coverage(axes: Axes, curves: Sequence[tuple[Series, Sequence[Mapping[str, float]]]]) -> None:
    """The share of right answers by the share of questions that keep theirs; a mark for each floor."""
    for series, curve in curves:
        x, y = [one["coverage"] for one in curve], [one["accuracy"] for one in curve]
        axes.plot(x, y, color=_choose_colour(series), alpha=0.7, linewidth=1.2, gid=f"curve|{series.name}")
        for one in curve:
            title = f"floor {one['floor']:g}: {one['accuracy']:.3f} right of {one['coverage']:.3f} answered"
            _draw_mark(axes, series, one["coverage"], one["accuracy"], title, 7)
    _set_unit_axes(axes, "share of questions that are answered", "EM of these")
    axes.set(xlim=(0, 1), xticks=QUARTERS)


def paint_curves(axes: Axes, curves: Sequence[tuple[Series, Sequence[Estimate]]]) -> None:
    """Recall by the number of pages, with the band of its intervals."""
    for series, estimates in curves:
        x = range(1, len(estimates) + 1)
        low, high = ([one[part] for one in estimates] for part in ("low", "high"))
        axes.fill_between(x, low, high, color=_choose_colour(series), alpha=0.16, linewidth=0)
        value = [one["value"] for one in estimates]
        axes.plot(x, value, color=_choose_colour(series), linewidth=2.2, gid=f"curve|{series.name}")
        for place in {0, len(x) // 2, len(x) - 1}:
            _draw_mark(axes, series, x[place], value[place], f"{value[place]:.3f} of {x[place]} pages")
    _set_unit_axes(axes, "pages", "recall")
    axes.set_xlim(0, DEPTH)
    axes.xaxis.set_major_locator(MaxNLocator(4))


def _set_unit_axes(axes: Axes, x_label: str, y_label: str) -> None:
    axes.set(xlabel=x_label, ylabel=y_label, ylim=(0, 1), yticks=QUARTERS)
    _format_ticks(axes)


def _format_ticks(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: format_number(value))


def _draw_mark(axes: Axes, series: Series, x: float, y: float, title: str, size: float = 10) -> None:
    (form, _), gid = _choose_marker(series), f"dot|{series.name}: {title}"
    axes.plot(x, y, form, color=_choose_colour(series), markersize=size, clip_on=False, zorder=3, gid=gid)


def _choose_marker(series: Series) -> tuple[str, str]:
    """Marks take turns, too: with its colour each of 32 series has a mark of its own."""
    return MARKS[(series.number + series.number // SYSTEM_COLOURS) % len(MARKS)]


def _choose_colour(series: Series) -> str:
    return COLOURS[f"s{series.number % SYSTEM_COLOURS}"]


def draw_legend_mark(series: Series) -> Markup:
    """The mark of a series as a character of its colour."""
    form = Markup('<span class="key s{}" aria-hidden="true">{}</span>')
    return form.format(series.number % SYSTEM_COLOURS, _choose_marker(series)[1])


def format_number(value: float) -> str:
    """As an axis writes it: `0.25`, `12.5k`."""
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:.3g}"


def _format_interval(estimate: Estimate) -> str:
    return f"{estimate['value']:.3f} [{estimate['low']:.3f}, {estimate['high']:.3f}]"


def draw(id: str, label: str, height: float, paint: Paint) -> Markup:
    """The SVG of what `paint` draws on the axes of a new figure. `id` is unique in the page."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": id}):
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        paint(figure.subplots())
        text = io.StringIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    names = {colour: name for name, colour in COLOURS.items()}
    svg = re.sub("#0000[0-9a-f]{2}", lambda match: f"var(--{names[match[0]]})", text.getvalue())
    return Markup(_fit_into_page(svg, label))


def _fit_into_page(svg: str, label: str) -> str:
    """Without matplotlib's own style, size and ids, but with classes and titles for the marks."""
    for prefix, place in (("", "http://www.w3.org/2000/svg"), ("xlink", "http://www.w3.org/1999/xlink")):
        ElementTree.register_namespace(prefix, place)
    root = ElementTree.fromstring(re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL))
    referred = set(re.findall(r"""["(]#([^")]+)[")]""", svg))
    for element in list(root.iter()):
        id = element.attrib.pop("id", "")
        if id in referred:
            element.set("id", id)
        style, is_mark, title = id.partition("|")
        if is_mark:
            element.set("class", style)
            head = ElementTree.Element("{http://www.w3.org/2000/svg}title")
            head.text = title
            element.insert(0, head)
    root.attrib.pop("width"), root.attrib.pop("height")
    root.attrib.update({"class": "chart", "role": "img", "aria-label": label})
    return ElementTree.tostring(root, encoding="unicode")
