"""A look into a set: its data card, and a few records of each task."""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

from revelator.files import sha256_text
from revelator.rows import Row, stream_rows
from revelator.tasks import TASKS
from revelator.terminal import printable, shown


def samples(folder: Path, split: str, task: str | None, count: int) -> dict[str, list[Row]]:
    """`count` records a task, drawn by the hash of their id: the same ones at every look."""
    chosen = {}
    for name in [task] if task else list(TASKS):
        chosen[name] = heapq.nsmallest(
            count, stream_rows(folder, split, name), key=lambda record: sha256_text(record.id)
        )
    return chosen


def show(console: Console, folder: Path, chosen: dict[str, list[Row]]) -> None:
    """The data card of a set, then the chosen records."""
    console.print(Markdown(printable((folder / "README.md").read_text(encoding="utf-8"))))
    for task, records in chosen.items():
        for record in records:
            about = " · ".join(x for x in (task, record.source, record.shape, record.id) if x)
            text = f"{shown(record.prompt)}[bold green]{shown(record.completion)}[/]"
            console.print(Panel(text, title=shown(about), title_align="left"))


def counts_table(manifest: dict[str, Any]) -> Table:
    """Records by task and split, as the manifest counts them."""
    by_split = manifest["counts"]["task"]
    table = Table("task", *by_split, title=f"{shown(manifest['config']['name'])}  digest {manifest['digest'][:12]}")
    for task in TASKS:
        table.add_row(task, *(f"{counts.get(task, 0):,}" for counts in by_split.values()))
    table.add_row("all", *(f"{manifest['records'][split]:,}" for split in by_split), style="bold")
    return table


def dropped_table(manifest: dict[str, Any]) -> Table:
    """What was left out: reasons with counts, then the malformed rows that are listed."""
    table = Table("left out because", "questions", title="Left out")
    for reason, count in manifest["dropped"].items():
        table.add_row(shown(reason), f"{count:,}")
    for row in manifest["refused_rows"]:
        table.add_row(shown(f"{row['file']}, line {row['line']}: {row['reason']}"), "")
    return table
