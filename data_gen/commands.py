"""The commands `revelator data …`: worlds, instruction sets, and what a teacher makes of questions."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    track,
)

from data_gen.build import build as build_set
from data_gen.compose import ComposeConfig, compose, list_counts
from data_gen.config import SetConfig
from data_gen.engines import choose_engine
from data_gen.inspection import (
    choose_samples,
    compare_sets,
    measure_set,
    read_texts,
    show_diff,
    show_set,
)
from data_gen.leakage import find_leak, load_held_out
from data_gen.reading import ReadingConfig, build_reading
from data_gen.teacher.config import CompoundConfig, TeachConfig
from data_gen.world.generate import generate
from data_gen.world.questions import ROUTES
from data_gen.world.sources import blend as divide
from revelator.config import check_config, read_yaml
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.options import AS_JSON, PATH
from revelator.rows import SET
from revelator.terminal import mask_controls

AnyConfig = SetConfig | ReadingConfig | ComposeConfig | TeachConfig | CompoundConfig
KINDS: dict[str, type[AnyConfig]] = {  # by `rows`; a set has none
    "reading": ReadingConfig,
    "composed": ComposeConfig,
    "taught": TeachConfig,
    "compound": CompoundConfig,
}


@click.command()
@click.argument("config", type=PATH)
@click.option("--out", required=True, type=PATH, help="Folder of what is built; replaces what was built there.")
@click.option("--engine", type=click.Choice(["local", "ray"]), help="Where a set is built.  [default: local]")
@click.option("--allow-single", is_flag=True, help="Build also a set whose plans all have one shape.")
@AS_JSON
def build(config: Path, out: Path, engine: str | None, allow_single: bool, as_json: bool) -> None:
    """Build what CONFIG describes: an instruction set, or what its `rows` says.

    An instruction set (no `rows`) is built from annotated questions: CONFIG names sources, splits and bounds. Malformed
    rows are listed and counted; a broken file stops the build and leaves OUT as it was. So does a set whose plans all
    have one shape, because a model that learns it writes no other (--allow-single builds it). After a kill, the same
    command resumes the build. The engine changes how long a build takes, never the set: `local` is one process, `ray`
    the cluster that RAY_ADDRESS names, one that was started on this machine, or one made for the build, with all of its
    CPUs.

    `rows: reading`: rows of the sources that a reader learns from.

    `rows: composed`: questions with several hops, and their plans, composed of published single ones. The noun phrase
    for one question's answer takes the place of a name in the next: such questions are mostly nonsense, and teach where
    a question divides. OUT is a source of format `world`, for `translate_bnf`.

    `rows: taught`: the questions of the sources, annotated by a language model behind an OpenAI-compatible endpoint.
    CONFIG names endpoint, budget and tasks. OUT/questions.jsonl is a source of format `world`, OUT/set a set of it.

    `rows: compound`: compound questions that the language model writes about the titles of a `corpus`: two to four
    simple questions about one title, each answered by one of its documents, are combined into one, and no two splits
    ask about the same title. OUT is as above.

    The language model's key is read from OPENAI_API_KEY alone. Every answer is kept in OUT/calls.sqlite: after a kill,
    the same command resumes and asks nothing twice. When the budget is spent, the set is built of what was done; a
    larger budget resumes the work.

    \b
    Examples:
      revelator data build data_gen/configs/real.yaml --out runs/sets/real
      REVELATOR_WORLD=runs/world revelator data build data_gen/configs/world.yaml --out runs/sets/world
      revelator data build large.yaml --out runs/sets/large --engine ray
      RAY_ADDRESS=10.0.0.1:6379 revelator data build large.yaml --out runs/sets/large --engine ray
      REVELATOR_DATA=~/data revelator data build real.yaml --out sets/real --json
      revelator data build data_gen/configs/reading/squad.yaml --out runs/reading
      revelator data build data_gen/configs/compose/single-step.yaml --out runs/composed
      OPENAI_API_KEY=… revelator data build data_gen/configs/teacher/teach.yaml --out runs/taught
      revelator data build data_gen/configs/teacher/compound.yaml --out runs/compound
    """
    if find_spec("pyarrow") is None:  # which rows are written with, after minutes of work
        raise ModuleNotFoundError(name="pyarrow")
    value = read_yaml(config)
    settings = check_config(value, _find_kind(value, config), str(config))
    if not isinstance(settings, SetConfig) and (engine or allow_single):
        raise click.UsageError(f"--engine and --allow-single are for instruction sets; {config} has `rows`")
    match settings:
        case SetConfig():
            _build_set(settings, out, engine or "local", allow_single, as_json)
        case ReadingConfig():
            _build_reading(settings, out, as_json)
        case ComposeConfig():
            _compose(settings, out, as_json)
        case _:
            _teach(settings, out, as_json)


def _find_kind(value: Any, path: Path) -> type[AnyConfig]:
    """Finds by `rows` what a configuration describes. Raises ConfigError if `rows` is wrong, or if it is missing and
    all fields are those of another kind than a set's."""
    if not isinstance(value, dict):
        return SetConfig
    if "rows" in value:
        if value["rows"] in list(KINDS):
            return KINDS[value["rows"]]
        reason = f"rows = {value['rows']!r:.80}: must be one of {', '.join(KINDS)}"
        raise ConfigError(reason, where=str(path), hint="leave `rows` out for an instruction set")
    likely = [f"`rows: {rows}`" for rows, kind in KINDS.items() if value.keys() <= kind.model_fields.keys()]
    if likely and not value.keys() <= SetConfig.model_fields.keys():
        hint = f"add {' or '.join(likely)}: a file without `rows` describes an instruction set"
        raise ConfigError("these are not the fields of an instruction set", where=str(path), hint=hint)
    return SetConfig


