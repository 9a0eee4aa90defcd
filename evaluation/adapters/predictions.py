"""What an adapter answers to every dev record of a set, in batches, without a server.

    python -m evaluation.adapters.predictions --set DIR --adapter DIR --out DIR

Writes `plans.jsonl`, `labels.jsonl` and `texts.jsonl`. A process of its own, because it is the one part of the
measurements that needs torch. Plans are written as a server writes them, one attempt each: the executor's further
attempts at other temperatures are not in them.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from data_gen.instruction_set import read_records
from data_gen.records import Record
from evaluation.adapters.row_scores import row_values
from evaluation.adapters.scores import DECIDING
from evaluation.rows import append_rows, progress_bar, read_rows
from revelator.cli import run
from revelator.durable import sha256_text
from revelator.tasks import TASKS
from serving.protocols import Completion

BATCH = 64
LABEL_TASKS = tuple(name for name, task in TASKS.items() if task.labels)

Complete = Callable[[str, Sequence[str]], list[Completion]]


@dataclass(frozen=True)
class PlanRow:
    """One question's plan; the booleans are `evaluation.measures.metrics.PlanScore`'s."""

    id: str
    source: str
    group: str
    question: str
    shape: str
    gold: str
    output: str
    valid: bool
    letters: bool
    leaves: bool
    exact: bool
    bound: bool
    arguments: bool
    names: bool
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class LabelRow:
    id: str
    task: str
    source: str
    group: str
    gold: str
    predicted: str
    probability: float  # of the task's first label


@dataclass(frozen=True)
class TextRow:
    """What was written for a task that is neither a plan nor a label; `right` is the score that decides for its task
    (`evaluation.adapters.scores.DECIDING`)."""

    id: str
    task: str
    source: str
    group: str
    question: str
    gold: str
    output: str
    right: bool
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True)
class Predicted:
    """All rows of an adapter's answers in one folder."""

    plans: list[PlanRow]
    labels: list[LabelRow]
    texts: list[TextRow]


def read_predicted(out: Path) -> Predicted:
    return Predicted(
        read_rows(out / "plans.jsonl", PlanRow),
        read_rows(out / "labels.jsonl", LabelRow),
        read_rows(out / "texts.jsonl", TextRow),
    )


def predict(
    set_folder: Path, out: Path, complete: Complete, split: str = "dev", each: int | None = None, say: str = ""
) -> None:
    """Adds the rows that are missing in `out`; `complete` is given a task's name and its prompts. `each`: at most so
    many records of a task, those with the smallest sha256 of their id; `say` begins each line of progress."""
    files = {"translate_bnf": out / "plans.jsonl", **dict.fromkeys(LABEL_TASKS, out / "labels.jsonl")}
    found = read_predicted(out)
    done = {row.id for rows in (found.plans, found.labels, found.texts) for row in rows}
    with progress_bar() as progress:
        for task in TASKS:
            records = list(read_records(set_folder, split, task))
            if each is not None:
                records = heapq.nsmallest(each, records, key=lambda r: sha256_text(r.id))
            records = sorted((r for r in records if r.id not in done), key=lambda r: len(r.prompt))
            bar = progress.add_task(say + task, total=len(records))
            for start in range(0, len(records), BATCH):
                batch = records[start : start + BATCH]
                completions = complete(task, [record.prompt for record in batch])
                pairs = zip(batch, completions, strict=True)
                row_of = {"translate_bnf": plan_row, **dict.fromkeys(LABEL_TASKS, label_row)}.get(task, text_row)
                append_rows(files.get(task, out / "texts.jsonl"), [row_of(*pair) for pair in pairs])
                progress.advance(bar, len(batch))


def plan_row(record: Record, completion: Completion) -> PlanRow:
    gold = json.loads(record.gold)
    return PlanRow(
        id=record.id,
        source=record.source,
        group=record.group,
        question=record.question,
        shape=record.shape,
        gold=gold,
        output=completion.text,
        **row_values(record, completion.text),
        tokens_in=completion.tokens_in,
        tokens_out=completion.tokens_out,
    )


def text_row(record: Record, completion: Completion) -> TextRow:
    return TextRow(
        id=record.id,
        task=record.task,
        source=record.source,
        group=record.group,
        question=record.question,
        gold=record.gold,
        output=completion.text,
        right=row_values(record, completion.text)[DECIDING[record.task]],
        tokens_in=completion.tokens_in,
        tokens_out=completion.tokens_out,
    )


def label_row(record: Record, completion: Completion) -> LabelRow:
    first = completion.probabilities[(TASKS[record.task].labels or ("",))[0]]
    return LabelRow(record.id, record.task, record.source, record.group, record.label, completion.text, first)


@click.command()
@click.option("--set", "set_folder", required=True, type=click.Path(path_type=Path))
@click.option("--adapter", required=True, type=click.Path(path_type=Path))
@click.option("--base", default="", help="Overrides the base that the adapter's manifest names.")
@click.option("--out", required=True, type=click.Path(path_type=Path))
def main(set_folder: Path, adapter: Path, base: str, out: Path) -> None:
    """Predict every dev record."""
    from revelator.artifact import read_manifest
    from serving.engines.engine import Engine
    from serving.engines.revelator_model import complete

    engine = Engine(base or read_manifest(adapter).base_name, adapter)
    predict(set_folder, out, lambda task, prompts: complete(engine, task, prompts))


if __name__ == "__main__":
    run(main)
