"""The commands `revelator data self-train round` and `gain`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from data_gen.config import load_config
from data_gen.sources.formats import READERS
from data_gen.tables import tabulate_counts, tabulate_dropped
from revelator.config import DATA_DEFAULT, DATA_VARIABLE
from revelator.errors import ConfigError
from revelator.files import sha256_file
from revelator.options import AS_JSON, FOLDER, THREADS
from revelator.rows import read_manifest
from serving.models.adapters import Adapter
from serving.protocols import DECODINGS

TEMPERATURES = (0.0, 0.5, 0.7, 0.9, 1.0)
HELD_OUT = "held_out.sha256"
SHARE = click.FloatRange(0, 1)
PATIENCE = 3_600_000.0  # milliseconds for a plan: on a busy machine, too, the passages decide and not the clock


@click.command(name="round")
@click.argument("questions", type=FOLDER)
@click.option("--adapter", type=FOLDER, help="The model's adapter folder; without it the base alone plans.")
@click.option("--base", help="Base model.  [default: the one that the adapter names, else mini]")
@click.option(
    "--index", "index_folder", type=FOLDER, help="Where the leaves' passages are looked for; without it, not."
)
@click.option("--out", required=True, type=FOLDER, help="Folder of the round; goes on there.")
@click.option("--format", default="pairs", show_default=True, type=click.Choice(sorted(READERS)))
@click.option("--source", default="", help="Name that the rows carry.  [default: the file's]")
@click.option("--licence", default="own", show_default=True, help="Licence of the questions.")
@click.option("--limit", default=300, show_default=True, type=click.IntRange(1), help="Questions of the round.")
@click.option("--seed", default=1, show_default=True, type=int, help="Chooses the questions: another seed, others.")
@click.option("--temperature", "temperatures", multiple=True, type=click.FloatRange(0, 2), default=TEMPERATURES,
              help="Of one sample; give it once for each.  [default: 0, 0.5, 0.7, 0.9, 1]")  # fmt: skip
@click.option("--agreement", "least", default=0.6, show_default=True, type=SHARE, help="Part that must agree.")
@click.option("--coverage", default=0.8, show_default=True, type=SHARE, help="Of a question's names.")
@click.option("--decoding", default="grammar", show_default=True, type=click.Choice(DECODINGS))
@click.option("--documents", default=10, show_default=True, type=click.IntRange(1), help="Retrieved for a leaf.")
@click.option("--beside", type=FOLDER, help="Configuration of a set: the round is one more source of it.")
@click.option("--held-out", type=FOLDER, help=f"Hashes of questions to leave out.  [default: {HELD_OUT} of the data]")
@THREADS
@AS_JSON
def make_round(
    questions: Path,
    adapter: Path | None,
    base: str | None,
    index_folder: Path | None,
    out: Path,
    source: str,
    beside: Path | None,
    held_out: Path | None,
    threads: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make one round from QUESTIONS, rows with `question` and `answer` (or another --format).

    A plan is kept if it is valid, keeps the question's names, agrees with the other samples up to the order of `+`, and
    if its leaves, run on the index, find the known answer. Without an index that last test is left out. Run the same
    command again to continue a round that was killed.

    \b
    Example:
      revelator data self-train round questions.jsonl --adapter runs/real/adapters/real \\
        --index runs/real/indexes/real --limit 300 --out runs/self/1
    """
    from evaluation.self_training import rounds
    from revelator.artifact import DEFAULT_BASE, read_manifest
    from revelator.limits import Limits
    from serving.executor.executor import Executor
    from serving.models.embedded import EmbeddedGenerator
    from serving.models.engine import Engine
    from serving.models.local import LocalRevelator
    from serving.retrieval import Index
    from serving.retrieval.index import LocalRetriever

    if not questions.is_file():
        raise ConfigError("there is no such file", where=str(questions), hint="rows with `question` and `answer`")
    index = Index.open(index_folder) if index_folder else None
    engine = Engine(base or (read_manifest(adapter).base_name if adapter else DEFAULT_BASE), adapter, threads=threads)
    settings = rounds.Settings(
        questions=str(questions),
        source=source or questions.name.partition(".")[0],
        held_out=_find_held_out(held_out),
        model=sha256_file(adapter / "manifest.json") if adapter else engine.base_digest,
        index=sha256_file(index_folder / "manifest.json") if index_folder else "",
        **given,
    )
    draw = rounds.draw_samples(engine, settings.temperatures, settings.seed, settings.decoding)
    local = LocalRevelator(engine)
    limits = Limits(documents=settings.documents, deadline_ms=PATIENCE)
    executor = Executor(local, LocalRetriever(index), EmbeddedGenerator(), limits) if index else None
    manifest = rounds.run_round(out, settings, draw, executor, load_config(beside) if beside else None)
    local.close()
    if as_json:
        click.echo((out / rounds.RECORD).read_text(encoding="utf-8"))
        return
    if manifest["dropped"]:
        Console(stderr=True).print(tabulate_dropped(manifest))
    known = json.loads((out / rounds.RECORD).read_text(encoding="utf-8"))
    table = Table("round", "count", title=f"{out}: questions, samples and plans that each test left")
    for name, count in [*known["counts"].items(), *((f"dropped: {why}", n) for why, n in known["dropped"].items())]:
        table.add_row(name.replace("_", " "), f"{count:,}")
    Console().print(table, tabulate_counts(manifest))