def _build_set(config: SetConfig, out: Path, engine: str, allow_single: bool, as_json: bool) -> None:
    chosen = choose_engine(engine)
    with _explain_write_errors(out), _show_progress() as show:
        manifest = build_set(config, out, show, engine=chosen, allow_single=allow_single)
    _show_set(manifest, as_json)
    if not as_json:
        click.echo(f"{out}: data card README.md, manifest.json. Look inside: revelator data inspect {out}")


def _build_reading(config: ReadingConfig, out: Path, as_json: bool) -> None:
    with _explain_write_errors(out):
        made = build_reading(config, out)
    lines = [f"{name}: {list_counts(counts)}" for name, counts in made["counts"].items()]
    click.echo(json.dumps(made) if as_json else "\n".join(lines))


def _compose(config: ComposeConfig, out: Path, as_json: bool) -> None:
    with _explain_write_errors(out), _show_progress() as show:
        progress = partial(show, "questions", total=config.size)
        manifest = compose(config, out, lambda made: progress(advance=made))
    if manifest["questions"] < config.size:
        click.echo(f"{config.size:,} were asked for: give more single questions for more", err=True)
    if as_json:
        click.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    click.echo(f"{out}: {manifest['questions']:,} questions of {manifest['clauses']:,} single ones")
    for what in ("graphs", "dropped"):
        click.echo(f"  {what}: {list_counts(manifest[what]) or 'none'}")


def _teach(config: TeachConfig | CompoundConfig, out: Path, as_json: bool) -> None:
    from data_gen.teacher.compound import write_compound
    from data_gen.teacher.teach import count_questions, teach

    sizes = dict(config.sizes) if isinstance(config, CompoundConfig) else dict[str, int]()
    with _show_progress() as show:
        try:
            if isinstance(config, CompoundConfig):
                total = sum(sizes.values())
                manifest, work = write_compound(
                    config, out, lambda work: show("questions", work.kept, total=total, note=str(work))
                )
            else:
                number = count_questions(config)
                manifest, work = teach(
                    config, out, lambda work: show("questions", work.asked, total=number, note=str(work))
                )
        except KeyboardInterrupt:
            click.echo("stopped: the answers so far are kept, and the same command goes on", err=True)
            raise
    _show_dropped(work.dropped)
    if work.stopped:
        click.echo("The budget is spent: the set is what was done. A larger one goes on from here.", err=True)
    _show_set(manifest, as_json)
    if not as_json:
        click.echo(f"{out / 'set'}: the set. {out / 'questions.jsonl'}: its questions, a source of format `world`.")
    made = {split: sum(counts.values()) for split, counts in manifest["questions"].items()}
    if short := [f"{made[split]} of {size} in {split}" for split, size in sizes.items() if made[split] < size]:
        click.echo(f"fewer than asked for: {', '.join(short)}. Give more titles, or see why above.", err=True)


