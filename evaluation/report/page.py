"""The report itself: what each benchmark's runs say, as one HTML page that asks for nothing else, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from evaluation.costs.model import Prices, ServiceTimes, count_demand, predict
from evaluation.report.cases import Case, most_different, worst
from evaluation.report.charts import Figure, Series, mark
from evaluation.report.plots import Plot, plots_of, plotted
from evaluation.report.runs import (
    COSTS,
    MEASURES,
    Loaded,
    by_benchmark,
    differences,
    measure_name,
    quality,
)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


@dataclass(frozen=True)
class Sheet:
    """A table: `cells` are texts, the first of each row its name; `strong` are (row, column) whose interval leaves out
    0."""

    title: str
    note: str
    head: list[str]
    cells: list[list[str]]
    strong: set[tuple[int, int]] = field(default_factory=set)

    def markdown(self) -> str:
        lines = [[_cell(text) for text in row] for row in self.cells]
        return f"### {self.title}\n\n{self.note}\n\n{table(self.head, lines)}"


@dataclass(frozen=True)
class Section:
    """One benchmark."""

    name: str
    about: str
    runs: list[Loaded]
    sheets: list[Sheet]
    plots: list[Plot]
    worst: list[Case]
    different: list[Case]
    worst_of: str = ""


def sections_of(runs: Sequence[Loaded], against: str | None) -> list[Section]:
    return [_section(name, members, against) for name, members in by_benchmark(runs)]


def _section(name: str, runs: list[Loaded], against: str | None) -> Section:
    reference = next((run for run in runs if run.name == against), runs[0])
    others = [run for run in runs if run is not reference]
    measure = quality(runs)
    planned = next((run for run in [reference, *others] if any(row.plan for row in run.rows)), reference)
    sheets = [overview("Quality", runs, MEASURES)]
    if others:
        sheets.append(compared("Quality", reference, others, MEASURES))
    sheets.append(overview("Cost", runs, COSTS))
    if others:
        sheets.append(compared("Cost", reference, others, COSTS))
    return Section(
        name,
        _about(runs),
        runs,
        sheets,
        plots_of(name, runs, measure),
        worst(planned, measure),
        most_different(reference, others, measure),
        planned.name,
    )


def _about(runs: Sequence[Loaded]) -> str:
    counts = sorted({len(run.rows) for run in runs})
    rules = sorted({str(run.metrics.get("normaliser", "")) for run in runs} - {""})
    said = f"{' to '.join(map(str, counts))} questions; answers compared by the rule {', '.join(rules) or 'of none'}"
    ids = [set(run.run.ids) for run in runs]
    if any(each != ids[0] for each in ids):
        said += f"; the runs do not have the same questions: {len(set.intersection(*ids))} are in all of them"
    if len(plotted(runs)) < len(runs):
        said += "; plots are of the systems without switches"
    return said


def overview(title: str, runs: Sequence[Loaded], measures: Mapping[str, str]) -> Sheet:
    names = [name for name in measures if any(name in run.figures for run in runs)]
    cells = [
        [run.name, f"{len(run.rows)}", *(interval_text(run.figures.get(name), name) for name in names)] for run in runs
    ]
    refused = ", refused ones left out" if "tokens_in" in names else ""
    note = f"Mean of a question and its 95 % bootstrap interval{refused}."
    return Sheet(title, note, ["system", "n", *map(measure_name, names)], cells)


def compared(title: str, reference: Loaded, others: Sequence[Loaded], measures: Mapping[str, str]) -> Sheet:
    names = [name for name in measures if name in reference.figures]
    found = {run.name: differences(run, reference, names) for run in others}
    shown = [name for name in names if any(name in figures for figures in found.values())]
    cells, strong = [], set()
    for row, (name, figures) in enumerate(found.items()):
        n = max((int(figure["n"]) for figure in figures.values()), default=0)
        cells.append([name, f"{n}", *(interval_text(figures.get(each), each, sign=True) for each in shown)])
        strong |= {(row, column) for column, each in enumerate(shown, 2) if _leaves_out_zero(figures.get(each))}
    note = (
        f"The mean of the difference to {reference.name} on the same questions, with its 95 % bootstrap interval. "
        "Set off where the interval leaves out 0."
    )
    return Sheet(f"{title} against {reference.name}", note, ["system", "n", *map(measure_name, shown)], cells, strong)


def _leaves_out_zero(figure: Figure | None) -> bool:
    return figure is not None and (figure["low"] > 0 or figure["high"] < 0)


def interval_text(figure: Figure | None, measure: str, *, sign: bool = False) -> str:
    """`0.412 [0.371, 0.455]`, with as few decimals as a measure of its size needs."""
    if figure is None:
        return "–"
    size = max(abs(figure["low"]), abs(figure["high"]))
    decimals = 3 if measure not in COSTS else 2 if size < 10 else 1 if size < 1000 else 0
    plus = "+" if sign else ""
    value, low, high = (f"{figure[name]:{plus},.{decimals}f}" for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def cost_sheet(runs: Sequence[Loaded], times: ServiceTimes) -> Sheet:
    """Predicted for one and eight servers of the revelator, at 1 and 64 questions in flight."""
    cells = []
    for run in runs:
        counted = [row.cost for row in run.rows if row.counted]
        for gpus, inside in product((1, 8), (1, 64)) if counted else ():
            servers = {"revelator": gpus, "retriever": gpus, "generator": gpus}
            found = predict(count_demand(counted, times), servers, inside, Prices())
            figures = [f"{found.throughput:.2f}", f"{found.latency:.2f}", found.bottleneck, f"{found.utilisation:.0%}"]
            cells.append([f"{run.name} on {run.benchmark}", f"{gpus}", f"{inside}", *figures])
    note = f"Counted calls and the seconds that each service took on {times.machine}; as many servers of each service."
    head = ["system", "servers", "in flight", "questions a second", "seconds a question", "limited by", "at work"]
    return Sheet("Predicted throughput", note, head, cells)


@dataclass(frozen=True)
class Card:
    """How one run is made again."""

    id: str
    name: str
    lines: dict[str, str]


def card_of(run: Loaded) -> Card:
    about = run.run
    adapter = about.adapter
    version = f"version {adapter['version']}, " if adapter.get("version") else ""
    files_ = ", ".join(f"{name} {digest[:16]}" for name, digest in about.benchmark.get("files", {}).items())
    index = about.index
    lines = {
        "command": about.command,
        "config hash": about.config_hash,
        "data": files_ or "–",
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
    return Card(run.card, f"{run.name} on {run.benchmark}", lines)


@dataclass(frozen=True)
class Report:
    sections: list[Section]
    cards: dict[str, Card]
    command: str
    made: str
    version: str
    costs: Sheet | None = None

    @property
    def legend(self) -> list[Series]:
        """Each system once, in the order of its number."""
        found = {run.series for section in self.sections for run in section.runs}
        return sorted(found, key=lambda series: series.number)


def report_of(
    runs: Sequence[Loaded],
    *,
    against: str | None,
    command: str,
    made: str,
    version: str,
    costs: Sheet | None = None,
) -> Report:
    cards = {card.id: card for card in map(card_of, runs)}
    return Report(sections_of(runs, against), cards, command, made, version, costs)


def html(report: Report) -> str:
    """The page; everything that it needs is in it."""
    folder = files("evaluation.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.globals["mark"] = mark
    style = Markup(folder.joinpath("style.css").read_text(encoding="utf-8"))
    template = environment.from_string(folder.joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(report=report, style=style)


def markdown(report: Report) -> str:
    """The same tables, and how to make each run again."""
    made = f"Made {report.made} by revelator {report.version}: `{report.command}`."
    parts = ["# Evaluation", f"{made} Plots, cases and plans are in `report.html`."]
    for section in report.sections:
        parts += [f"## {section.name}", section.about + ".", *(sheet.markdown() for sheet in section.sheets)]
    if report.costs:
        parts += ["## Cost", report.costs.markdown()]
    parts.append("## Reproduce")
    for card in report.cards.values():
        lines = "\n".join(f"* {name}: {_code(text)}" for name, text in card.lines.items())
        parts.append(f"### {_cell(card.name)}\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """Text that a Markdown table shows as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"
