"""The command `revelator data build`: a set, or what the `rows` of a configuration say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from data_gen.build import build as build_set
from data_gen.collect import CollectConfig, collect
from data_gen.commands.output import explain_write_errors, show_progress
from data_gen.compose import ComposeConfig, compose, list_counts
from data_gen.config import SetConfig
from data_gen.reading import ReadingConfig, build_reading
from data_gen.teacher.config import CompoundConfig, TeachConfig
from data_gen.world.generate import WorldConfig, generate
from data_gen.world.sources import blend as divide
from revelator.cluster import open_engine
from revelator.config import check_config, read_yaml
from revelator.errors import ConfigError
from revelator.options import AS_JSON, ENGINE, PATH
from revelator.terminal import mask_controls

PACKAGES = "revelator", "data_gen"  # that prepare a set
AnyConfig = SetConfig | ReadingConfig | WorldConfig | ComposeConfig | CollectConfig | TeachConfig | CompoundConfig
KINDS: dict[str, type[AnyConfig]] = {  # by `rows`; a set has none
    "reading": ReadingConfig,
    "world": WorldConfig,
    "composed": ComposeConfig,
    "collected": CollectConfig,
    "taught": TeachConfig,
    "compound": CompoundConfig,
}


@click.command()
@click.argument("config", type=PATH)
@click.option("--out", required=True, type=PATH, help="Folder of what is built; replaces what was built there.")
@click.option("--size", type=int, help="Questions to write, in place of the `size` in CONFIG.")
@click.option("--seed", type=int, help="In place of the `seed` in CONFIG.")
@ENGINE
@click.option("--allow-single", is_flag=True, help="Build also a set whose plans all have one shape.")
@AS_JSON
def build(
    config: Path,
    out: Path,
    size: int | None,
    seed: int | None,
    engine: str,
    allow_single: bool,
    as_json: bool,
) -> None:
    """Build what CONFIG describes: an instruction set, or what its `rows` says.

    An instruction set (no `rows`) is built from annotated questions: CONFIG names sources, splits and bounds. Malformed
    rows are listed and counted; a broken file stops the build and leaves OUT as it was. So does a set whose plans all
    have one shape, because a model that learns it writes no other (--allow-single builds it). After a kill, the same
    command resumes the build. The engine changes how long a build takes, never the set: `local` is one process, `ray`
    the cluster that RAY_ADDRESS names, one that was started on this machine, or one made for the build, with all of its
    CPUs. Where a language model teaches, the cluster prepares the set of what was annotated; this process asks, since
    that is waiting for an endpoint, within one budget.

    `rows: reading`: rows of the sources that a reader learns from.

    `rows: world`: a synthetic world of documents, triples, and questions with gold plans. No two splits share an
    entity. The same file gives the same bytes.

    `rows: composed`: questions with several hops, and their plans, composed of published single ones. The noun phrase
    for one question's answer takes the place of a name in the next: such questions are mostly nonsense, and teach where
    a question divides. OUT is a source of format `world`, for `translate_bnf`.

    `rows: collected`: questions that a server answered and people judged, of the traces that it sent to MLflow. On the
    page of `revelator inspect`, or on MLflow's page Traces, a person gives feedback (yes or no), an expectation named
    `plan` with the plan as it should have been, or says which documents are relevant. CONFIG may have rules for
    personal data. OUT is as above.

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
      revelator data build data_gen/configs/worlds/mixed.yaml --size 4000 --seed 7 --out runs/world
      REVELATOR_WORLD=runs/world revelator data build data_gen/configs/world.yaml --out runs/sets/world
      revelator data build large.yaml --out runs/sets/large --engine ray
      RAY_ADDRESS=10.0.0.1:6379 revelator data build large.yaml --out runs/sets/large --engine ray
      REVELATOR_DATA=~/data revelator data build real.yaml --out sets/real --json
      revelator data build data_gen/configs/reading/squad.yaml --out runs/reading
      revelator data build data_gen/configs/compose/single-step.yaml --out runs/composed
      revelator data build data_gen/configs/collect/judged.yaml --out runs/collected
      OPENAI_API_KEY=… revelator data build data_gen/configs/teacher/teach.yaml --out runs/taught
      revelator data build data_gen/configs/teacher/compound.yaml --out runs/compound
    """
    if find_spec("pyarrow") is None:  # which rows are written with, after minutes of work
        raise ModuleNotFoundError(name="pyarrow")
    value = read_yaml(config)
    kind, changes = _find_kind(value, config), {"size": size, "seed": seed}
    if isinstance(value, dict):
        value |= {name: number for name, number in changes.items() if number is not None}
    settings = check_config(value, kind, str(config))
    if not isinstance(settings, SetConfig | TeachConfig | CompoundConfig) and engine != "local":
        raise click.UsageError(f"--engine ray is for instruction sets; the `rows` of {config} are another kind")
    if not isinstance(settings, SetConfig) and allow_single:
        raise click.UsageError(f"--allow-single is for instruction sets; {config} has `rows`")
    match settings:
        case SetConfig():
            _build_set(settings, out, engine, allow_single, as_json)
        case ReadingConfig():
            _build_reading(settings, out, as_json)
        case WorldConfig():
            _make_world(settings, out, as_json)
        case ComposeConfig():
            _compose(settings, out, as_json)
        case CollectConfig():
            _collect(settings, out, as_json)
        case _:
            _teach(settings, out, engine, as_json)


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
    with open_engine(engine, *PACKAGES) as opened, explain_write_errors(out), show_progress() as show:
        manifest = build_set(config, out, show, engine=opened, allow_single=allow_single)
    _show_set(manifest, as_json)
    if not as_json:
        click.echo(f"{out}: data card README.md, manifest.json. Look inside: revelator data inspect {out}")


def _build_reading(config: ReadingConfig, out: Path, as_json: bool) -> None:
    with explain_write_errors(out):
        made = build_reading(config, out)
    lines = [f"{name}: {list_counts(counts)}" for name, counts in made["counts"].items()]
    click.echo(json.dumps(made) if as_json else "\n".join(lines))


def _make_world(config: WorldConfig, out: Path, as_json: bool) -> None:
    with explain_write_errors(out), show_progress() as show:
        manifest = generate(
            config.size,
            config.seed,
            out,
            held_back={split: n for split, n in (("dev", config.dev), ("test", config.test)) if n is not None},
            routes=config.routes,
            operators=config.operators,
            progress=lambda made: show("questions", advance=made, total=config.size),
        )
    if config.blend:
        with explain_write_errors(Path(config.blend)):
            manifest["blend"] = divide(out, Path(config.blend))
    if as_json:
        click.echo(json.dumps(manifest, indent=2, ensure_ascii=False))
        return
    counts = manifest["counts"]
    click.echo(
        f"{out}: {config.size:,} questions, {manifest['passages']:,} passages, {len(counts['shape'])} plan shapes"
    )
    for what in ("split", "route"):
        click.echo(f"  {what}: " + ", ".join(f"{name} {number:,}" for name, number in counts[what].items()))
    if config.blend:
        pairs = manifest["blend"]["questions"]
        click.echo(f"{config.blend}: " + ", ".join(f"{pair} {n:,}" for pair, n in pairs.items()))


def _compose(config: ComposeConfig, out: Path, as_json: bool) -> None:
    with explain_write_errors(out), show_progress() as show:
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


def _collect(config: CollectConfig, out: Path, as_json: bool) -> None:
    with explain_write_errors(out):
        manifest = collect(config, out)
    if as_json:
        click.echo(json.dumps(manifest, ensure_ascii=False))
        return
    click.echo(f"{out}: {manifest['questions']:,} questions")
    for version, count in manifest["versions"].items():
        click.echo(mask_controls(f"  planned by {version or 'an unknown version'}: {count:,}"))
    for reader, count in manifest["readers"].items():
        click.echo(mask_controls(f"  read by {reader}: {count:,}"))
    for reason, count in manifest["left_out"].items():
        click.echo(mask_controls(f"  left out: {reason}: {count:,}"))


def _teach(config: TeachConfig | CompoundConfig, out: Path, engine: str, as_json: bool) -> None:
    from data_gen.teacher.compound import write_compound
    from data_gen.teacher.teach import count_questions, teach

    sizes = dict(config.sizes) if isinstance(config, CompoundConfig) else dict[str, int]()
    with open_engine(engine, *PACKAGES) as opened, show_progress() as show:
        try:
            if isinstance(config, CompoundConfig):
                total = sum(sizes.values())
                manifest, work = write_compound(
                    config, out, lambda work: show("questions", work.kept, total=total, note=str(work)), opened
                )
            else:
                number = count_questions(config)
                manifest, work = teach(
                    config, out, lambda work: show("questions", work.asked, total=number, note=str(work)), opened
                )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the answers so far are kept, and the same command goes on") from None
    _show_dropped(work.dropped)
    if work.stopped:
        click.echo("The budget is spent: the set is what was done. A larger one goes on from here.", err=True)
    _show_set(manifest, as_json)
    if not as_json:
        click.echo(f"{out / 'set'}: the set. {out / 'questions.jsonl'}: its questions, a source of format `world`.")
    made = {split: sum(counts.values()) for split, counts in manifest["questions"].items()}
    if short := [f"{made[split]} of {size} in {split}" for split, size in sizes.items() if made[split] < size]:
        click.echo(f"fewer than asked for: {', '.join(short)}. Give more titles, or see why above.", err=True)


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
