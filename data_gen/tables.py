"""Instruction sets and their differences as tables on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

from data_gen.inspection import KINDS
from revelator.rows import Row
from revelator.tasks import TASKS
from revelator.terminal import mask_controls, to_markup

SHOWN = 300  # characters of a field's value


def show_set(console: Console, folder: Path, chosen: dict[str, list[Row]], measured: Mapping[str, Any]) -> None:
    """The data card of a set, what `measure_set` says of it, then the chosen records."""
    console.print(Markdown(mask_controls((folder / "README.md").read_text(encoding="utf-8"))))
    routes = ", ".join(f"{route} {count:,}" for route, count in measured["routes"].items())
    console.print(f"routes: {routes or 'none'}")
    if nodes := sum(measured["operators"].values()):
        shares = ", ".join(f"{name} {count / nodes:.3f}" for name, count in measured["operators"].items())
        console.print(f"operators of {nodes:,} nodes: {shares}")
    table = Table("task", "prompt: median", "longest", "completion: median", "longest", title="Lengths in characters")
    for task, each in measured["lengths"].items():
        cells = [f"{each[part][name]:,}" for part in ("prompt", "completion") for name in ("median", "longest")]
        table.add_row(task, *cells)
    console.print(table)
    for task, records in chosen.items():
        for record in records:
            about = " · ".join(x for x in (task, record.source, record.shape, record.id) if x)
            text = f"{to_markup(record.prompt)}[bold green]{to_markup(record.completion)}[/]"
            console.print(Panel(text, title=to_markup(about), title_align="left"))


def tabulate_counts(manifest: dict[str, Any]) -> Table:
    """Records by task and split, as the manifest counts them."""
    by_split = manifest["counts"]["task"]
    table = Table("task", *by_split, title=f"{to_markup(manifest['config']['name'])}  digest {manifest['digest'][:12]}")
    for task in TASKS:
        table.add_row(task, *(f"{counts.get(task, 0):,}" for counts in by_split.values()))
    table.add_row("all", *(f"{manifest['records'][split]:,}" for split in by_split), style="bold")
    return table


def tabulate_dropped(dropped: Mapping[str, int], refused_rows: Iterable[Mapping[str, Any]] = ()) -> Table:
    """What was left out: reasons with counts, then the malformed rows that are listed."""
    table = Table("left out because", "questions", title="Left out")
    for reason, count in sorted(dropped.items()):
        table.add_row(to_markup(reason), f"{count:,}")
    for row in refused_rows:
        table.add_row(to_markup(f"{row['file']}, line {row['line']}: {row['reason']}"), "")
    return table


def show_diff(console: Console, found: Mapping[str, Any]) -> None:
    """Prints what `data_gen.inspection.compare_sets` found."""
    sides = [f"{found[side]['folder']} ({found[side]['digest'][:12]})" for side in ("old", "new")]
    if found["same"]:
        console.print(f"{to_markup(sides[0])} and {to_markup(sides[1])} hold the same")
        return
    console.print(f"[bold]{to_markup(sides[0])} → {to_markup(sides[1])}[/]")
    if found["manifest"]:
        table = Table("manifest", "old", "new", title_justify="left")
        for name, values in found["manifest"].items():
            table.add_row(to_markup(name), *("–" if value is None else to_markup(_shorten(value)) for value in values))
        console.print(table)
    for name, counts in found["records"].items():
        if counts:
            table = Table(f"records by {name}", *KINDS)
            for value, row in counts.items():
                table.add_row(to_markup(value), *(f"{row[kind]:,}" for kind in KINDS))
            console.print(table)
    console.print("questions: {added:,} added, {removed:,} removed".format(**found["questions"]))
    if found["moved"]:
        counted = ", ".join(f"{moved} {count:,}" for moved, count in found["moved"].items())
        console.print(f"[bold yellow]warning: questions stand in another split than before: {counted}[/]")
        console.print("An adapter trained on one of the sets may have learnt what the other one measures it on.")
        for question in found["moved_questions"]:
            console.print(f"  {to_markup(question)}")


def _shorten(value: Any) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
