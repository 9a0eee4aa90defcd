"""The report: what the runs of each benchmark say, as one HTML page that loads nothing else, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from evaluation.costs.model import Prices, ServiceTimes, count_demand, predict
from evaluation.report.cases import Case, find_most_different_cases, find_worst_cases
from evaluation.report.charts import Chart, choose_charts, draw_legend_mark, select_charted_runs
from evaluation.report.runs import (
    COSTS,
    MEASURE_NAMES,
    MEASURES,
    Estimate,
    LoadedRun,
    choose_main_measure,
    compare_runs,
    group_by_benchmark,
)


@dataclass(frozen=True)
class Table:
    """`cells` are texts, the first of each row its name; `strong` are (row, column) whose interval excludes 0."""

    title: str
    note: str
    head: list[str]
    cells: list[list[str]]
    strong: set[tuple[int, int]] = field(default_factory=set)

    def to_markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *([_escape(text) for text in row] for row in self.cells)]
        return "\n\n".join([f"### {self.title}", self.note, "\n".join(f"| {' | '.join(line)} |" for line in lines)])


@dataclass(frozen=True)
class Section:
    """What the runs of one benchmark say."""

    name: str
    about: str
    runs: list[LoadedRun]
    tables: list[Table]
    charts: list[Chart]
    worst: list[Case]
    worst_of: str
    different: list[Case]


@dataclass(frozen=True)
class Recipe:
    """How to repeat one run; `anchor` is its id in the page."""

    anchor: str
    name: str
    lines: dict[str, str]


@dataclass(frozen=True)
class Report:
    """The whole report. `command` wrote it, at the time `made`, with revelator's `version`."""

    sections: list[Section]
    recipes: dict[str, Recipe]
    command: str
    made: str
    version: str
    costs: Table | None = None


def build_report(
    runs: Sequence[LoadedRun], *, against: str | None, command: str, made: str, version: str, costs: Table | None = None
) -> Report:
    """`against` names the system that the others are compared with; None takes the first run of each benchmark."""
    sections = [_build_section(name, members, against) for name, members in group_by_benchmark(runs).items()]
    return Report(sections, {run.anchor: _build_recipe(run) for run in runs}, command, made, version, costs)


def _build_section(name: str, runs: list[LoadedRun], against: str | None) -> Section:
    reference = next((run for run in runs if run.name == against), runs[0])
    others = [run for run in runs if run is not reference]
    pairs = [(run, reference) for run in others]
    ablations = [(run, whole) for run in runs if (whole := _find_whole_system(run, runs))]
    note = f"The difference to {reference.name} on the same questions."
    tables = []
    for title, measures in (("Quality", MEASURES), ("Cost", COSTS)):
        tables.append(build_overview_table(title, runs, measures))
        if pairs:
            tables.append(build_difference_table(f"{title} against {reference.name}", note, pairs, measures))
    if ablations:
        note = "The difference to the same system without its ablation, on the same questions."
        tables.append(build_difference_table("Ablations", note, ablations, MEASURE_NAMES))
    measure = choose_main_measure(runs)
    planned = next((run for run in [reference, *others] if any(row.plan for row in run.rows)), reference)
    different = find_most_different_cases(reference, others, measure)
    charts, worst = choose_charts(runs, measure), find_worst_cases(planned, measure)
    return Section(name, _describe(runs), runs, tables, charts, worst, planned.name, different)


def _find_whole_system(run: LoadedRun, runs: Sequence[LoadedRun]) -> LoadedRun | None:
    """The run of the same system with nothing taken out."""
    whole = (other for other in runs if not other.run.ablation and other.run.system == run.run.system)
    return next(whole, None) if run.run.ablation else None


def _describe(runs: Sequence[LoadedRun]) -> str:
    counts = sorted({len(run.rows) for run in runs})
    rules = sorted({str(run.metrics.get("normaliser", "")) for run in runs} - {""})
    text = f"{' to '.join(map(str, counts))} questions; answers compared by the rule {', '.join(rules) or 'of none'}"
    ids = [set(run.run.ids) for run in runs]
    if any(each != ids[0] for each in ids):
        text += f"; the runs do not have the same questions: {len(set.intersection(*ids))} are in all of them"
    if len(select_charted_runs(runs)) < len(runs):
        text += "; charts show the systems without ablations"
    return f"{text}."


def build_overview_table(title: str, runs: Sequence[LoadedRun], measures: Mapping[str, str]) -> Table:
    names = [name for name in measures if any(name in run.figures for run in runs)]
    cells = [
        [run.name, f"{len(run.rows)}", *(format_interval(run.figures.get(name), name) for name in names)]
        for run in runs
    ]
    refused = ", without refused questions" if measures is COSTS else ""
    note = f"Mean of a question and its 95 % bootstrap interval{refused}."
    return Table(title, note, ["system", "n", *(MEASURE_NAMES[name] for name in names)], cells)


