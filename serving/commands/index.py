"""`revelator index`: build, search and describe a BM25 index."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from serving.retrieval import BM25Index, IndexSettings, build_index, read_manifest

FOLDER = click.Path(path_type=Path)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON for machines.")


@click.group()
def index() -> None:
    """Build and search a BM25 index of passages.

    A corpus is a file of JSON lines, gzipped or not: {"id": …, "title": …, "text": …}; the id may be left out.

    \b
    Examples:
      revelator index build passages.jsonl --out runs/indexes/mine
      revelator index build wiki.jsonl.gz --detokenize --out runs/indexes/wiki
      revelator index search runs/indexes/wiki "Who directed UHF?" -k 3
      revelator index info runs/indexes/wiki --verify
    """


@index.command()
@click.argument("corpora", metavar="CORPUS...", nargs=-1, required=True, type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder of the index; one that stands there is replaced.")
@click.option("--detokenize", is_flag=True, help="Set punctuation that stands apart: `Eek ! ( 1992 )` → `Eek! (1992)`.")
@click.option("--title-weight", default=2, show_default=True, type=click.IntRange(0, 10), help="Times a title counts.")
@click.option("--k1", default=1.2, show_default=True, type=click.FloatRange(0), help="BM25: saturation of repeats.")
@click.option("--b", default=0.75, show_default=True, type=click.FloatRange(0, 1), help="BM25: weight of the length.")
@AS_JSON
def build(
    corpora: tuple[Path, ...], out: Path, detokenize: bool, title_weight: int, k1: float, b: float, as_json: bool
) -> None:
    """Index the passages of one or more corpora.

    \b
    Example:
      revelator index build wiki.jsonl.gz --detokenize --out runs/indexes/wiki
    """
    settings = IndexSettings(k1=k1, b=b, title_weight=title_weight, detokenize=detokenize)
    started = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        manifest = build_index(corpora, out, settings, progress=progress)
    if as_json:
        click.echo(json.dumps({"out": str(out), **manifest}, ensure_ascii=False))
    else:
        seconds = time.perf_counter() - started
        click.echo(f"{manifest['count']:,} passages, {manifest['terms']:,} terms in {seconds:.1f} s: {out}")
        click.echo(f'next: revelator index search {out} "…"')


@index.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("query")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="How many passages.")
@AS_JSON
def search(folder: Path, query: str, k: int, as_json: bool) -> None:
    """Print the best passages for QUERY.

    \b
    Example:
      revelator index search runs/indexes/wiki "Who directed UHF?" -k 3
    """
    found = BM25Index.open(folder).search(query, k)
    if as_json:
        click.echo(json.dumps([asdict(passage) for passage in found], ensure_ascii=False))
        return
    if not found:
        click.echo("no passage shares a word with the query")
    for passage in found:
        text = passage.text if len(passage.text) <= 160 else passage.text[:159].rstrip() + "…"
        click.echo(f"{passage.score:7.2f}  {passage.title}  ({passage.id})\n         {text}")


@index.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--verify", is_flag=True, help="Compare every file with its digest.")
@AS_JSON
def info(folder: Path, verify: bool, as_json: bool) -> None:
    """Say what an index holds and how it was built.

    \b
    Example:
      revelator index info runs/indexes/wiki --verify
    """
    manifest = read_manifest(folder, verify=verify)
    if as_json:
        click.echo(json.dumps(manifest, ensure_ascii=False))
        return
    click.echo(
        f"{manifest['count']:,} passages, {manifest['terms']:,} terms, {sum(manifest['sizes'].values()):,} bytes"
    )
    click.echo("settings: " + ", ".join(f"{name} {value}" for name, value in manifest["settings"].items()))
    for corpus in manifest["corpora"]:
        click.echo(f"corpus: {corpus['name']}  sha256 {corpus['sha256']}")
    if verify:
        click.echo("every file is as it was built")
