"""How well an adapter writes logical queries: same truth table as the gold, by how the question is worded.

Parts: the wordings of training over topics that training has not seen, by number of terms; wordings that training has
not seen (`logic-free`); and WRITTEN, questions that were written one by one, without the generator. Their gold terms
are words of the question, so a term that is cut otherwise counts as wrong.

    python -m evaluation.logic_translation --set runs/sets/logic --adapter runs/adapters/logic --results docs/results.md
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from data_gen.instruction_set import read_manifest, read_records
from data_gen.sources.logic_questions import (
    FREE,
)
from evaluation.adapters.targets import TARGETS
from evaluation.facts import made_by
from evaluation.measures.bootstrap import bootstrap
from evaluation.measures.query_metrics import QueryScore, query_score
from evaluation.published import table as published
from evaluation.rows import progress_bar
from evaluation.sections import put, text_with
from revelator.durable import sha256_file
from revelator.language.logic import Query, parse, terms
from revelator.tasks import TASKS, TranslateInput
from serving.engines.engine import Engine
from serving.engines.revelator_model import complete

BATCH = 32
WRITTEN = "written.tsv"
SECTION = "logic"  # of a page of results
UNSEEN, BY_HAND = "held-out wordings", "written one by one"  # reported alone; other parts have a target


@dataclass(frozen=True)
class Asked:
    """A question with its gold query, and the part of the table in which it counts."""

    part: str
    prompt: str
    gold: Query


def written() -> list[Asked]:
    """The questions of `written.tsv`."""
    with files("evaluation.logic_translation").joinpath(WRITTEN).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    task = TASKS["translate_logic"]
    return [Asked(BY_HAND, task.render(TranslateInput(r["question"])), parse(r["query"])) for r in rows]


def of_set(folder: Path, split: str, limit: int) -> Iterator[Asked]:
    """The first `limit` questions of each part of a set's split, in the set's order, which is random."""
    read_manifest(folder)
    taken: dict[str, int] = {}
    for record in read_records(folder, split, "translate_logic"):
        gold = parse(json.loads(record.gold))
        size = len(terms(gold))
        known = "3 terms, 32 templates" if size == 3 else "1-2 terms" if size < 3 else "4-6 terms"
        part = UNSEEN if record.source == FREE else known
        taken[part] = taken.get(part, 0) + 1
        if taken[part] <= limit:
            yield Asked(part, record.prompt, gold)


@click.command()
@click.option("--set", "folder", required=True, type=click.Path(path_type=Path), help="Instruction set with logic.")
@click.option("--base", default="tiny", show_default=True, help="Base: a folder or a Hub id.")
@click.option("--adapter", type=click.Path(path_type=Path), help="Folder of an adapter; the base alone without one.")
@click.option("--split", default="dev", show_default=True, type=click.Choice(["dev", "test"]))
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1), help="Questions of each part.")
@click.option("--results", type=click.Path(path_type=Path), help="Page of results: the table goes into its section.")
@click.option("--json", "as_json", is_flag=True, help="Write every question with what was answered, one a line.")
def main(
    folder: Path, base: str, adapter: Path | None, split: str, limit: int, results: Path | None, as_json: bool
) -> None:
    """Score the logical queries that a model writes.

    \b
    Examples:
      python -m evaluation.logic_translation --set runs/sets/logic --adapter runs/adapters/logic
      python -m evaluation.logic_translation --set runs/sets/logic --base out/base --split test --json > rows.jsonl
    """
    if results:
        text_with(results, SECTION)
    engine = Engine(base, adapter)
    asked = sorted([*of_set(folder, split, limit), *written()], key=lambda a: (a.part, len(a.prompt)))
    scored: dict[str, list[QueryScore]] = {}
    with progress_bar() as bar:
        task = bar.add_task("queries", total=len(asked))
        for row, text, score in answers(engine, asked):
            scored.setdefault(row.part, []).append(score)
            if as_json:
                shown = {"part": row.part, "prompt": row.prompt, "answered": text}
                click.echo(json.dumps(shown | asdict(score), ensure_ascii=False))
            bar.advance(task)
    if results:
        made = {"adapter": sha256_file(adapter / "manifest.json") if adapter else "", "base": engine.base_digest}
        put(results, SECTION, section(scored, made | {"set": read_manifest(folder)["digest"]}))
    if not as_json:
        Console().print(table(scored))


def answers(engine: Engine, asked: Sequence[Asked]) -> Iterator[tuple[Asked, str, QueryScore]]:
    """What the model writes to each question, as a server writes it, and its score."""
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        done = complete(engine, "translate_logic", [row.prompt for row in batch])
        for row, completion in zip(batch, done, strict=True):
            yield row, completion.text.strip(), query_score(completion.text, row.gold)


def section(scored: Mapping[str, Sequence[QueryScore]], digests: Mapping[str, str]) -> str:
    """The table for a page of results, with the target of each part, below what it was made of."""
    [logic] = [target for target in TARGETS if target.task == "translate_logic"]
    rows = []
    for part, scores in scored.items():
        wanted = "reported" if part in (UNSEEN, BY_HAND) else f"≥ {logic.target}"
        value = bootstrap([score.truth for score in scores])
        rows.append(["translate logic", part, logic.measure, logic.reference, wanted, value, len(scores)])
    head = ["task", "questions", "measure", "reference", "target", "value [95 %]", "n"]
    return f"{made_by('python -m evaluation.logic_translation', digests)}\n\n{published(head, rows)}"


def table(scored: Mapping[str, Sequence[QueryScore]]) -> Table:
    """Each part with its shares; the share of equal truth tables with its 95 % bootstrap interval."""
    shown = Table("part", "n", "valid", "same truth table", "exact")
    for part, scores in scored.items():
        valid, exact = (sum(own) / len(scores) for own in ([s.valid for s in scores], [s.exact for s in scores]))
        truth = bootstrap([s.truth for s in scores])
        shown.add_row(part, str(len(scores)), f"{valid:.3f}", str(truth), f"{exact:.3f}")
    return shown
