"""The charts of a report, drawn by matplotlib as SVG that stands in the page and takes its colours, light or dark.

matplotlib draws with the stand-in colours of `COLOURS`; `draw` replaces each by a colour of the page's style sheet.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evaluation.harness.run_metrics import MEASURES
from evaluation.report.runs import Estimate, LoadedRun, Series

WIDTH, HEIGHT = 400, 300  # of a chart in px where a page shows it at its own size
SYSTEM_COLOURS = 8
MARKS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"))  # of matplotlib, and as a character of the legend
FULL = 1.04  # the end of an axis of scores: the mark of a full score stands off the frame
LOG_FROM = 20  # an axis whose largest value is so many times its smallest is logarithmic

COLOURS = {
    name: f"#0000{number:02x}"
    for number, name in enumerate(("ink", "paper", *(f"s{number}" for number in range(SYSTEM_COLOURS))), 1)
}
INK = COLOURS["ink"]
STYLE: dict[Any, Any] = {  # matplotlib's type of its parameters is a list of all their names
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a name with two dollar signs is no formula
    "font.sans-serif": ["DejaVu Sans"],  # matplotlib brings it, so that it can measure texts
    "font.size": 12,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "lines.markersize": 9,
    "lines.markeredgecolor": COLOURS["paper"],
}

Paint = Callable[[Axes], None]


@dataclass(frozen=True)
class Chart:
    """A chart to draw: `kind` says what it shows, `runs` are those that it is made from."""

    kind: str
    title: str
    note: str
    runs: Sequence[LoadedRun]
    paint: Paint

    def draw(self, id: str) -> Markup:
        return draw(id, self.title, self.paint)


def choose_charts(runs: Sequence[LoadedRun], measure: str) -> list[Chart]:
    """The charts for which the runs of one benchmark have figures."""
    runs = select_charted_runs(runs)
    return [*_chart_quality_against_cost(runs, measure), *_chart_accuracy_by_coverage(runs)]


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
        if not any(cost["high"] for _, cost, _ in points):
            continue  # nobody wrote or read a token
        quality = MEASURES[measure]
        title = f"{quality[0].upper()}{quality[1:]} against {label}"
        paint = partial(paint_scatter, points=points, x_label=label, y_label=quality)
        yield Chart(f"quality-{kind}", title, note, runs, paint)


def _chart_accuracy_by_coverage(runs: Sequence[LoadedRun]) -> Iterator[Chart]:
    doubts = {"answer_floor": "unsure answers", "relevance_floor": "answers from passages of doubtful relevance"}
    for limit, doubt in doubts.items():
        curves = [(run, curve) for run in runs if (curve := run.metrics.get("coverage", {}).get(limit))]
        if curves:
            note = f"From right to left {limit} rises: fewer questions keep their answer, and more of these are right."
            paint = partial(paint_coverage, curves=[(run.series, curve) for run, curve in curves])
            drawn = [run for run, _ in curves]
            yield Chart("coverage", f"Exact match without {doubt}", note, drawn, paint)


def paint_scatter(axes: Axes, points: Sequence[tuple[Series, Estimate, Estimate]], x_label: str, y_label: str) -> None:
    """One mark for each series at its two means, with both intervals."""
    lowest, highest = min(x["low"] for _, x, _ in points), max(x["high"] for _, x, _ in points)
    if lowest > 0 and highest / lowest >= LOG_FROM:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter("")
        x_label += " (log)"
    else:
        axes.set_xlim(0, 1.08 * highest or 1)
        axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: format_number(value))
    axes.set(xlabel=x_label, ylabel=y_label, ylim=(0, min(FULL, 1.08 * max(y["high"] for *_, y in points) or 1)))
    for series, x, y in points:
        axes.plot([x["low"], x["high"]], [y["value"]] * 2, color=_choose_colour(series), alpha=0.75)
        axes.plot([x["value"]] * 2, [y["low"], y["high"]], color=_choose_colour(series), alpha=0.75)
        _draw_mark(axes, series, x["value"], y["value"])


def paint_coverage(axes: Axes, curves: Sequence[tuple[Series, Sequence[Mapping[str, float]]]]) -> None:
    """The share of right answers by the share of questions that keep theirs; a mark for each floor."""
    for series, curve in curves:
        x, y = [one["coverage"] for one in curve], [one["accuracy"] for one in curve]
        axes.plot(x, y, color=_choose_colour(series), alpha=0.7, linewidth=1.2, gid=f"curve|{series.name}")
        for one in curve:
            _draw_mark(axes, series, one["coverage"], one["accuracy"], markersize=7)
    x_label, y_label = "share of questions that are answered", "exact match of these"
    axes.set(xlabel=x_label, ylabel=y_label, xlim=(0, FULL), ylim=(0, FULL))


def _draw_mark(axes: Axes, series: Series, x: float, y: float, **how: Any) -> None:
    axes.plot(x, y, _choose_marker(series)[0], color=_choose_colour(series), clip_on=False, zorder=3, **how)


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


def draw(id: str, label: str, paint: Paint) -> Markup:
    """The SVG of what `paint` draws on the axes of a new figure, without matplotlib's own style sheet and size. `id` is
    unique in the page: it salts the ids that something refers to; the others are dropped."""
    text = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": id}):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), layout="constrained")
        paint(figure.subplots())
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=metadata)
    svg = text.getvalue()
    referred = set(re.findall(r"""["(]#([^")]+)[")]""", svg))
    svg = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in referred else "", svg)
    names = {colour: f"var(--{name})" for name, colour in COLOURS.items()}
    svg = re.sub("#0000[0-9a-f]{2}", lambda match: names[match[0]], svg)
    svg = re.sub("<style.*?</style>", "", svg, flags=re.DOTALL)
    head = Markup('<svg class="chart" role="img" aria-label="{}" viewBox="0 0 {} {}">')
    return head.format(label, WIDTH, HEIGHT) + Markup(svg[svg.index(">", svg.index("<svg")) + 1 :])