def build_difference_table(
    title: str, note: str, pairs: Sequence[tuple[LoadedRun, LoadedRun]], measures: Mapping[str, str]
) -> Table:
    """Each run less the other of its pair, on the questions that both have."""
    found = [compare_runs(run, reference, list(measures)) for run, reference in pairs]
    names = [name for name in measures if any(name in estimates for estimates in found)]
    cells, strong = [], set()
    for row, ((run, _), estimates) in enumerate(zip(pairs, found, strict=True)):
        n = max((int(estimate["n"]) for estimate in estimates.values()), default=0)
        cells.append([run.name, f"{n}", *(format_interval(estimates.get(name), name, sign=True) for name in names)])
        strong |= {(row, column) for column, name in enumerate(names, 2) if _excludes_zero(estimates.get(name))}
    note += " Mean and 95 % bootstrap interval; highlighted where the interval excludes 0."
    return Table(title, note, ["system", "n", *(MEASURE_NAMES[name] for name in names)], cells, strong)


def _excludes_zero(estimate: Estimate | None) -> bool:
    return estimate is not None and (estimate["low"] > 0 or estimate["high"] < 0)


def format_interval(estimate: Estimate | None, measure: str, *, sign: bool = False) -> str:
    """`0.412 [0.371, 0.455]`, with as few decimals as a measure of its size needs."""
    if estimate is None:
        return "–"
    size = max(abs(estimate["low"]), abs(estimate["high"]))
    decimals = 3 if measure not in COSTS else 2 if size < 10 else 1 if size < 1000 else 0
    plus = "+" if sign else ""
    value, low, high = (f"{estimate[name]:{plus},.{decimals}f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def build_cost_table(runs: Sequence[LoadedRun], times: ServiceTimes) -> Table:
    """Throughput that is predicted for one and eight servers of each service, at 1 and 64 questions in flight."""
    cells = []
    for run in runs:
        counted = [row.cost for row in run.rows if row.has_cost]
        for gpus, inside in product((1, 8), (1, 64)) if counted else ():
            servers = {"revelator": gpus, "retriever": gpus, "generator": gpus}
            found = predict(count_demand(counted, times), servers, inside, Prices())
            figures = [f"{found.throughput:.2f}", f"{found.latency:.2f}", found.bottleneck, f"{found.utilisation:.0%}"]
            cells.append([f"{run.name} on {run.benchmark}", f"{gpus}", f"{inside}", *figures])
    note = f"From the calls that the runs counted, and the seconds that each service took on {times.machine}."
    head = [
        "system",
        "servers",
        "in flight",
        "questions a second",
        "seconds a question",
        "bottleneck",
        "its utilisation",
    ]
    return Table("Predicted throughput", note, head, cells)


def _build_recipe(run: LoadedRun) -> Recipe:
    about, adapter, index = run.run, run.run.adapter, run.run.index
    version = f"version {adapter['version']}, " if adapter.get("version") else ""
    data = ", ".join(f"{name} {digest[:16]}" for name, digest in about.benchmark.get("files", {}).items())
    lines = {
        "command": about.command,
        "config hash": about.config_hash,
        "data": data or "–",
        "adapter": f"{version}manifest {adapter['manifest'][:16]}, base {adapter.get('base', '')[:16]}"
        if adapter.get("manifest")
        else "none",
        "index": f"{index['count']:,} passages, {index['digest'][:16]}" if index.get("digest") else "none",
        "generator": about.generator or "none",
        "code": about.code[:16],
        "seed": str(about.seed),
        "machine": about.machine,
        "started": about.started,
    }
    return Recipe(run.anchor, f"{run.name} on {run.benchmark}", lines)


def render_html(report: Report) -> str:
    """The page; everything that it needs is in it."""
    folder = files("evaluation.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals["draw_legend_mark"] = draw_legend_mark
    style = Markup(folder.joinpath("style.css").read_text(encoding="utf-8"))
    template = environment.from_string(folder.joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(report=report, style=style)


def render_markdown(report: Report) -> str:
    """The same tables, and how to repeat each run."""
    made = f"Made {report.made} by revelator {report.version}: `{report.command}`."
    parts = ["# Evaluation", f"{made} Charts, cases and plans are in `report.html`."]
    for section in report.sections:
        parts += [f"## {section.name}", section.about, *(table.to_markdown() for table in section.tables)]
    if report.costs:
        parts += ["## Cost", report.costs.to_markdown()]
    parts.append("## Reproduce")
    for recipe in report.recipes.values():
        lines = "\n".join(f"* {name}: {_format_code(text)}" for name, text in recipe.lines.items())
        parts.append(f"### {_escape(recipe.name)}\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """Text that a Markdown table shows as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _format_code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"