@click.command()
@click.argument("folder", type=PATH)
@click.option("--split", type=click.Choice(["train", "dev", "test"]), help="The split to show.  [default: train]")
@click.option("--against", metavar="OLD", type=PATH, help="Show what changed from this set, in all splits.")
@AS_JSON
def inspect(folder: Path, split: str | None, against: Path | None, as_json: bool) -> None:
    """Show the data card of a set, routes and lengths of a split, and three records of each task.

    With --against, show what changed from the set OLD: configuration, hashes of prompts, grammar and inputs, records
    added, removed and kept by task and source, and, as a warning, questions that stand in another split. The exit
    status is then that of diff(1): 0 for no difference, 1 for some, 2 for trouble.

    \b
    Examples:
      revelator data inspect runs/sets/real
      revelator data inspect runs/sets/real --split dev --json
      revelator data inspect runs/sets/new --against runs/sets/old
      revelator data inspect runs/sets/new --against runs/sets/old --json | jq .records
    """
    if against is None:
        _show_samples(folder, split or "train", as_json)
        return
    if split is not None:
        raise click.UsageError("--against compares all splits: leave --split out")
    try:
        found = compare_sets(against, folder)
    except (ArtifactError, DataError) as error:
        error.exit_status = 2
        raise
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        show_diff(Console(), found)
    sys.exit(not found["same"])


def _show_samples(folder: Path, split: str, as_json: bool) -> None:
    manifest = SET.read_manifest(folder, verify=True)
    chosen, measured = choose_samples(folder, split), measure_set(folder, split)
    if as_json:
        shown = {name: [asdict(record) for record in records] for name, records in chosen.items()}
        keys = ("digest", "records", "counts", "labels", "questions", "dropped")
        click.echo(
            json.dumps({**{key: manifest[key] for key in keys}, **measured, "samples": shown}, ensure_ascii=False)
        )
    else:
        show_set(Console(), folder, chosen, measured)


