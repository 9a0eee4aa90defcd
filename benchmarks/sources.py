"""What the annotation teacher makes of each source: rows, plans, reasons for leaving out; and plans to read.

    python benchmarks/sources.py data_gen/configs/full.yaml --samples 3

No set is written and nothing is held out: this counts what the readers give, before repeats are dropped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from data_gen.annotate.validation import first_fault
from data_gen.config import SourceConfig, load_config
from data_gen.questions import AnnotatedQuestion
from data_gen.sources.formats import READERS
from data_gen.sources.rows import Outcome


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--samples", default=0, show_default=True, help="Plans of each source to print.")
@click.option("--only", default="", help="Read the sources of this format alone.")
def main(config: Path, samples: int, only: str) -> None:
    """Count and show plans by source."""
    chosen = load_config(config)
    table = Table("source", "rows", "plans", "single", "no plan told", "left out, by reason")
    plans: dict[str, list[AnnotatedQuestion]] = defaultdict(list)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    wanted = [source for source in chosen.sources if source.format in READERS and only in ("", source.format)]
    for source in track(wanted, "sources", console=Console(stderr=True)):
        for outcome in READERS[source.format](source.path):
            _count(source, outcome, chosen.entity_coverage, plans, counts, reasons)
    for name, counted in counts.items():
        left = "; ".join(f"{reason} {number:,}" for reason, number in reasons[name].most_common())
        shown = [f"{counted[kind]:,}" for kind in ("rows", "plan", "single", "none")]
        table.add_row(escape(name), *shown, escape(left))
    Console().print(table)
    for name, questions in plans.items():
        for question in Random(chosen.seed).sample(questions, min(samples, len(questions))):
            click.echo(f"{name} | {question.question}\n    {question.expression}")


def _count(
    source: SourceConfig,
    outcome: Outcome,
    coverage: float,
    plans: dict[str, list[AnnotatedQuestion]],
    counts: dict[str, Counter[str]],
    reasons: dict[str, Counter[str]],
) -> None:
    name = source.name or source.format
    counts[name]["rows"] += 1
    fault = first_fault(outcome, coverage) if isinstance(outcome, AnnotatedQuestion) else outcome.reason
    if fault or not isinstance(outcome, AnnotatedQuestion):
        reasons[name][str(fault)] += 1
    elif outcome.route == "complex" and outcome.expression:
        counts[name]["plan"] += 1
        plans[name].append(outcome)
    else:
        counts[name]["single" if outcome.route == "single" else "none"] += 1


if __name__ == "__main__":
    main()
