"""Graphs as `revelator index` handles them: built from triples, described, and searched with the atomic operators."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

import click
from pyoxigraph import NamedNode

from revelator.errors import ConfigError
from revelator.plans.operators import Call, Relate, Search
from revelator.terminal import mask_controls
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GRAPH, GraphStore, build_graph
from serving.knowledge.operators import SourceResult, build_query
from serving.knowledge.sparql import RDFS_LABEL, GraphVocabulary
from serving.retrieval.places import IndexAddress


def is_graph(place: IndexAddress) -> TypeGuard[Path]:
    return isinstance(place, Path) and bool(GRAPH.find_manifest(place))


def build(files: Sequence[Path], out: IndexAddress, label: str | None, language: str, as_json: bool) -> None:
    """Builds a graph into the folder `out`, and says what it holds. Raises ConfigError for another kind of place."""
    if not isinstance(out, Path):
        raise ConfigError("a graph stands in a folder", where=f"--out {out}", hint="name a folder")
    try:
        vocabulary = GraphVocabulary(label=NamedNode(label) if label else RDFS_LABEL, language=language)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--label") from error
    started = time.perf_counter()
    manifest = build_graph(files, out, vocabulary=vocabulary)
    if as_json:
        click.echo(json.dumps({"out": str(out), **manifest}, ensure_ascii=False))
        return
    seconds = time.perf_counter() - started
    click.echo(f"{manifest['triples']:,} triples, {manifest['labels']:,} labels in {seconds:.1f} s: {out}")
    click.echo(f'next: revelator index search {out} "…"')


def describe(folder: Path, as_json: bool) -> None:
    manifest = GRAPH.read_manifest(folder, verify=True)
    if as_json:
        click.echo(json.dumps(manifest, ensure_ascii=False))
        return
    click.echo(f"{manifest['triples']:,} triples, {manifest['labels']:,} labels")
    click.echo(mask_controls("relations: " + ", ".join(manifest["relations"])))
    for file in manifest["inputs"]:
        click.echo(f"input: {file['name']}  sha256 {file['sha256']}")
    click.echo("every file is as it was built")


def search(folder: Path, name: str, relation: str, as_json: bool) -> None:
    """Prints the entities that `name` stands for, or what they lead to along `relation`, read from either end; if
    `relation` is an entity as well, what relates the two."""
    call: Call = Relate(name, relation) if relation else Search(name)
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


async def _find(folder: Path, call: Call) -> SourceResult:
    source = GraphSource(GraphStore(folder))
    try:
        return await source.find(build_query(call), 3)
    finally:
        await source.close()
