"""Systems, baselines and switches beside each other and beside the papers: a section of a page of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from evaluation.baselines.methods import BASELINES
from evaluation.metrics.retrieval import title_key
from evaluation.report.charts import Figure
from evaluation.report.page import Sheet, compared, interval_text, overview, table
from evaluation.report.runs import COSTS, Loaded, by_benchmark, differences, figure, value_of
from serving.retrieval import Index

SECTION = "comparison"
ANSWERS = {"em": "EM", "acc": "Acc", "f1": "F1"}
QUALITY = {**ANSWERS, "letters": "plan letters", "recall@5": "recall@5", "recall@10": "recall@10"}
SPLIT = ("em", "f1")  # of questions by what the index holds
REFERENCE = "auto"
NONE = "–"


@dataclass(frozen=True)
class Part:
    """One benchmark: its tables as Markdown, "" where it has none."""

    name: str
    count: int
    rule: str
    quality: str
    against: str
    cost: str
    kinds: str
    coverage: str
    switches: str
    papers: str
    papers_switches: str
    operators: str


def section(runs: Sequence[Loaded], command: str, made: str) -> str:
    """The section in Markdown: of each benchmark its tables, and the reading of them in `comparison.md`."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = resources.files("evaluation.report").joinpath("comparison.md").read_text(encoding="utf-8")
    by_name = {(run.benchmark, run.name): run for run in runs}

    def value(benchmark: str, system: str, measure: str) -> str:
        run = by_name.get((benchmark, system))
        return interval_text(run.figures.get(measure), measure) if run else NONE

    def gain(benchmark: str, system: str, over: str, measure: str) -> str:
        run, other = by_name.get((benchmark, system)), by_name.get((benchmark, over))
        found = differences(run, other, [measure]) if run and other else {}
        return interval_text(found.get(measure), measure, sign=True)

    def kind(benchmark: str, system: str, kind: str, measure: str = "f1") -> str:
        run = by_name.get((benchmark, system))
        groups = run.metrics["groups"].get("kind", {}) if run else {}
        return interval_text(groups.get(kind, {}).get(measure), measure)

    return environment.from_string(text).render(
        parts=[part_of(name, members) for name, members in by_benchmark(runs)],
        facts=facts(runs, command, made),
        missing=[name for name, one in BASELINES.items() if one.writes],
        value=value,
        gain=gain,
        kind=kind,
    )


def part_of(name: str, runs: Sequence[Loaded]) -> Part:
    """Strategies stand before baselines, these in the order of their table."""
    order = {system: place for place, system in enumerate(BASELINES, 1)}
    plain = [run for run in runs if not run.run.ablation]
    plain.sort(key=lambda run: order[run.run.system["name"]] if run.run.system["kind"] == "baseline" else 0)
    ranked = runs[0].run.system["kind"] == "ranking"
    reference = next((run for run in plain if run.name == REFERENCE), None)
    others = [run for run in plain if run is not reference]
    return Part(
        name,
        len(runs[0].rows),
        str(runs[0].metrics["normaliser"]),
        quality="" if ranked else shown(overview("", plain, QUALITY)),
        against=shown(compared("", reference, others, QUALITY)) if reference and others else "",
        cost="" if ranked else shown(overview("", plain, COSTS)),
        kinds="" if ranked else by_kind(plain),
        coverage="" if ranked else by_coverage(plain),
        switches=shown(switches(runs)) if not ranked and len(plain) < len(runs) else "",
        papers=beside_papers(name, plain),
        papers_switches=switches_beside_papers(name, runs),
        operators=operators(runs) if ranked else "",
    )


def shown(sheet: Sheet) -> str:
    """A table; figures whose interval leaves out 0 in bold."""
    cells = [
        [f"**{text}**" if (row, column) in sheet.strong else text for column, text in enumerate(line)]
        for row, line in enumerate(sheet.cells)
    ]
    return table(sheet.head, cells)


def switches(runs: Sequence[Loaded]) -> Sheet:
    """Each run with a switch, and what it differs by from the same system without one."""
    measures = (*ANSWERS, "steps", "tokens_in", "model_calls", "retrievals")
    cells: list[list[str]] = []
    strong = set()
    for run, whole in _switched(runs):
        found = differences(run, whole, measures)
        strong |= {(len(cells), place) for place, name in enumerate(measures, 2) if _is_sure(found.get(name))}
        cells.append([run.name, f"{len(run.rows)}", *(interval_text(found.get(m), m, sign=True) for m in measures)])
    return Sheet("", "", ["switch", "n", *({**ANSWERS, **COSTS}[name] for name in measures)], cells, strong)


def _switched(runs: Sequence[Loaded]) -> Iterator[tuple[Loaded, Loaded]]:
    for run in runs:
        whole = next((o for o in runs if not o.run.ablation and o.run.system == run.run.system), None)
        if run.run.ablation and whole:
            yield run, whole


def _is_sure(found: Figure | None) -> bool:
    return found is not None and (found["low"] > 0 or found["high"] < 0)


def by_kind(runs: Sequence[Loaded], measure: str = "f1") -> str:
    """One measure by the benchmark's own kinds of question, the commonest first; "" where there is one kind."""
    counts = {kind: int(one[measure]["n"]) for kind, one in runs[0].metrics["groups"].get("kind", {}).items()}
    kinds = sorted(counts, key=lambda kind: -counts[kind])
    lines = []
    for run in runs:
        groups = run.metrics["groups"].get("kind", {})
        lines.append([run.name, *(interval_text(groups.get(kind, {}).get(measure), measure) for kind in kinds)])
    return table([ANSWERS[measure], *(f"{kind} ({counts[kind]})" for kind in kinds)], lines) if kinds else ""


