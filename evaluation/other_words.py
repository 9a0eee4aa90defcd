"""Whether a model plans a question as well when it is asked in other words.

Dev questions with several hops are asked twice: as published, and as data_gen.augment.rewording asks them; its rules
leave names and plan as they are. Questions that no rule knows are left out. The published sets have one wording a
question, most of them in the order "Who …?"; people who ask a service write "Tell me who …", too.

    python -m evaluation.other_words --set runs/sets/real --adapter runs/adapters/real --source musique
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from data_gen.augment.rewording import in_other_words
from data_gen.instruction_set import read_manifest, read_records
from data_gen.records import Record
from evaluation.commands import THREADS
from evaluation.measures.bootstrap import bootstrap
from evaluation.measures.metrics import PlanScore, plan_score
from evaluation.rows import progress_bar
from revelator.artifact import read_manifest as read_adapter
from revelator.cli import run
from revelator.errors import ConfigError
from revelator.language import parse
from revelator.tasks import TASKS, TranslateInput
from serving.engines.engine import Engine
from serving.engines.revelator_model import complete

PLANNED = "translate_bnf"
BATCH = 16
SHOWN = {"letters": "letters as gold", "leaves": "number of leaves", "arguments": "arguments", "names": "names copied"}


@dataclass(frozen=True)
class Asked:
    """A question as published and in other words, the plans written for both, and their scores."""

    id: str
    published: str
    reworded: str
    plans: tuple[str, str]
    scores: tuple[PlanScore, PlanScore]


def of_dev(folder: Path, source: str | None, limit: int | None) -> list[tuple[Record, str]]:
    """Dev plans with several leaves, each with its question in other words. Raises ConfigError where there are none."""
    read_manifest(folder)
    rows = [row for row in read_records(folder, "dev") if row.task == PLANNED and len(row.shape) > 1]
    rows = [row for row in rows if source in (None, row.source)]
    worded = [(row, in_other_words(row.question, json.loads(row.entities), Random(row.id))) for row in rows]
    changed = [(row, text) for row, text in worded if text != row.question]
    if not changed:
        hint = "name another set, or another --source of it"
        raise ConfigError("no dev question that could be asked in other words", where=str(folder), hint=hint)
    return changed[:limit]


def planned(engine: Engine, rows: Sequence[tuple[Record, str]]) -> Iterator[Asked]:
    """Each question with its two plans, as a server writes them."""
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        prompts = [row.prompt for row, _ in batch]
        prompts += [TASKS[PLANNED].render(TranslateInput(text)) for _, text in batch]
        texts = [done.text for done in complete(engine, PLANNED, prompts)]
        for (row, text), first, second in zip(batch, texts[: len(batch)], texts[len(batch) :], strict=True):
            gold, names = parse(json.loads(row.gold)), json.loads(row.entities)
            scores = plan_score(first, gold, row.question, names), plan_score(second, gold, text, names)
            yield Asked(row.id, row.question, text, (first, second), scores)


def table(asked: Sequence[Asked]) -> Table:
    """Each measure for both wordings, and what changed, with its 95 % paired bootstrap interval."""
    shown = Table("measure", "n", "as published", "in other words", "change")
    for name, title in SHOWN.items():
        before, after = (np.array([getattr(one.scores[i], name) for one in asked], float) for i in (0, 1))
        means = f"{before.mean():.3f}", f"{after.mean():.3f}"
        shown.add_row(title, str(len(asked)), *means, str(bootstrap(after - before)))
    return shown


@click.command()
@click.option("--set", "folder", required=True, type=click.Path(path_type=Path), help="Whose dev questions are asked.")
@click.option("--source", help="Only questions of this source of the set.")
@click.option("--limit", type=click.IntRange(1), help="Questions.  [default: all]")
@click.option("--base", help="Base: a folder or a Hub id.  [default: the adapter's, else tiny]")
@THREADS
@click.option("--adapter", type=click.Path(path_type=Path), help="Folder of an adapter; the base alone without one.")
@click.option("--json", "as_json", is_flag=True, help="Write every question with its plans and scores, one a line.")
def main(
    folder: Path,
    source: str | None,
    limit: int | None,
    base: str | None,
    threads: int | None,
    adapter: Path | None,
    as_json: bool,
) -> None:
    """Score a model's plans of dev questions as published and in other words.

    \b
    Example:
      python -m evaluation.other_words --set runs/sets/real --adapter runs/adapters/real --source musique
    """
    rows, asked = of_dev(folder, source, limit), []
    engine = Engine(base or (read_adapter(adapter).base_name if adapter else "tiny"), adapter, threads=threads)
    with progress_bar() as bar:
        task = bar.add_task("questions", total=len(rows))
        for one in planned(engine, rows):
            asked.append(one)
            if as_json:
                click.echo(json.dumps(asdict(one), ensure_ascii=False))
            bar.advance(task)
    if not as_json:
        Console().print(table(asked))


if __name__ == "__main__":
    run(main)
