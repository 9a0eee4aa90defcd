"""The report: what the runs of each benchmark say, as one HTML page that loads nothing else, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from evaluation.harness.run_metrics import COSTS, SCORES
from evaluation.report.cases import Case, find_most_different_cases, find_worst_cases
from evaluation.report.charts import Chart, choose_charts, draw_legend_mark, select_charted_runs
from evaluation.report.runs import Estimate, LoadedRun, choose_main_measure, compare_runs, group_by_benchmark


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
class Report:
    """The whole report. `command` wrote it, at the time `made`, with revelator's `version`."""

    sections: list[Section]
    runs: Sequence[LoadedRun]
    command: str
    made: str
    version: str


def build_report(runs: Sequence[LoadedRun], *, against: str | None, command: str, made: str, version: str) -> Report:
    """`against` names the system that the others are compared with; None takes the first run of each benchmark."""
    sections = [_build_section(name, members, against) for name, members in group_by_benchmark(runs).items()]
    return Report(sections, runs, command, made, version)


def _build_section(name: str, runs: list[LoadedRun], against: str | None) -> Section:
    reference = next((run for run in runs if run.name == against), runs[0])
    others = [run for run in runs if run is not reference]
    ablations = [(run, whole) for run in runs if (whole := _find_whole_system(run, runs))]
    tables = []
    for title, measures, refused in (("Quality", SCORES, ""), ("Cost", COSTS, ", without refused questions")):
        note = f"Mean of a question and its 95 % bootstrap interval{refused}."
        tables.append(_build_table(title, note, [(run.name, len(run.rows), run.figures) for run in runs], measures))
        if others:
            note = f"The difference to {reference.name} on the same questions."
            pairs = [(run, reference) for run in others]
            tables.append(_build_difference_table(f"{title} against {reference.name}", note, pairs, measures))
    if ablations:
        note = "The difference to the same system without its ablation, on the same questions."
        tables.append(_build_difference_table("Ablations", note, ablations, SCORES | COSTS))
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


def _build_difference_table(
    title: str, note: str, pairs: Sequence[tuple[LoadedRun, LoadedRun]], measures: Mapping[str, str]
) -> Table:
    """Each run less the other of its pair, on the questions that both have."""
    rows = []
    for run, reference in pairs:
        found = compare_runs(run, reference, measures)
        rows.append((run.name, max((int(estimate["n"]) for estimate in found.values()), default=0), found))
    note += " Mean and 95 % bootstrap interval; highlighted where the interval excludes 0."
    return _build_table(title, note, rows, measures, sign=True)


def _build_table(
    title: str,
    note: str,
    rows: Sequence[tuple[str, int, Mapping[str, Estimate]]],
    measures: Mapping[str, str],
    *,
    sign: bool = False,
) -> Table:
    """A row for each system, with n; with `sign` the estimates are differences."""
    names = [name for name in measures if any(name in estimates for *_, estimates in rows)]
    cells, strong = [], set()
    for place, (system, n, estimates) in enumerate(rows):
        found = [estimates.get(name) for name in names]
        own = (format_interval(one, name, sign=sign) for one, name in zip(found, names, strict=True))
        cells.append([system, f"{n}", *own])
        strong |= {(place, i) for i, one in enumerate(found, 2) if sign and one and (one["low"] > 0 or one["high"] < 0)}
    return Table(title, note, ["system", "n", *(measures[name] for name in names)], cells, strong)


def format_interval(estimate: Estimate | None, measure: str, *, sign: bool = False) -> str:
    """`0.412 [0.371, 0.455]`, with as few decimals as a measure of its size needs."""
    if estimate is None:
        return "–"
    size = max(abs(estimate["low"]), abs(estimate["high"]))
    decimals = 3 if measure not in COSTS else 2 if size < 10 else 1 if size < 1000 else 0
    plus = "+" if sign else ""
    value, low, high = (f"{estimate[name]:{plus},.{decimals}f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


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
    parts.append("## Reproduce")
    for run in report.runs:
        lines = "\n".join(f"* {name}: {_format_code(text)}" for name, text in run.recipe.items())
        parts.append(f"### {_escape(run.title)}\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """Text that a Markdown table shows as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _format_code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"
