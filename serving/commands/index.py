"""`revelator index`: build, update, describe, search and calibrate an index of passages, or of triples: a graph."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from revelator.cluster import open_engine
from revelator.errors import ConfigError
from revelator.options import AS_JSON, ENGINE, PATH
from revelator.plans import logic as language
from revelator.terminal import mask_controls
from revelator.trace import Passage
from serving.commands import graph
from serving.commands.model_options import INDEX_ADDRESS
from serving.protocols import OWNER, PUBLIC, Scope
from serving.retrieval import IndexSettings, build_index, update_index
from serving.retrieval.documents import OVERLAP, SIZE
from serving.retrieval.fields import ALLOWED
from serving.retrieval.index_folder import Kind
from serving.retrieval.logical_search import (
    LogicalSettings,
    ScoreCalibration,
    Source,
    fit_calibrations,
    read_labels,
    read_logical_options,
    search_logical,
    write_calibrations,
)
from serving.retrieval.parts import has_changed, is_gone
from serving.retrieval.places import IndexAddress, open_index, read_index_manifest

OUT_HELP = (
    "Folder of the index, where one that stands is replaced; or a collection of Milvus, milvus://HOST:19530/NAME or"
    " milvus:FILE.db/NAME."
)
GRAPH = "graph"  # the kind of an index that holds triples in place of passages
LISTED = 10  # files of a kind: those that were left out, or added


def make_choice(literal: Any) -> click.Choice:
    return click.Choice(get_args(literal))


@click.command()
@click.argument("files", nargs=-1, required=True, type=PATH)
@click.option("--out", "--to", required=True, type=INDEX_ADDRESS, help=OUT_HELP)
@click.option(
    "--kind",
    default="bm25",
    show_default=True,
    type=click.Choice((*get_args(Kind), GRAPH)),
    help="Scores the index holds; graph: FILES are triples.",
)
@click.option("--model", default="", help="sentence-transformers model: `minilm`, a folder or a Hub id.")
@click.option("--embeddings", default="", metavar="URL", help="OpenAI-compatible endpoint that serves --model.")
@click.option("--query-prefix", default="", help="What the model wants before a query.  [default: its own setting]")
@click.option("--document-prefix", default="", help="What it wants before a passage.  [default: its own setting]")
@click.option(
    "--max-tokens", default=0, type=click.IntRange(0), help="Tokens of a passage read.  [default: the model's]"
)
@click.option(
    "--faiss",
    default="",
    metavar="FACTORY",
    help="Approximate index of the vectors, as FAISS names it.  [default: Flat, which compares with all, below 100,000"
    " passages; then HNSW32; from 2,000,000 on IVF…,PQ…]",
)
@click.option(
    "--chunk", default=SIZE, show_default=True, type=click.IntRange(16), help="Tokens of a document's passage."
)
@click.option("--overlap", default=OVERLAP, show_default=True, type=click.IntRange(0), help="Of them, shared tokens.")
@click.option("--label", metavar="IRI", help="graph: the predicate that names nodes.  [default: rdfs:label]")
@click.option("--language", default="", help="graph: of the labels that count, such as en; those without one do.")
@ENGINE
@AS_JSON
def build(
    files: tuple[Path, ...],
    out: IndexAddress,
    kind: str,
    label: str | None,
    language: str,
    engine: str,
    as_json: bool,
    **settings: Any,
) -> None:
    """Index files, and all files of folders, as passages.

    Documents (Markdown, text, HTML, PDF, DOCX, XLSX, PPTX, e-mails, reStructuredText, AsciiDoc, notebooks) are cut into
    passages at headings, paragraphs and rows of tables. Files of rows hold passages: JSON lines, {"id": …, "title": …,
    "text": …}, CSV or TSV with a header of these columns, gzipped or not, or parquet; the id may be left out. CSV and
    TSV with other columns are read as tables of a document are.

    A document that cannot be read is left out and named. The corpus may be larger than memory. A build that was killed
    goes on where it was when it is started again; one over an index that stands reads and embeds only files that have
    changed since.

    With --engine ray, the nodes of a Ray cluster read and cut the documents, count terms and make the vectors, in the
    same blocks as one process: the index is the same. This process reads the files of rows, and writes the blocks and,
    last, the index. Documents, and a model that is a folder, must lie at the same paths on all nodes. When a node is
    lost, its blocks are made again; when the command is killed, the same one goes on, on any engine.

    With --kind graph, FILES are N-Triples, or TSV with head, relation and tail, gzipped or not, and the index is a
    graph.

    \b
    Examples:
      revelator index build handbook/ minutes.pdf --out runs/indexes/mine
      revelator index build wiki.jsonl.gz --out runs/indexes/wiki
      revelator index build a.tsv b.parquet --kind dense --model minilm --out runs/indexes/ab
      revelator index build big.parquet --kind hybrid --model minilm --faiss IVF4096,PQ48 --out runs/indexes/big
      revelator index build notes.jsonl --kind hybrid --model BAAI/bge-base-en-v1.5 --out runs/indexes/n
      revelator index build notes/ --kind hybrid --embeddings http://127.0.0.1:8000/v1 --model NAME --out runs/n
      revelator index build notes/ --kind hybrid --model minilm --to milvus://127.0.0.1:19530/notes
      RAY_ADDRESS=10.0.0.1:6379 revelator index build big.parquet --kind dense --model minilm --out runs/b --engine ray
      revelator index build kb.tsv.gz --kind graph --out runs/graphs/films
      revelator index build dump.nt.gz --kind graph --language en --out runs/graphs/dump
    """
    if kind == GRAPH:
        _refuse_changed(settings, IndexSettings(), "a graph has no passages")
        if engine != "local":
            raise ConfigError("a graph is built in one process", where="--engine", hint="leave it out")
        graph.build(files, out, label, language, as_json)
        return
    if label or language:
        where = "--label" if label else "--language"
        raise ConfigError("passages have no labels", where=where, hint="leave it out, or add --kind graph")
    chosen = IndexSettings(kind=cast(Kind, kind), **settings)
    try:
        with open_engine(engine, "revelator", "serving") as opened:
            _make(out, as_json, lambda progress: build_index(files, out, chosen, progress=progress, engine=opened))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("finished blocks are kept, and the same command goes on") from None


def _refuse_changed(given: dict[str, Any], defaults: object, reason: str) -> None:
    """Raises ConfigError for the first option that is not at its default."""
    for name, value in given.items():
        if value != getattr(defaults, name):
            raise ConfigError(reason, where=f"--{name.replace('_', '-')}", hint="leave it out")


@click.command()
@click.argument("place", metavar="DIR", type=INDEX_ADDRESS)
@click.argument("files", nargs=-1, type=PATH)
@click.option("--remove", multiple=True, metavar="NAME", help="Remove this file, or all of this folder; repeatable.")
@click.option("--sync", is_flag=True, help="Remove files that are gone from the folders that are named.")
@AS_JSON
def update(place: IndexAddress, files: tuple[Path, ...], remove: tuple[str, ...], sync: bool, as_json: bool) -> None:
    """Add files and folders to the index DIR, read those anew that have changed, and remove others.

    It says which files were added, have changed, were removed and are gone from where they were; with --json they are
    lists of these names. A file of a folder is known by its path from there: to have one read anew, name the folder
    that the index was built from. --remove takes that name (`revelator index info` lists them). The index is replaced
    in one step: a service that searches it takes the new version up with its next question, and ends the questions
    under way with the one before. If the command is killed, the index stays as it was.

    \b
    Examples:
      revelator index update runs/indexes/mine handbook/ minutes-2026.pdf
      revelator index update runs/indexes/mine handbook/ --sync
      revelator index update runs/indexes/mine --remove minutes-2024.pdf --remove drafts
    """
    if not (files or remove):
        raise click.UsageError("name FILES to add or to read anew, or --remove NAME")
    if graph.is_graph(place):
        hint = f"build it again: revelator index build FILES --kind graph --out {place}"
        raise ConfigError("a graph is not changed in place", where=str(place), hint=hint)
    before = read_index_manifest(place)
    _make(
        place,
        as_json,
        lambda progress: update_index(files, place, remove=remove, sync=sync, progress=progress),
        before,
    )


def _compare(before: dict[str, Any], manifest: dict[str, Any]) -> dict[str, list[str]]:
    """The names of the files that differ between two manifests of an index, and of those that are gone."""
    old, new = ({corpus["name"]: corpus["sha256"] for corpus in each["corpora"]} for each in (before, manifest))
    return {
        "added": [name for name in new if name not in old],
        "changed": [name for name in new if old.get(name, new[name]) != new[name]],
        "removed": [name for name in old if name not in new],
        "gone": [corpus["name"] for corpus in manifest["corpora"] if is_gone(corpus["path"])],
    }


def _list_files(changes: dict[str, list[str]]) -> None:
    for what, names in changes.items():
        for name in names[:LISTED]:
            click.echo(mask_controls(f"{what}: {name}"))
        if len(names) > LISTED:
            click.echo(f"{what}: {len(names) - LISTED} more; --json lists them")


def _list_notes(manifest: dict[str, Any], *, err: bool = False) -> None:
    """Says what of files could not be read."""
    for corpus in manifest["corpora"]:
        if "note" in corpus:
            click.echo(mask_controls(f"partly read: {corpus['name']}: {corpus['note']}"), err=err)


def _make(
    out: IndexAddress, as_json: bool, make: Callable[[Progress], dict[str, Any]], before: dict[str, Any] | None = None
) -> None:
    """Makes the index at `out`, and says what it holds now, and what differs from the manifest `before`."""
    started = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        manifest = make(progress)
    unread = manifest["unread"]
    for name, reason in list(unread.items())[:LISTED]:
        click.echo(mask_controls(f"left out: {name}: {reason}"), err=True)
    if len(unread) > LISTED:
        click.echo(f"left out: {len(unread) - LISTED} more; --json lists them", err=True)
    _list_notes(manifest, err=True)
    changes = _compare(before, manifest) if before else {}
    known = [corpus["name"] for corpus in (before or manifest)["corpora"]]
    twins = [(name, old) for name in changes.get("added", ()) for old in known if old.endswith(f"/{name}")]
    for name, old in sorted(twins)[:LISTED]:
        click.echo(mask_controls(f"note: {name} is new, and {old} stays as it was: are they the same file?"), err=True)
    if as_json:
        click.echo(json.dumps({"out": str(out), **manifest, **changes}, ensure_ascii=False))
        return
    _list_files(changes)
    if changes.get("gone"):
        click.echo("what is gone stays in the index until `index update DIR FOLDER --sync`, or `--remove NAME`")
    click.echo(f"{_describe_contents(manifest)} in {time.perf_counter() - started:.1f} s: {out}")
    if before and not any(changes[what] for what in ("added", "changed", "removed")):
        click.echo("nothing has changed: the index is as it was")
    elif manifest["version"] > 1:
        click.echo("a service that searches it goes on with this version from its next question")
    click.echo(f'next: revelator index search {out} "…"')


@click.command()
@click.argument("place", metavar="DIR", type=INDEX_ADDRESS)
@AS_JSON
def info(place: IndexAddress, as_json: bool) -> None:
    """Say what an index holds and how it was built, and compare every file with its digest: those of the index itself,
    and those that it was built from, as far as they are where they were. Of a graph, list its relations.

    \b
    Examples:
      revelator index info runs/indexes/wiki
      revelator index info runs/graphs/films
    """
    if graph.is_graph(place):
        graph.describe(place, as_json)
        return
    manifest = read_index_manifest(place, verify=True)
    corpora = manifest["corpora"]
    changes = {
        "changed": [corpus["name"] for corpus in corpora if has_changed(corpus["path"], corpus["sha256"])],
        "gone": [corpus["name"] for corpus in corpora if is_gone(corpus["path"])],
    }
    has_readers = manifest.get("fields", {}).pop(ALLOWED, 0)  # no filter may name it
    restricted = manifest["count"] - open_index(place).count_found(PUBLIC) if has_readers else 0
    if as_json:
        click.echo(json.dumps({**manifest, **changes, "restricted": restricted}, ensure_ascii=False))
        return
    size = [f"{sum(manifest['sizes'].values()):,} bytes"] if "sizes" in manifest else []
    click.echo(", ".join([_describe_contents(manifest), *size, f"version {manifest['version']}"]))
    click.echo("settings: " + ", ".join(f"{name} {value}" for name, value in manifest["settings"].items()))
    if fields := manifest.get("fields"):
        click.echo(mask_controls("fields: " + ", ".join(f"{name} ({count:,})" for name, count in fields.items())))
    if restricted:
        click.echo(f"not for everybody: {restricted:,} of {manifest['count']:,} passages")
    for corpus in corpora:
        click.echo(mask_controls(f"file: {corpus['name']}  {corpus['passages']:,} passages  sha256 {corpus['sha256']}"))
    for name, reason in manifest["unread"].items():
        click.echo(mask_controls(f"left out: {name}: {reason}"))
    _list_notes(manifest)
    _list_files(changes)
    differ = ", ".join(f"{len(names):,} {what}" for what, names in changes.items() if names)
    files = f"but the files that it was built from are not: {differ}" if differ else "and so are the files"
    click.echo(f"the index is as it was built, {files}")
    if differ:
        click.echo(f"next: revelator index update {place} FOLDER --sync")


def _describe_contents(manifest: dict[str, Any]) -> str:
    parts = [f"{manifest['count']:,} passages"]
    if "terms" in manifest:
        parts.append(f"{manifest['terms']:,} terms")
    if "model" in manifest:
        model = manifest["model"]
        parts.append(f"vectors of {model['dimensions']} from {model['name']}")
    if found := manifest.get("faiss"):
        parts.append(f"{found['factory']}, of the nearest ten {found['recall']:.1%} found")
        if "logical_recall" in found:  # an earlier build measured none
            parts.append(f"of the best ten for a logical query {found['logical_recall']:.1%}")
    return ", ".join(parts)


@click.command()
@click.argument("place", metavar="DIR", type=INDEX_ADDRESS)
@click.argument("query")
@click.argument("relation", default="")
@click.option("-k", type=click.IntRange(1), help="How many passages.  [default: 10]")
@click.option("--where", default="", metavar="FILTER", help='Fields of the documents: year >= 2024 and team = "ops".')
@click.option("--logic", is_flag=True, help='QUERY is logical: "a" AND ("b" OR NOT "c").')
@click.option(
    "--set",
    "how",
    multiple=True,
    metavar="NAME=VALUE",
    help="--logic: conjunction, disjunction, negation, source; calibration (none, self, a file of `index calibrate`).",
)
@AS_JSON
def search(
    place: IndexAddress,
    query: str,
    relation: str,
    k: int | None,
    where: str,
    logic: bool,
    how: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the best passages for QUERY, as they are read: title, place and text. Whoever may read the folder of the
    index sees all of them, whatever `allowed` says.

    Of a graph, print the entities that QUERY names, or what they lead to along RELATION, read from either end. If
    RELATION is an entity as well, print what relates the two.

    With --logic, standard error says what is odd about the query, and how many passages were scored if not all were;
    --json then writes an object of `warnings`, `scored`, `of` (all passages) and `passages`, else the list of passages.

    \b
    Examples:
      revelator index search runs/indexes/wiki "Who directed UHF?" -k 3
      revelator index search runs/indexes/mine "travel" --where 'year >= 2024 and not type = "pdf"'
      revelator index search runs/indexes/papers --logic '"gene therapy" AND NOT "mice"' --set calibration=self
      revelator index search runs/graphs/films "UHF" "directed by"
      revelator index search runs/graphs/films "UHF" "Jay Levey"
    """
    if graph.is_graph(place):
        if k or where or logic or how:
            raise click.UsageError("-k, --where, --logic and --set are for passages, and this is a graph")
        graph.search(place, query, relation, as_json)
        return
    if relation:
        raise click.UsageError(f"RELATION is for a graph, and {place} is none: put the query in quotes")
    if not logic and how:
        raise click.UsageError("--set counts with --logic alone")
    settings = read_logical_options(how, "--set") or LogicalSettings()
    opened, scope = open_index(place), Scope(where, OWNER.groups)
    opened.require_fields(scope)
    warnings, scored = None, None
    passages: Sequence[Passage]
    k = k or 10
    if not logic:
        [passages] = opened.search_many([query], k, scope)
    else:
        parsed = language.parse(query)
        passages = found = search_logical(opened, parsed, k, settings, scope)
        scored = found.scored
        if scored and scored[0] < scored[1]:
            click.echo(f"scored {scored[0]:,} of {scored[1]:,} passages: those that a term brings", err=True)
        warnings = [{"code": d.code, "message": d.message, "hint": d.hint} for d in language.check(parsed)]
    for word, near in getattr(passages, "respelled", {}).items():
        click.echo(mask_controls(f"no passage says {word}: read as {' or '.join(near)}"), err=True)
    _print(passages, warnings, scored, as_json)


