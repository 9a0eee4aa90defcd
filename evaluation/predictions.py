"""What an adapter answers to every dev record of the label tasks and of `translate_bnf`, in batches, without a server.

    python -m evaluation.predictions --set DIR --adapter DIR --out DIR

Writes `plans.jsonl` and `labels.jsonl`. A process of its own, because it is the one part of the measurements that needs
torch. Plans are greedy, one attempt each: the executor's further attempts at other temperatures are not in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from data_gen.builder import Record
from data_gen.instruction_set import read_records
from evaluation.metrics import plan_score
from evaluation.rows import append_rows, progress_bar, read_rows
from revelator.language import parse
from revelator.tasks import TASKS
from serving.protocols import Completion

BATCH = 64
LABEL_TASKS = tuple(name for name, task in TASKS.items() if task.labels)

Complete = Callable[[str, Sequence[str]], list[Completion]]


@dataclass(frozen=True)
class PlanRow:
    """One question's plan; the booleans are `evaluation.metrics.PlanScore`'s."""

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


def predict(set_folder: Path, out: Path, complete: Complete, split: str = "dev") -> None:
    """Adds the rows that are missing in `out`; `complete` is given a task's name and its prompts."""
    plans, labels = out / "plans.jsonl", out / "labels.jsonl"
    done = {row.id for row in read_rows(plans, PlanRow)} | {row.id for row in read_rows(labels, LabelRow)}
    with progress_bar() as progress:
        for task in ("translate_bnf", *LABEL_TASKS):
            records = [r for r in read_records(set_folder, split, task) if r.id not in done]
            records.sort(key=lambda r: len(r.prompt))
            bar = progress.add_task(task, total=len(records))
            for start in range(0, len(records), BATCH):
                batch = records[start : start + BATCH]
                completions = complete(task, [record.prompt for record in batch])
                pairs = zip(batch, completions, strict=True)
                if task == "translate_bnf":
                    append_rows(plans, [plan_row(record, completion) for record, completion in pairs])
                else:
                    append_rows(labels, [label_row(record, completion) for record, completion in pairs])
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
        **asdict(plan_score(completion.text, parse(gold))),
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
    from serving.engine import Engine
    from serving.revelator_model import complete

    engine = Engine(base or read_manifest(adapter).base_name, adapter)
    predict(set_folder, out, lambda task, prompts: complete(engine, task, prompts, decoding="free"))


if __name__ == "__main__":
    main()
