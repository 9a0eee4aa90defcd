"""The commands `revelator data self-train round` and `gain`."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from data_gen.config import load_config
from data_gen.sources.formats import READERS
from data_gen.tables import tabulate_counts, tabulate_dropped
from evaluation.rows import progress_bar
from revelator.config import DATA_DEFAULT, DATA_VARIABLE
from revelator.errors import ConfigError, ExpressionError
from revelator.files import sha256_file
from revelator.options import AS_JSON, FOLDER, THREADS
from revelator.plans import parse, to_letters
from revelator.rows import read_manifest
from serving.models.adapters import Adapter, open_engine
from serving.protocols import DECODINGS, Decoding

TEMPERATURES = (0.0, 0.5, 0.7, 0.9, 1.0)
HELD_OUT = "held_out.sha256"
GRAPHS = 'as MuSiQue\'s: "A * B", "A * B * C", "(A + B) * C", "A * B * C * D", "(A * B + C) * D", "(A + B) * C * D"'
PATIENCE = 3_600_000.0  # milliseconds for a plan: on a busy machine, too, the passages decide and not the clock


def _parse_letters(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    """Checks a graph in letters. Raises ConfigError for other text, another spelling, or a graph that cannot be
    forced."""
    if given is None:
        return None
    try:
        letters = to_letters(parse(given))
    except ExpressionError as error:
        raise ConfigError(f"no plan in letters: {error.message}", where="--letters", hint=GRAPHS) from error
    if letters == "A":
        raise ConfigError(f"{given!r} is a single leaf", where="--letters", hint=f"operators between spaces, {GRAPHS}")
    if letters != given:
        raise ConfigError(f"{given!r} is spelt otherwise in letters", where="--letters", hint=f"write {letters}")
    if "(" in letters.lstrip("("):
        hint = f"groups may stand at the beginning, {GRAPHS}"
        raise ConfigError("a search cannot be held to a group inside", where="--letters", hint=hint)
    return letters


@click.command(name="round")
@click.argument("questions", type=FOLDER)
@click.option("--adapter", type=FOLDER, help="The model's adapter folder; without it the base alone plans.")
@click.option("--base", help="Base model.  [default: the one that the adapter names, else tiny]")
@click.option(
    "--index", "index_folder", type=FOLDER, help="Where the leaves' passages are looked for; without it, not."
)
@click.option("--out", required=True, type=FOLDER, help="Folder of the round; goes on there.")
@click.option("--format", "kind", default="pairs", show_default=True, type=click.Choice(sorted(READERS)))
@click.option("--source", default="", help="Name that the rows carry.  [default: the file's]")
@click.option("--licence", default="own", show_default=True, help="Licence of the questions.")
@click.option("--limit", default=300, show_default=True, type=click.IntRange(1), help="Questions of the round.")
@click.option("--seed", default=1, show_default=True, type=int, help="Chooses the questions: another seed, others.")
@click.option("--temperature", "temperatures", multiple=True, type=click.FloatRange(0, 2), default=TEMPERATURES,
              help="Of one sample; give it once for each.  [default: 0, 0.5, 0.7, 0.9, 1]")  # fmt: skip
@click.option("--letters", callback=_parse_letters,
              help='Graph of each question, as "(A + B) * C": its likeliest plan of it, not samples.')  # fmt: skip
@click.option("--agreement", default=0.6, show_default=True, type=click.FloatRange(0, 1), help="Part that must agree.")
@click.option("--coverage", default=0.8, show_default=True, type=click.FloatRange(0, 1), help="Of a question's names.")
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
    kind: str,
    source: str,
    licence: str,
    limit: int,
    seed: int,
    temperatures: tuple[float, ...],
    letters: str | None,
    agreement: float,
    coverage: float,
    decoding: Decoding,
    documents: int,
    beside: Path | None,
    held_out: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Make one round from QUESTIONS, rows with `question` and `answer` (or another --format).

    A plan is kept if it is valid, keeps the question's names, agrees with the other samples up to the order of `+`, and
    if its leaves, run on the index, find the known answer. Without an index that last test is left out. Run the same
    command again to continue a round that was killed.

    If the graph of the questions is known, give it with --letters. Then the plan is the likeliest text of that graph,
    and --agreement is the share of the likeliest texts that must be plans of it (0: one is enough); --temperature and
    --decoding do not apply.

    \b
    Examples:
      revelator data self-train round questions.jsonl --adapter runs/real/adapters/real \\
        --index runs/real/indexes/real --limit 300 --out runs/self/1
      revelator data self-train round 3hop2.jsonl --adapter runs/real/adapters/real --letters "(A + B) * C" \\
        --agreement 0 --coverage 1 --limit 5000 --out runs/self/3
    """
    given = click.get_current_context().get_parameter_source
    if letters and ParameterSource.COMMANDLINE in (given("temperatures"), given("decoding")):
        raise click.UsageError("--temperature and --decoding are of samples: leave them out beside --letters")
    from evaluation.self_training import rounds
    from revelator.artifact import read_manifest
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
    engine = Engine(base or (read_manifest(adapter).base_name if adapter else "tiny"), adapter, threads=threads)
    settings = rounds.Settings(
        questions=str(questions),
        format=kind,
        source=source or questions.name.partition(".")[0],
        licence=licence,
        limit=limit,
        seed=seed,
        temperatures=() if letters else tuple(temperatures),
        letters=letters,
        least=agreement,
        coverage=coverage,
        held_out=_find_held_out(held_out),
        decoding="" if letters else decoding,
        documents=documents,
        model=sha256_file(adapter / "manifest.json") if adapter else engine.base_digest,
        index=sha256_file(index_folder / "manifest.json") if index_folder else "",
    )
    propose = (
        rounds.search_letters(engine, letters)
        if letters
        else rounds.draw_samples(engine, settings.temperatures, seed, decoding)
    )
    rounds.begin_round(out, settings)
    dropped: Counter[str] = Counter()
    asked = rounds.choose_questions(settings, dropped)

    proposals = rounds.propose(asked, settings, out / "proposals.jsonl", propose)
    chosen, funnel = rounds.select(asked, proposals, settings, dropped)
    executions = {}
    if index:
        local = LocalRevelator(engine)
        limits = Limits(documents=documents, deadline_ms=PATIENCE)
        executor = Executor(local, LocalRetriever(index), EmbeddedGenerator(), limits)
        runs = rounds.execute(
            chosen, out / "executions.jsonl", lambda q, plan: executor.run(q, plan=plan, strategy="compile")
        )
        executions = asyncio.run(runs)
        local.close()
    rounds.write_kept_questions(chosen, executions, settings, out, funnel, dropped)
    manifest = rounds.build_round(out, settings, load_config(beside) if beside else None, funnel, dropped)
    if as_json:
        click.echo((out / rounds.RECORD).read_text(encoding="utf-8"))
        return
    if manifest["dropped"]:
        Console(stderr=True).print(tabulate_dropped(manifest))
    Console().print(tabulate_counts(manifest))
    click.echo((out / "README.md").read_text(encoding="utf-8"))


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
    scores = []
    for folder in (before, after):
        engine = open_engine(Adapter(folder), threads=threads)
        with progress_bar() as progress:
            scores.append(score_adapter(engine, rows, progress, f"{folder.name}: "))
    tasks = {task: compare_scores(own, scores[1][task]) for task, own in scores[0].items()}
    digests = {"before": sha256_file(before / "manifest.json"), "after": sha256_file(after / "manifest.json")}
    update_record(
        round_folder,
        {"gain": {**digests, "set": read_manifest(set_folder)["digest"], "source": source, "tasks": tasks}},
    )
    click.echo((round_folder / "README.md").read_text(encoding="utf-8"))


def _find_held_out(given: Path | None) -> str | None:
    """Returns the given file, or else the file of the published data, if it exists."""
    found = given or Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT) / HELD_OUT
    if given or found.is_file():
        return str(found)
    click.echo(f"no held-out questions are left out: there is no {found}; --held-out names them", err=True)
    return None