def _print(
    passages: Sequence[Passage], warnings: list[dict[str, str]] | None, scored: tuple[int, int] | None, as_json: bool
) -> None:
    """`warnings` are those about a logical query, which `scored` so many passages of so many; None for words."""
    for warning in warnings or ():
        click.echo(f"{warning['code']}: {warning['message']}\n  hint: {warning['hint']}", err=True)
    if as_json:
        rows = [asdict(passage) for passage in passages]
        found: Any = rows
        if scored:
            found = {"warnings": warnings, "scored": scored[0], "of": scored[1], "passages": rows}
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    if not passages:
        click.echo("no passage shares a word with the query" if warnings is None else "no passage matches the query")
    for passage in passages:
        click.echo(f"{passage.score:7.4g}  {_fit_line(passage.title)}  ({_fit_line(passage.id)})")
        for line in passage.text.splitlines():
            click.echo(f"         {_fit_line(line)}")


def _fit_line(text: str) -> str:
    """A text of a corpus on one line of a terminal."""
    return mask_controls(" ".join(text.split()))


@click.command()
@click.argument("place", metavar="DIR", type=INDEX_ADDRESS)
@click.argument("labels", metavar="LABELS", type=PATH)
@click.option("--out", required=True, type=PATH, help="File of the calibrations.")
@click.option("--source", type=make_choice(Source), help="Scores to calibrate.  [default: dense if the index has it]")
@AS_JSON
def calibrate(place: IndexAddress, labels: Path, out: Path, source: Source | None, as_json: bool) -> None:
    """Fit how likely a passage is about a term, from its score and LABELS.

    A row of LABELS says whether a passage of the index is about a term: {"term": "gene therapy", "passage": "its id",
    "relevant": true}. A term with labels of both kinds gets a calibration of its own; one fitted on all labels
    stands for every other term.

    \b
    Example:
      revelator index calibrate runs/indexes/papers labels.jsonl --out fitted.json
      revelator index search runs/indexes/papers --logic '"gene therapy" AND NOT "mice"' --set calibration=fitted.json
    """
    rows = read_labels(labels)
    fitted = fit_calibrations(open_index(place), rows, source)
    described = write_calibrations(out, fitted)
    relevant = sum(row.relevant for row in rows)
    if as_json:
        counts = {"out": str(out), "labels": len(rows), "relevant": relevant}
        click.echo(json.dumps(counts | described, ensure_ascii=False))
        return
    for term, own in fitted.terms.items():
        click.echo(mask_controls(f"{_describe_calibration(own)}  {json.dumps(term, ensure_ascii=False)}"))
    click.echo(
        f"{_describe_calibration(fitted.general)}  every other term ({len(rows):,} labels, {relevant:,} relevant)"
    )
    click.echo(f"next: revelator index search {place} --logic '…' --set calibration={out}")


def _describe_calibration(calibration: ScoreCalibration) -> str:
    return f"threshold {calibration.threshold:.3f}  slope {calibration.slope:.1f}"
