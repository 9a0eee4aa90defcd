"""`revelator graph`: load a knowledge graph, describe it, and ask it with the atomic operators."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import click
from pyoxigraph import NamedNode

from revelator.options import AS_JSON, PATH
from revelator.plans.operators import Call, Relate, Search
from revelator.terminal import mask_controls
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GRAPH, GraphStore, build_graph
from serving.knowledge.operators import SourceResult, build_query
from serving.knowledge.sparql import RDFS_LABEL, GraphVocabulary

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@click.option("--out", required=True, type=PATH, help="Folder of the graph; one that stands there is replaced.")
@click.option("--label", default=RDFS_LABEL.value, show_default=True, help="IRI of the predicate that names nodes.")
@click.option(
    "--language", default="", help="Language of the labels that count, such as en; labels without one always do."
)
@AS_JSON
def load(files: tuple[Path, ...], out: Path, label: str, language: str, as_json: bool) -> None:
    """Load N-Triples or TSV (head, relation, tail) into a graph folder.

    \b
    Examples:
      revelator graph load kb.tsv.gz --out runs/graphs/films
      revelator graph load dump.nt.gz --language en --out runs/graphs/dump
    """
    try:
        vocabulary = GraphVocabulary(label=NamedNode(label), language=language)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--label") from error
    started = time.perf_counter()
    manifest = build_graph(files, out, vocabulary=vocabulary)
    if as_json:
        click.echo(json.dumps({"out": str(out), **manifest}, ensure_ascii=False))
        return
    seconds = time.perf_counter() - started
    click.echo(f"{manifest['triples']:,} triples, {manifest['labels']:,} labels in {seconds:.1f} s: {out}")
    click.echo(f'next: revelator graph info {out} "…"')


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.argument("name", required=False)
@click.argument("relation", required=False)
@AS_JSON
def info(folder: Path, name: str | None, relation: str | None, as_json: bool) -> None:
    """Show what a graph holds and which relations it knows, and compare every file with its digest.

    With NAME, show the entities that NAME stands for, or what they lead to along RELATION, read from either end.
    RELATION may also be a second entity: then show what relates the two. The exit status is then 1 if nothing is found.

    \b
    Examples:
      revelator graph info runs/graphs/films
      revelator graph info runs/graphs/films "Mercury"
      revelator graph info runs/graphs/films "UHF" "directed by"
      revelator graph info runs/graphs/films "UHF" "Jay Levey"
    """
    if name is None:
        _show_manifest(folder, as_json)
    else:
        _show_answers(folder, Relate(name, relation) if relation else Search(name), as_json)


def _show_manifest(folder: Path, as_json: bool) -> None:
    manifest = GRAPH.read_manifest(folder, verify=True)
    if as_json:
        click.echo(json.dumps(manifest, ensure_ascii=False))
        return
    click.echo(f"{manifest['triples']:,} triples, {manifest['labels']:,} labels")
    click.echo(mask_controls("relations: " + ", ".join(manifest["relations"])))
    for file in manifest["inputs"]:
        click.echo(f"input: {file['name']}  sha256 {file['sha256']}")
    click.echo("every file is as it was built")


def _show_answers(folder: Path, call: Call, as_json: bool) -> None:
    found = asyncio.run(_find(folder, call))
    if as_json:
        ids = {text: list(iris) for text, iris in found.ids.items()}
        result: dict[str, Any] = {"answers": list(found.answers), "ids": ids, "note": found.note}
        result |= {"decided": found.decided, "truncated": found.truncated}
        click.echo(json.dumps(result, ensure_ascii=False))
    else:
        none = f"{'none' if found.decided else 'no answer'}: {found.note}"
        click.echo(mask_controls("\n".join(found.answers) or none))
    if found.truncated:
        click.echo(f"cut off: {found.note}", err=True)
    if not found.answers:
        raise SystemExit(1)


async def _find(folder: Path, call: Call) -> SourceResult:
    source = GraphSource(GraphStore(folder))
    try:
        return await source.find(build_query(call), 3)
    finally:
        await source.close()
