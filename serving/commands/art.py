"""`revelator plan run`: check a tree of atomic operators, and run one over knowledge sources."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from revelator.errors import DataError
from revelator.plans.art import Art, parse, schema_text, to_tree
from revelator.plans.art import check as faults_of
from revelator.terminal import printable
from revelator.trace import Trace

FILE = click.Path(path_type=Path, dir_okay=False)
TREE = click.argument("tree", metavar="FILE", type=FILE)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON for machines.")


@click.group()
def art() -> None:
    """Trees of atomic operators: Search, Relate, Filter and [DR] over text, graph and web.

    A tree is a file of JSON; `-` is standard input. docs/knowledge.md has the form and the sources file.

    \b
    Examples:
      revelator plan tree check tree.json
      revelator plan run tree.json --sources sources.yaml
      revelator plan tree schema
    """


@art.command()
@TREE
@AS_JSON
def check(tree: Path, as_json: bool) -> None:
    """Show a tree with its numbers, and say whether it can be run.

    \b
    Exit status: 0 it can, 1 it cannot, 2 wrong usage.

    \b
    Example:
      revelator plan tree check tree.json
    """
    found = _read(tree)
    faults = faults_of(found)
    if as_json:
        click.echo(json.dumps({"valid": not faults, "faults": [asdict(fault) for fault in faults]}, ensure_ascii=False))
    else:
        click.echo(printable(to_tree(found)))
        for fault in faults:
            click.echo(printable(f"{fault.code}: {fault.place}: {fault.message}\n  hint: {fault.hint}"))
    sys.exit(1 if faults else 0)


@art.command()
@TREE
@click.option("--sources", required=True, type=FILE, help="YAML file that names the sources.")
@click.option("--generator", metavar="URL", help="OpenAI-compatible endpoint (default: the embedded reader).")
@click.option("--generator-model", metavar="NAME", default="", help="Its model.")
@click.option("--documents", default=3, show_default=True, type=click.IntRange(0), help="Titles to show for a node.")
@AS_JSON
def run(tree: Path, sources: Path, generator: str | None, generator_model: str, documents: int, as_json: bool) -> None:
    """Run a tree in this process, and see each node, its sources and the answer.

    \b
    Exit status: 0 answered, 1 not.

    \b
    Examples:
      revelator plan run tree.json --sources sources.yaml
      OPENAI_API_KEY=… revelator plan run tree.json --sources sources.yaml --generator http://127.0.0.1:8000/v1
    """
    from revelator.trace_view import show

    trace = asyncio.run(_run(_read(tree), sources, generator, generator_model))
    if as_json:
        click.echo(json.dumps(trace.to_json(), ensure_ascii=False))
    else:
        show(trace, Console(), documents=documents)
    sys.exit(0 if trace.answers else 1)


@art.command()
def schema() -> None:
    """Print the JSON schema of a tree.

    \b
    Example:
      revelator plan tree schema > art.schema.json
    """
    click.echo(schema_text(), nl=False)


def _read(path: Path) -> Art:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise DataError(f"the tree cannot be read: {error.strerror}", where=str(path)) from error
    return parse(data.decode(errors="replace"))


async def _run(tree: Art, path: Path, url: str | None, model: str) -> Trace:
    from serving.executor.trees import answer_by_tree
    from serving.generators import EmbeddedGenerator, EndpointGenerator
    from serving.knowledge.config import open_sources

    sources = open_sources(path)
    generator = EndpointGenerator(url, model) if url else EmbeddedGenerator()
    try:
        return await answer_by_tree(tree, sources, generator)
    finally:
        await sources.close()
        if isinstance(generator, EndpointGenerator):
            await generator.close()