@click.command()
@click.option("--size", required=True, type=int, help="Number of questions, at least 20.")
@click.option("--seed", default=0, show_default=True, type=int, help="The same size and seed give the same bytes.")
@click.option("--out", required=True, type=PATH, help="Folder of the world; replaced as a whole.")
@click.option("--dev", type=click.IntRange(0), help="Questions in the split dev.  [default: a tenth]")
@click.option("--test", type=click.IntRange(0), help="Questions in the split test.  [default: a tenth]")
@click.option("--route", "routes", multiple=True, type=click.Choice(ROUTES), help="Only these kinds.  [default: all]")
@click.option("--operators", is_flag=True, help="Complex questions whose trees have each operator.")
@click.option("--blend", type=PATH, help="Also divide it among text, web and graph, in this folder.")
@AS_JSON
def world(
    size: int,
    seed: int,
    out: Path,
    dev: int | None,
    test: int | None,
    routes: tuple[str, ...],
    operators: bool,
    blend: Path | None,
    as_json: bool,
) -> None:
    """Generate a synthetic world: documents, triples, and questions with gold plans. No two splits share an entity.

    With --blend, each document also goes to one of three sources, and the questions of two steps that need two sources
    are written beside them (examples/blend.sh measures on these).

    \b
    Examples:
      revelator data world --size 2000 --seed 7 --out runs/world
      revelator data world --route compound --size 60000 --dev 8000 --test 2000 --out runs/compound
      revelator data world --size 50000 --seed 1 --out runs/large --json
      revelator data world --size 8000 --route complex --out runs/world --blend runs/blend
      revelator data world --size 8000 --operators --out runs/operators
    """
    with _explain_write_errors(out), _show_progress() as show:
        manifest = generate(
            size,
            seed,
            out,
            held_back={split: n for split, n in (("dev", dev), ("test", test)) if n is not None},
            routes=routes or tuple(ROUTES),
            operators=operators,
            progress=lambda made: show("questions", advance=made, total=size),
        )
    if blend:
        with _explain_write_errors(blend):
            manifest["blend"] = divide(out, blend)
    if as_json:
        click.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    counts = manifest["counts"]
    click.echo(f"{out}: {size:,} questions, {manifest['passages']:,} passages, {len(counts['shape'])} plan shapes")
    for what in ("split", "route"):
        click.echo(f"  {what}: " + ", ".join(f"{name} {number:,}" for name, number in counts[what].items()))
    if blend:
        click.echo(f"{blend}: " + ", ".join(f"{pair} {n:,}" for pair, n in manifest["blend"]["questions"].items()))


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--out", default="data", show_default=True, type=PATH, help="Folder that REVELATOR_DATA is to name.")
@click.option("--from", "mirror", help="Address or folder that has the published files.  [default: where published]")
@AS_JSON
def fetch(names: tuple[str, ...], out: Path, mirror: str | None, as_json: bool) -> None:
    """Fetch published data sets, in the form in which the configurations of this project read them.

    Without a NAME, list the sets: licence, size, whether they are in OUT, and of each published file the size and the
    sha256 that it must have (shortened; --json has all of it) and its address. Each set becomes the folder OUT/NAME. A
    download that was cut off continues when the same command runs again. A file whose sha256 is known is compared with
    it; of any other, the folder's manifest keeps the sha256, and a later fetch is compared with that.

    --from takes the published files by the names that the list shows, from a mirror, or from a folder into which you
    put them yourself.

    \b
    Examples:
      revelator data fetch
      revelator data fetch musique 2wikimultihopqa --out data
      revelator data fetch metaqa --from downloads/
      revelator data fetch hotpotqa --from https://mirror.example.org/hotpotqa --json
      REVELATOR_DATA=data revelator data build data_gen/configs/real.yaml --out runs/sets/real
    """
    from data_gen.fetch import HELD_OUT, find_set
    from data_gen.fetch import fetch as fetch_set

    if not names:
        _list_published(out, as_json)
        return
    published, made = {name: find_set(name) for name in names}, dict[str, Any]()
    had_held_out = (out / HELD_OUT).exists()
    with _explain_write_errors(out), _show_progress(DownloadColumn()) as show:
        for name, about in published.items():
            made[name] = fetch_set(name, about, out, mirror, lambda file, done, total: show(file, done, total=total))
    if as_json:
        click.echo(json.dumps({"out": str(out), "sets": made}, ensure_ascii=False))
        return
    for name, manifest in made.items():
        for file, download in published[name].downloads.items():
            if download.sha256 is None:
                digest = manifest["downloads"][file]["sha256"]
                click.echo(f"{file}: digest not known: recorded at the first fetch, {digest}", err=True)
        rows = ", ".join(f"{file} {count:,}" for file, count in manifest["rows"].items())
        click.echo(f"{out / name}: {rows} rows ({manifest['licence']})")
    if not had_held_out:
        click.echo(f"{out / HELD_OUT}: empty, so no question is held out; write the hashes of those to hold out")
    click.echo(f"export REVELATOR_DATA={shlex.quote(str(out.resolve()))}")


def _list_published(out: Path, as_json: bool) -> None:
    from data_gen.fetch import is_fetched, load_published

    sets = load_published()
    fetched = {name: is_fetched(published, out / name) for name, published in sets.items()}
    if as_json:
        about = {name: published.model_dump(mode="json") for name, published in sets.items()}
        click.echo(json.dumps([{"name": name, **about[name], "fetched": fetched[name]} for name in sets]))
        return
    for name, published in sets.items():
        size = f"{published.size / 1e6:,.0f} MB" if published.size else "size not known"
        click.echo(f"{name}: {published.title}; {published.licence}; {size}{'; fetched' * fetched[name]}")
        for file, download in published.downloads.items():
            click.echo(f"  {file}  {download.describe()}  {download.url}")


