"""How well an adapter tells which paragraphs help: all of a question's, beside each of its steps and beside itself.

An instruction set has as many rows of "yes" as of "no", a few of each question. Here its dev questions are asked about
every paragraph that MuSiQue gives them, 20 a question: a gold step's question, earlier answers filled in as gold has
them, and the whole one. A page that helps with another step counts for neither label, and a step whose page shares its
title with another gold page is left out, for a step knows its page by the title alone.

    python -m evaluation.paragraphs --set runs/sets/real --adapter runs/adapters/real \\
      --musique ../shared/data/musique/musique_with_paragraphs.jsonl.gz
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from data_gen.instruction_set import read_manifest, read_records
from data_gen.questions import AnnotatedQuestion
from data_gen.records import relevance_pairs
from data_gen.sources.multi_hop import read_musique
from evaluation.commands import THREADS
from evaluation.measures.bootstrap import Interval, bootstrap_of
from evaluation.measures.metrics import roc_auc
from evaluation.rows import progress_bar
from revelator.artifact import read_manifest as read_adapter
from revelator.cli import run
from revelator.errors import ConfigError
from revelator.tasks import TASKS
from serving.engines.engine import Engine
from serving.engines.revelator_model import complete

BATCH = 32
STEP, WHOLE = "a step's question", "the whole question"


@dataclass(frozen=True)
class Pair:
    """A question and a paragraph; `part` says which question, `group` is the id of the whole one."""

    part: str
    group: str
    prompt: str
    helps: bool


def pairs(question: AnnotatedQuestion) -> Iterator[Pair]:
    """Each step, and the whole question, with each paragraph that is its own or nobody's; equal pairs once."""
    gold = Counter(page.title for page in question.passages if page.relevant)
    found = {}
    for step, _, shown, helps in relevance_pairs(question):
        if step is None or gold[question.steps[step].title] == 1:
            part, prompt = WHOLE if step is None else STEP, TASKS["relevance"].render(shown)
            found[part, prompt] = Pair(part, question.id, prompt, helps)
    yield from found.values()


def of_dev(folder: Path, musique: Path) -> list[Pair]:
    """The pairs of the set's dev questions that have paragraphs. Raises ConfigError where there are none."""
    read_manifest(folder)
    dev = {record.group for record in read_records(folder, "dev")}
    rows = list(read_musique(musique))
    questions = [row for row in rows if isinstance(row, AnnotatedQuestion) and row.passages]
    if not questions:
        hint = "give MuSiQue's own file, or musique_with_paragraphs.jsonl.gz"
        raise ConfigError(f"none of {len(rows):,} rows is a question with paragraphs", where=str(musique), hint=hint)
    found = [pair for question in questions if question.id in dev for pair in pairs(question)]
    if not found:
        hint = f"give a set that is built from {musique}, with a share for dev"
        raise ConfigError("no dev question of the set is in that file", where=str(folder), hint=hint)
    return found


def judged(engine: Engine, asked: Iterable[Pair]) -> Iterator[tuple[Pair, float]]:
    """Each pair with the model's probability of "yes"."""
    rows = sorted(asked, key=lambda pair: len(pair.prompt))
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        done = complete(engine, "relevance", [pair.prompt for pair in batch])
        yield from zip(batch, (completion.probabilities["yes"] for completion in done), strict=True)


def area(scored: Sequence[tuple[Pair, float]]) -> Interval:
    """Area under the ROC curve of all pairs; its interval draws whole questions."""
    truth = np.array([pair.helps for pair, _ in scored])
    probability = np.array([value for _, value in scored])
    groups = [pair.group for pair, _ in scored]
    return bootstrap_of(lambda drawn: roc_auc(probability[drawn], truth[drawn]), groups)


@click.command()
@click.option("--set", "folder", required=True, type=click.Path(path_type=Path), help="Whose dev questions are asked.")
@click.option("--musique", required=True, type=click.Path(path_type=Path), help="MuSiQue's questions with paragraphs.")
@click.option("--base", help="Base: a folder or a Hub id.  [default: the adapter's, else tiny]")
@THREADS
@click.option("--adapter", type=click.Path(path_type=Path), help="Folder of an adapter; the base alone without one.")
@click.option("--json", "as_json", is_flag=True, help="Write every pair with its probability, one a line.")
def main(
    folder: Path, musique: Path, base: str | None, threads: int | None, adapter: Path | None, as_json: bool
) -> None:
    """Score how a model tells the paragraphs that help from those that do not.

    \b
    Example:
      python -m evaluation.paragraphs --set runs/sets/real --adapter runs/adapters/real \\
        --musique ../shared/data/musique/musique_with_paragraphs.jsonl.gz
    """
    asked, scored = of_dev(folder, musique), []
    base = base or (read_adapter(adapter).base_name if adapter else "tiny")
    engine = Engine(base, adapter, threads=threads)
    with progress_bar() as bar:
        task = bar.add_task("paragraphs", total=len(asked))
        for pair, probability in judged(engine, asked):
            scored.append((pair, probability))
            if as_json:
                click.echo(json.dumps(asdict(pair) | {"probability": probability}, ensure_ascii=False))
            bar.advance(task)
    if not as_json:
        Console().print(table(scored))


def table(scored: Sequence[tuple[Pair, float]]) -> Table:
    """The area for each kind of question, with its 95 % bootstrap interval."""
    shown = Table("asked with", "questions", "pairs", "that help", "area under the ROC curve")
    for part in (STEP, WHOLE):
        own = [one for one in scored if one[0].part == part]
        questions = len({pair.group for pair, _ in own})
        shown.add_row(part, str(questions), str(len(own)), str(sum(pair.helps for pair, _ in own)), str(area(own)))
    return shown


if __name__ == "__main__":
    run(main)
