"""The report: what the runs of each benchmark say, as one HTML page that loads nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from rich.table import Table as TerminalTable

from evaluation.harness.run_metrics import (
    COSTS,
    FEWEST,
    GROUPED,
    MEANINGS,
    MEASURES,
    OUTCOMES,
    PART_COSTS,
    PARTS,
    SCORES,
)
from evaluation.report.cases import Case, find_most_different_cases, find_worst_cases
from evaluation.report.charts import Chart, choose_charts, draw_legend_mark, select_charted_runs
from evaluation.report.runs import (
    Estimate,
    LoadedRun,
    choose_main_measure,
    compare_runs,
    conclude,
    count_seen_by_either,
    group_by_benchmark,
)
from evaluation.seen import SeenCount
from revelator.errors import ExpressionError
from revelator.plans import parse, to_letters
from revelator.tasks import TASKS
from revelator.trace import join_answers

MOST_COLUMNS = 6  # systems that are columns on a terminal: more are rows
SUMMARY = ("Quality", "Outcomes", "Cost", "Cost by part")  # titles of the tables that a terminal shows
ROUTES = {route: route for route in TASKS["route"].labels or ()}
GROUP_TITLES = {
    "hops": "hops",
    "shape": "shape of the gold plan",
    "terms": "terms",
    "negations": "negations",
    "kind": "kind of question",
}
MARKS = {"": "", "best": "★", "better": "▲", "worse": "▼"}


@dataclass(frozen=True)
class Cell:
    """A figure: its value and interval as texts, and its `n` where that is not all questions of the run; or a number of
    questions, how many of them were seen in training, and how many a bound was not asked. It is the best of its column,
    or it is better or worse than what it is compared with."""

    value: str
    interval: str = ""
    mark: Literal["", "best", "better", "worse"] = ""
    n: str = ""
    seen: str = ""
    left_out: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, [MARKS[self.mark], self.value, self.interval, self.n, self.seen, self.left_out]))


@dataclass(frozen=True)
class Table:
    """`measures` are the columns after system and questions; a row has its system, its questions and its figures."""

    title: str
    note: str
    measures: Mapping[str, str]
    rows: list[tuple[str, Cell, list[Cell]]]

    @property
    def width(self) -> float:
        """In rem, with columns of equal width that hold the longest interval."""
        longest = max((len(cell.interval) for *_, cells in self.rows for cell in cells), default=0)
        return 8 + max(6, 1 + 0.42 * longest) * (1 + len(self.measures))


@dataclass(frozen=True)
class Section:
    """What the runs of one benchmark say."""

    name: str
    conclusion: str
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


def build_report(
    runs: Sequence[LoadedRun], *, against: str | None = None, command: str = "", made: str = "", version: str = ""
) -> Report:
    """`against` names the system that the others are compared with; None takes the first run of each benchmark."""
    sections = [_build_section(name, members, against) for name, members in group_by_benchmark(runs).items()]
    return Report(sections, runs, command, made, version)


def _build_section(name: str, runs: list[LoadedRun], against: str | None) -> Section:
    reference = next((run for run in runs if run.name == against), runs[0])
    others = [run for run in runs if run is not reference]
    ablations = [(run, whole) for run in runs if (whole := _find_whole_system(run, runs))]
    tables = []
    bounds = " and ".join(run.name for run in runs if run.is_bound)
    besides = f" Told gold and out of competition: {bounds}." if bounds else ""
    for title, known in (("Quality", SCORES), ("Cost", COSTS)):
        measures = {name: label for name, label in known.items() if _is_measured(name, runs)}
        which = "more is better" if known is SCORES else "less is better; refused questions are left out"
        best = f" ★ marks the best of a column.{besides}" if others else ""
        note = f"Mean of a question and its 95 % bootstrap interval; {which}.{best}"
        tables.append(_build_table(title, note, runs, measures))
        if others:
            note = f"The difference to {reference.name} on the same questions."
            pairs = [(run, reference) for run in others]
            tables.append(_build_difference_table(f"{title} against {reference.name}", note, pairs, measures))
    made = (_build_outcome_table(runs), _build_part_table(runs), _build_route_table(runs))
    tables += [table for table in made if table.rows]
    tables += [table for field, title in GROUP_TITLES.items() if (table := _build_group_table(field, title, runs)).rows]
    if ablations:
        note = "The difference to the same system without its ablation, on the same questions."
        tables.append(_build_difference_table("Ablations", note, ablations, SCORES | COSTS))
    measure = choose_main_measure(runs)
    planned = next((run for run in [reference, *others] if any(row.plan for row in run.rows)), reference)
    different = find_most_different_cases(reference, others, measure)
    charts, worst = choose_charts(runs, measure), find_worst_cases(planned, measure)
    conclusion = conclude(reference, others, measure)
    return Section(name, conclusion, _describe(runs), runs, tables, charts, worst, planned.name, different)


def _is_measured(measure: str, runs: Sequence[LoadedRun]) -> bool:
    """Whether a run has the figure. A cost that none of them had is not shown."""
    figures = [run.figures[measure] for run in runs if measure in run.figures]
    return any(measure in SCORES or figure["high"] > 0 for figure in figures)


def _find_whole_system(run: LoadedRun, runs: Sequence[LoadedRun]) -> LoadedRun | None:
    """The run of the same system with nothing taken out."""
    whole = (other for other in runs if not other.run.ablation and other.run.system == run.run.system)
    return next(whole, None) if run.run.ablation else None


def _describe(runs: Sequence[LoadedRun]) -> str:
    counts = sorted({len(run.rows) for run in runs})
    rules = sorted({str(run.metrics.get("normaliser", "")) for run in runs} - {"", "none"})
    text = f"{' to '.join(map(str, counts))} questions"
    text += f"; answers compared by the rule {', '.join(rules)}" if rules else ""
    if "refused" in runs[0].figures:
        text += f"; {runs[0].figures['refused']['n']:,} have no answer"
    ids = [set(run.run.ids) for run in runs]
    if any(each != ids[0] for each in ids):
        text += f"; the runs do not have the same questions: {len(set.intersection(*ids))} are in all of them"
    for run in runs:
        if run.run.without_gold:
            text += f"; {run.name} was not asked {run.run.without_gold:,} without the gold that it is given"
    if len(select_charted_runs(runs)) < len(runs):
        text += "; charts show the systems without ablations"
    return f"{text}. {'; '.join(f'{run.name} {run.seen}' for run in runs)}."


def _build_difference_table(
    title: str, note: str, pairs: Sequence[tuple[LoadedRun, LoadedRun]], measures: Mapping[str, str]
) -> Table:
    """Each run less the other of its pair, on the questions that both have."""
    gaps = [(run.name, compare_runs(run, other, measures), count_seen_by_either(run, other)) for run, other in pairs]
    measures = {name: label for name, label in measures.items() if any(name in found for _, found, _ in gaps)}
    rows = []
    for system, found, seen in gaps:
        n = max((int(estimate["n"]) for estimate in found.values()), default=0)
        rows.append((system, _build_count(n, seen), [_build_difference(found.get(name), name) for name in measures]))
    note += " Mean and 95 % bootstrap interval; ▲ is better and ▼ worse where the interval excludes 0."
    return Table(title, note, measures, rows)


def _build_count(n: float, seen: SeenCount) -> Cell:
    return Cell(f"{n:,.0f}", seen=str(seen))


def _count_questions(run: LoadedRun) -> Cell:
    """The count of all questions of a run."""
    left_out = f"left out: {run.run.without_gold:,} without gold" if run.run.without_gold else ""
    return replace(_build_count(len(run.rows), run.seen), left_out=left_out)


def _build_difference(gap: Estimate | None, measure: str) -> Cell:
    cell = format_interval(gap, measure, sign=True)
    if gap is None or gap["low"] <= 0 <= gap["high"]:
        return cell
    return replace(cell, mark="better" if (gap["low"] > 0) != (measure in COSTS) else "worse")


def _build_table(title: str, note: str, runs: Sequence[LoadedRun], measures: Mapping[str, str]) -> Table:
    """A row for each run. The best of a column is marked unless all read the same; a bound is no competitor."""
    best: dict[str, str] = {}
    for name in measures:
        figures = [run.figures[name] for run in runs if name in run.figures and not run.is_bound]
        if len({format_interval(figure, name).value for figure in figures}) > 1:
            choose = min if name in COSTS else max
            best[name] = format_interval(choose(figures, key=lambda figure: figure["value"]), name).value
    rows = [(run.name, _count_questions(run), [_build_cell(run, name, best) for name in measures]) for run in runs]
    return Table(title, note, measures, rows)


def _build_part_table(runs: Sequence[LoadedRun]) -> Table:
    """A row for each part of each run that was called; the note says once for each run what was seen."""
    rows, seen = [], dict[str, SeenCount]()
    for run in runs:
        for part, costs in run.metrics.get("parts", {}).items():
            if costs["calls"]:
                cells = [Cell(f"{costs[name]:,.{2 if costs[name] < 10 else 0}f}") for name in PART_COSTS]
                rows.append((f"{run.name}: {PARTS[part]}", Cell(f"{len(run.rows):,}"), cells))
                seen[run.name] = run.seen
    note = f"Mean of a question, of the calls that its trace holds. {'; '.join(f'{n} {s}' for n, s in seen.items())}."
    return Table("Cost by part", note, PART_COSTS, rows)


def _build_outcome_table(runs: Sequence[LoadedRun]) -> Table:
    """A row for each run that was asked questions without an answer."""
    rows = []
    for run in runs:
        if counts := run.metrics.get("outcomes"):
            rows.append((run.name, _count_questions(run), [Cell(f"{counts[name]:,}") for name in OUTCOMES]))
    note = "Questions that were answered rightly (exact match) or wrongly, and that were refused."
    return Table("Outcomes", note, OUTCOMES, rows)


def _build_route_table(runs: Sequence[LoadedRun]) -> Table:
    """A row for each gold route of each run: how many of its questions took which route."""
    rows = []
    for run in runs:
        for gold, counts in run.metrics["confusion"].items():
            cells = [Cell(f"{counts.get(route, 0):,}") for route in ROUTES]
            seen = run.count_seen(row for row in run.rows if row.gold_route == gold and row.route)
            rows.append((f"{run.name}: {gold}", _build_count(sum(counts.values()), seen), cells))
    return Table("Routes", "Questions by gold route (rows) and by the route that they took (columns).", ROUTES, rows)


def _build_group_table(field: str, title: str, runs: Sequence[LoadedRun]) -> Table:
    """A row for each group of questions and run, with the measures that a run has by group."""
    found = [(key, run, own) for run in runs for key, own in run.metrics["groups"].get(field, {}).items()]
    measures = {name: MEASURES[name] for name in GROUPED if any(name in own for *_, own in found)}
    rows = []
    for key, run, own in sorted(found, key=lambda one: (len(one[0]) if field != "kind" else 0, one[0])):
        n = max(figure["n"] for figure in own.values())
        cells = [format_interval(own.get(name), name) for name in measures]
        seen = run.count_seen(row for row in run.rows if str(getattr(row, field)) == key)
        rows.append((f"{name_group(field, key)}: {run.name}", _build_count(n, seen), cells))
    note = f"Mean of a question and its 95 % bootstrap interval. Groups of fewer than {FEWEST} questions are left out."
    return Table(f"By {title}", note, measures, rows)


def name_group(field: str, key: str) -> str:
    """`2` as "2 hops", a shape in the letters of its leaves."""
    if field == "kind":
        return key
    if field == "shape":
        try:
            return to_letters(parse(key.replace("*", " * ").replace("+", " + ")))
        except ExpressionError:
            return key
    return f"{key} {field.removesuffix('s') if key == '1' else field}"


def _build_cell(run: LoadedRun, measure: str, best: Mapping[str, str]) -> Cell:
    figure = run.figures.get(measure)
    cell = format_interval(figure, measure)
    n = f"n = {figure['n']:,.0f}" if figure and measure in SCORES and figure["n"] < len(run.rows) else ""
    return replace(cell, mark="best" if not run.is_bound and cell.value == best.get(measure) else "", n=n)


def format_interval(estimate: Estimate | None, measure: str, *, sign: bool = False) -> Cell:
    """`0.412` and `[0.371, 0.455]`, with as few decimals as a measure of its size needs."""
    if estimate is None:
        return Cell("–")
    size = max(abs(estimate["low"]), abs(estimate["high"]))
    decimals = 3 if measure not in COSTS else 4 if 0 < size < 0.1 else 2 if size < 10 else 1 if size < 1000 else 0
    plus = "+" if sign else ""
    value, low, high = (f"{estimate[name]:{plus},.{decimals}f}" for name in ("value", "low", "high"))
    return Cell(value, f"[{low}, {high}]")


def render_for_terminal(table: Table, benchmark: str) -> TerminalTable:
    """A column for each row of the table, or the table as it is if it has many rows."""
    head, *body = [["system", "questions", *table.measures.values()]] + [
        [system, *map(str, [n, *cells])] for system, n, cells in table.rows
    ]
    if len(body) <= MOST_COLUMNS:
        head, *body = map(list, zip(head, *body, strict=True))
    title = f"{benchmark}: {table.title}"
    shown = TerminalTable(*head, title=title, title_justify="left", caption=table.note, caption_justify="left")
    for row in body:
        shown.add_row(*row)
    return shown


def render_html(report: Report) -> str:
    """The page; everything that it needs is in it."""
    folder = files("evaluation.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"draw_legend_mark": draw_legend_mark, "join_answers": join_answers}
    environment.globals |= {
        "meanings": MEANINGS | dict.fromkeys(ROUTES, "Questions that took this route."),
        "marks": MARKS,
    }
    style = Markup(folder.joinpath("style.css").read_text(encoding="utf-8"))
    template = environment.from_string(folder.joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(report=report, style=style)