def by_coverage(runs: Sequence[Loaded]) -> str:
    """Answers where the index holds every gold page, and where it does not; "" where the index is not here, or holds
    the pages of all questions."""
    place = runs[0].run.index.get("folder", "")
    if not Path(place, "manifest.json").is_file():
        return ""
    index = Index.open(Path(place))
    held = {title_key(passage.title) for passage in map(index.passages.__getitem__, range(len(index)))}
    whole = {row.id: held.issuperset(map(title_key, row.gold_titles)) for row in runs[0].rows if row.gold_titles}
    counts = [sum(there is inside for there in whole.values()) for inside in (True, False)]
    lines = []
    for run in runs:
        sides = [[row for row in run.rows if whole.get(row.id) is inside] for inside in (True, False)]
        cells = [
            interval_text(figure([value_of(row, name) or 0.0 for row in side]), name)
            for side in sides
            for name in SPLIT
            if side
        ]
        lines.append([run.name, *cells])
    names = [ANSWERS[name] for name in SPLIT]
    head = ["system", *(f"{name}, all there" for name in names), *(f"{name}, not all" for name in names)]
    said = f"Every gold page is in the index for {counts[0]} questions, for {counts[1]} it is not:"
    return f"{said}\n\n{table(head, lines)}" if all(counts) else ""


def _papers() -> dict[str, Any]:
    return yaml.safe_load(resources.files("evaluation.report").joinpath("papers.yaml").read_text(encoding="utf-8"))


def beside_papers(benchmark: str, runs: Sequence[Loaded]) -> str:
    """Percent: ours, and what each paper reports for the method of that name."""
    theirs = _papers()["answers"].get(benchmark, {})
    ours = {run.name: run for run in runs}
    columns = [*dict.fromkeys(paper for line in theirs.values() for paper in line)]
    lines = []
    for name, line in theirs.items():
        figures = ours[name].figures if name in ours else {}
        cells = [_percent([figures[m]["value"] * 100 for m in ANSWERS if m in figures])]
        lines.append([name, *cells, *(_percent(line.get(paper, ())) for paper in columns)])
    return table(["EM / Acc / F1, %", "here", *columns], lines) if lines else ""


def switches_beside_papers(benchmark: str, runs: Sequence[Loaded]) -> str:
    """Acc and steps with parts taken out, ours and the paper's."""
    theirs = _papers()["switches"].get(benchmark, {})
    ours = {run.name: run.figures for run in runs}
    lines = []
    for name, line in theirs.items():
        here = (
            [f"{ours[name]['acc']['value']:.1%}", f"{ours[name]['steps']['value']:.2f}"] if name in ours else [NONE] * 2
        )
        lines.append([name, *here, f"{line['Acc']:.1f}%", f"{line['steps']:.2f}"])
    return table(["", "Acc here", "steps here", "Acc, HANRAG, table 6", "steps"], lines) if lines else ""


def _percent(values: Sequence[float | None]) -> str:
    return " / ".join(NONE if value is None else f"{value:.1f}" for value in values) or NONE


def operators(runs: Sequence[Loaded]) -> str:
    """nDCG@10 of rankings, in all and by the number of negations, beside the paper's."""
    theirs = _papers()["operators"]
    counts = sorted({count for run in runs for count in run.metrics["groups"].get("negations", {})})
    lines = []
    for run in runs:
        chosen: Mapping[str, str] = run.run.ablation.get("operators") or {}
        key = "-".join(chosen.values())
        if not chosen and run.run.system["name"] == "logical ranking":
            key = "product-sum-complement"
        groups = run.metrics["groups"].get("negations", {})
        split = [f"{groups[count]['ndcg@10']['value']:.3f}" if count in groups else NONE for count in counts]
        paper = f"{theirs[key] / 100:.2f}" if key in theirs else NONE
        figure = interval_text(run.figures["ndcg@10"], "ndcg@10")
        lines.append([key.replace("-", ", ") or run.name, figure, *split, paper])
    head = ["AND, OR, NOT", "nDCG@10", *(f"{count} negations" for count in counts), "ITLR, table 2"]
    return table(head, lines)


def facts(runs: Sequence[Loaded], command: str, made: str) -> dict[str, str]:
    def each(values: Sequence[str]) -> str:
        return "; ".join(dict.fromkeys(value for value in values if value))

    def adapter(run: Loaded) -> str:
        about = run.run.adapter
        return (
            f"{run.benchmark}: version {about['version']} `{about['manifest'][:16]}`" if about.get("manifest") else ""
        )

    def index(run: Loaded) -> str:
        about = run.run.index
        return f"{run.benchmark}: {about['count']:,} passages `{about['digest'][:16]}`" if about.get("digest") else ""

    found = {
        "Commands": f"{each([f'`{run.run.command}`' for run in runs])}; `{command}`",
        "Date": made,
        "Machine": each([run.run.machine for run in runs]),
        "Code": each([f"`{run.run.code[:16]}`" for run in runs]),
        "Adapters": each([adapter(run) for run in runs]),
        "Indexes": each([index(run) for run in runs]),
        "Generator": each([run.run.generator for run in runs]),
        "Questions": each(
            [
                f"{run.benchmark}: {', '.join(f'`{digest[:16]}`' for digest in files)}"
                for run in runs
                if (files := run.run.benchmark["files"].values())
            ]
        ),
    }
    return {name: value for name, value in found.items() if value}
