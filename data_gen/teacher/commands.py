"""`revelator data teach` and `revelator data compound`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from data_gen.teacher.work import Work

OUT = click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder to work in; goes on there.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the set's manifest as JSON.")
CONFIG = click.argument("config", type=click.Path(path_type=Path))


@click.command()
@CONFIG
@OUT
@AS_JSON
def teach(config: Path, out: Path, as_json: bool) -> None:
    """Let a language model behind an OpenAI-compatible endpoint annotate questions, and build a set of them.

    CONFIG names endpoint, budget, sources and tasks. The key is read from OPENAI_API_KEY alone. Every answer is kept
    in OUT/calls.sqlite: a run that was killed goes on with the same command and asks nothing twice. A budget that is
    spent ends the asking; the set is then what was done, and a larger budget goes on.

    \b
    Examples:
      revelator data teach data_gen/configs/teacher/teach.yaml --out runs/taught
      OPENAI_API_KEY=… revelator data teach mine.yaml --out runs/mine --json
      revelator data inspect runs/taught/set
    """
    from data_gen.teacher.config import TeachConfig
    from data_gen.teacher.teach import teach as run
    from data_gen.teacher.teach import total
    from revelator.config import read_config

    settings = read_config(config, TeachConfig)
    with _shown("questions", total(settings), lambda work: work.asked) as progress:
        manifest, work = run(settings, out, progress)
    _report(out, manifest, work, as_json)


@click.command()
@CONFIG
@OUT
@AS_JSON
def compound(config: Path, out: Path, as_json: bool) -> None:
    """Write compound questions about the titles of a corpus, with a language model behind an endpoint.

    Two to four simple questions about one title, each answered by one of its documents, are combined into one. No
    two splits ask about the same title. Goes on after a kill as `teach` does. Without an endpoint, the synthetic world
    makes compound questions: revelator data world.

    \b
    Examples:
      revelator data compound data_gen/configs/teacher/compound.yaml --out runs/compound
      revelator data inspect runs/compound/set --task decompose
    """
    from data_gen.teacher.compound import compound as run
    from data_gen.teacher.config import CompoundConfig
    from revelator.config import read_config

    settings = read_config(config, CompoundConfig)
    wanted = dict(settings.sizes)
    with _shown("compound questions", sum(wanted.values()), lambda work: work.kept) as progress:
        manifest, work = run(settings, out, progress)
    _report(out, manifest, work, as_json)
    made = {split: sum(n.values()) for split, n in manifest["questions"].items()}
    if short := [f"{made[split]} of {size} in {split}" for split, size in wanted.items() if made[split] < size]:
        click.echo(f"fewer than asked for: {', '.join(short)}. Give more titles, or see why above.", err=True)


@contextmanager
def _shown(what: str, total: int | None, done: Callable[[Work], int]) -> Iterator[Callable[[Work], None]]:
    """A bar with rate and remaining time, and a line below it that says what the calls have come to."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    class Bar(Progress):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            yield "".join(task.fields["calls"] for task in self.tasks)

    columns = (TextColumn(what), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        bar = bars.add_task(what, total=total, rate="", calls="")

        def progress(work: Work) -> None:
            tally, budget = work.client.tally, work.client.budget
            spent = f" {budget.money:.2f}" if budget.config.price_in or budget.config.price_out else ""
            calls = f"kept {work.kept}  calls {tally.calls} (+{tally.cached} known, {tally.retries} retries)"
            calls += f"  tokens {budget.tokens_in + budget.tokens_out:,}{spent}"
            elapsed = bars.tasks[0].elapsed or 0
            rate = f"{done(work) / elapsed:.1f}/s" if elapsed else ""
            bars.update(bar, completed=done(work), calls=calls, rate=rate)

        try:
            yield progress
        except KeyboardInterrupt:
            click.echo("stopped: the answers so far are kept, and the same command goes on", err=True)
            raise


def _report(out: Path, manifest: dict[str, Any], work: Work, as_json: bool) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from data_gen.inspection import counts_table, dropped_table

    console = Console(stderr=True)
    table = Table("not kept because", "questions")
    for reason, count in sorted(work.dropped.items()):
        table.add_row(escape(reason), f"{count:,}")
    if work.dropped:
        console.print(table)
    if manifest["dropped"]:
        console.print(dropped_table(manifest))
    if work.stopped:
        console.print("The budget is spent: the set is what was done. A larger one goes on from here.", style="yellow")
    if as_json:
        click.echo(json.dumps(manifest, ensure_ascii=False))
    else:
        Console().print(counts_table(manifest))
        click.echo(f"{out / 'set'}: the set. {out / 'questions.jsonl'}: its questions, a source of format `world`.")
