"""`revelator index`: build and describe an index of passages; `search` and `calibrate` stand beside."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from revelator.terminal import printable
from serving.commands.index_calibrate import calibrate
from serving.commands.index_search import AS_JSON, FOLDER, choice, search
from serving.retrieval import IndexSettings, build_index, read_manifest
from serving.retrieval.index_folder import Faiss, Fusion, Kind


@click.group()
def index() -> None:
    """Build, search and calibrate an index of passages: BM25, vectors, or both.

    A corpus is JSON lines, {"id": …, "title": …, "text": …}, a TSV with a header of these columns, either gzipped or
    not, or parquet; the id may be left out.

    \b
    Examples:
      revelator index build passages.jsonl --out runs/indexes/mine
      revelator index build wiki.jsonl.gz --detokenize --out runs/indexes/wiki
      revelator index build papers.parquet --kind hybrid --model minilm --out runs/indexes/papers
      revelator index search runs/indexes/wiki "Who directed UHF?" -k 3
      revelator index search runs/indexes/papers --logic '"gene therapy" AND NOT "mice"'
      revelator index calibrate runs/indexes/papers labels.jsonl --out fitted.json
      revelator index info runs/indexes/wiki --verify
    """


index.add_command(search)
index.add_command(calibrate)


@index.command()
@click.argument("corpora", metavar="CORPUS...", nargs=-1, required=True, type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="Folder of the index; one that stands there is replaced.")
@click.option("--kind", default="bm25", show_default=True, type=choice(Kind), help="Scores the index holds.")
@click.option("--model", default="", help="sentence-transformers model: `minilm`, a folder or a Hub id.")
@click.option(
    "--max-tokens", default=0, type=click.IntRange(0), help="Tokens of a passage read.  [default: the model's]"
)
@click.option("--faiss", default="flat", show_default=True, type=choice(Faiss), help="How near vectors are found.")
@click.option("--fusion", default="rrf", show_default=True, type=choice(Fusion), help="How hybrid joins both.")
@click.option("--detokenize", is_flag=True, help="Set punctuation that stands apart: `Eek ! ( 1992 )` → `Eek! (1992)`.")
@click.option("--title-weight", default=2, show_default=True, type=click.IntRange(0, 10), help="Times a title counts.")
@click.option("--k1", default=1.2, show_default=True, type=click.FloatRange(0), help="BM25: saturation of repeats.")
@click.option("--b", default=0.75, show_default=True, type=click.FloatRange(0, 1), help="BM25: weight of the length.")
@AS_JSON
def build(corpora: tuple[Path, ...], out: Path, as_json: bool, **settings: Any) -> None:
    """Index the passages of one or more corpora.

    The corpus may be larger than memory, except with --faiss hnsw, which holds all vectors while it is made. A build
    that was killed goes on where it was when it is started again.

    \b
    Examples:
      revelator index build wiki.jsonl.gz --detokenize --out runs/indexes/wiki
      revelator index build a.tsv b.parquet --kind dense --model minilm --faiss hnsw --out runs/indexes/ab
      revelator index build notes.jsonl --kind hybrid --model BAAI/bge-base-en-v1.5 --fusion convex --out runs/indexes/n
    """
    started = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        manifest = build_index(corpora, out, IndexSettings(**settings), progress=progress)
    if as_json:
        click.echo(json.dumps({"out": str(out), **manifest}, ensure_ascii=False))
    else:
        seconds = time.perf_counter() - started
        click.echo(f"{_contents(manifest)} in {seconds:.1f} s: {out}")
        click.echo(f'next: revelator index search {out} "…"')


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
    click.echo(f"{_contents(manifest)}, {sum(manifest['sizes'].values()):,} bytes, version {manifest['version']}")
    click.echo("settings: " + ", ".join(f"{name} {value}" for name, value in manifest["settings"].items()))
    for corpus in manifest["corpora"]:
        click.echo(printable(f"corpus: {corpus['name']}  sha256 {corpus['sha256']}"))
    if verify:
        click.echo("every file is as it was built")


def _contents(manifest: dict[str, Any]) -> str:
    parts = [f"{manifest['count']:,} passages"]
    if "terms" in manifest:
        parts.append(f"{manifest['terms']:,} terms")
    if "model" in manifest:
        model = manifest["model"]
        parts.append(f"vectors of {model['dimensions']} from {model['name']} ({manifest['faiss']['kind']})")
    return ", ".join(parts)