@click.command()
@click.argument("round_folder", metavar="ROUND", type=FOLDER)
@click.option("--before", required=True, type=FOLDER, help="Adapter that made the round.")
@click.option("--after", required=True, type=FOLDER, help="Adapter that was trained with it.")
@click.option("--set", "set_folder", required=True, type=FOLDER, help="Set whose dev rows are scored.")
@click.option("--source", help="Only rows of this source of the set.  [default: all]")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1), help="Rows a task.")
@THREADS
def gain(
    round_folder: Path,
    before: Path,
    after: Path,
    set_folder: Path,
    source: str | None,
    limit: int,
    threads: int | None,
) -> None:
    """Score the adapters before and after a round on the same dev rows, and write the gain into the round.

    \b
    Example:
      revelator data self-train gain runs/self/1 --before runs/real/adapters/real --after runs/self/1-adapter \\
        --set runs/real/sets/real --source musique
    """
    from evaluation.gate.scores import read_pinned_rows, score_adapter
    from evaluation.self_training.rounds import RECORD, compare_scores, update_record

    if not (round_folder / RECORD).is_file():
        raise ConfigError("no round of self-training", where=str(round_folder), hint="revelator data self-train round")
    rows = read_pinned_rows(set_folder, "dev", limit, source)
    scores = [score_adapter(Adapter(folder), {"": rows}, folder.name, threads=threads) for folder in (before, after)]
    tasks = {task: compare_scores(own, scores[1][task]) for task, own in scores[0].items()}
    digests = {"before": sha256_file(before / "manifest.json"), "after": sha256_file(after / "manifest.json")}
    about = {**digests, "set": read_manifest(set_folder)["digest"], "source": source}
    update_record(round_folder, {"gain": about | {"tasks": tasks}})
    table = Table("task", "n", "measure", "before", "after", "gain", "95 %", title="paired bootstrap over questions")
    for task, own in tasks.items():
        for measure, (old, new) in own["scores"].items():
            ends = own["intervals"].get(measure)
            between = f"{ends[0]:+.3f} to {ends[1]:+.3f}" if ends else ""
            table.add_row(task, f"{own['n']}", measure, f"{old:.3f}", f"{new:.3f}", f"{new - old:+.3f}", between)
    Console().print(table)


def _find_held_out(given: Path | None) -> str | None:
    """Returns the given file, or else the file of the published data, if it exists."""
    found = given or Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT) / HELD_OUT
    if given or found.is_file():
        return str(found)
    click.echo(f"no held-out questions are left out: there is no {found}; --held-out names them", err=True)
    return None