@click.command()
@click.argument("places", metavar="SET|WORLD|FILE...", nargs=-1, required=True, type=PATH)
@click.option("--held-out", required=True, type=PATH, help="Hashes of the held-out questions.")
@AS_JSON
def leaks(places: tuple[Path, ...], held_out: Path, as_json: bool) -> None:
    """Look for held-out questions in what training reads: instruction sets, worlds, files of rows.

    Of a set, questions, prompts and completions; of a world or a teacher's folder, its questions.jsonl; of a FILE (JSON
    lines or array, CSV, parquet), every text. The exit status is 1 if there are any.

    \b
    Examples:
      revelator data leaks runs/sets/real --held-out ../shared/data/held_out.sha256
      revelator data leaks runs/sets/world runs/world --held-out held_out.sha256
      revelator data leaks runs/sets/* corpus.jsonl.gz --held-out held_out.sha256 --json
    """
    held, looked, console = load_held_out(held_out), Counter(records=0, texts=0), Console(stderr=True)
    if not held:
        raise DataError("no hashes stand there", where=str(held_out), hint="give a file of lines `sha256  name`")
    found: list[dict[str, str]] = []
    for place in places:
        records, total = read_texts(place)
        for name, written in track(records, str(place), total, console=console, transient=True):
            looked.update(records=1)
            for text in written:
                looked.update(texts=1)
                if held_by := find_leak(held, text):
                    found.append({"set": str(place), "id": name, "held_out": held_by, "text": text})
                    if not as_json:  # at once: a later row may end the command
                        click.echo(mask_controls(f"{place}: {name}: {held_by}: {text}"))
    if as_json:
        click.echo(json.dumps({**looked, "hashes": len(held), "found": found}, ensure_ascii=False))
    else:
        click.echo(f"{looked['records']:,} records, {looked['texts']:,} texts: {len(found):,} held out ({held_out})")
    sys.exit(bool(found))


def _show_set(manifest: dict[str, Any], as_json: bool) -> None:
    """What a set holds, and, on standard error, what was left out of it."""
    _show_dropped(manifest["dropped"], manifest["refused_rows"])
    if as_json:
        click.echo(json.dumps(manifest, ensure_ascii=False))
        return
    for split, count in manifest["records"].items():
        click.echo(f"{split}: {count:,} records ({list_counts(manifest['counts']['task'][split])})")


def _show_dropped(dropped: Mapping[str, int], refused_rows: Iterable[Mapping[str, Any]] = ()) -> None:
    lines = [f"left out: {count:,} questions: {reason}" for reason, count in sorted(dropped.items())]
    lines += [f"left out: {row['file']}, line {row['line']}: {row['reason']}" for row in refused_rows]
    click.echo("".join(f"{mask_controls(line)}\n" for line in lines), err=True, nl=False)


@contextmanager
def _show_progress(amount: ProgressColumn | None = None) -> Iterator[Callable[..., None]]:
    """Yields a function that shows how far something is. Its first call draws the bars, so that an error before it
    stands alone. `amount` is the column that says how far, in the place of numbers."""
    how_far = amount or MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), how_far, TimeElapsedColumn(), TimeRemainingColumn())
    bars = Progress(*columns, TextColumn("{task.fields[note]}"), console=Console(stderr=True))
    tasks: dict[str, Any] = {}
    with ExitStack() as drawn:

        def show(what: str, done: int | None = None, note: str = "", **numbers: Any) -> None:
            if not bars.live.is_started:
                drawn.enter_context(bars)
            if what not in tasks:
                tasks[what] = bars.add_task(escape(what), total=None, note=note)
            bars.update(tasks[what], completed=done, note=note, **numbers)

        yield show


@contextmanager
def _explain_write_errors(out: Path) -> Iterator[None]:
    """Turns whatever keeps files from being written to `out` into one clear error."""
    try:
        yield
    except OSError as error:
        if file := next((place for place in out.parents if place.is_file()), None):
            reason, hint = f"{file} is a file and stands in the way", "name another folder"
        else:
            reason = error.strerror or str(error)
            hint = "free space, or name another folder; what stood there before is unchanged"
        raise DataError(f"cannot be written: {reason}", where=str(out), hint=hint) from error
