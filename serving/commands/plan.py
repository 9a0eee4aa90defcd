"""`revelator plan run`: a tree of atomic operators, or a plan, over knowledge sources in this process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import click
from rich.console import Console

from revelator.errors import DataError, PlanError
from revelator.plans import bnf, checking
from revelator.plans.art import Art, parse
from revelator.trace import Trace

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("path", metavar="FILE", type=FILE)
@click.option("--sources", required=True, type=FILE, help="YAML file that names the sources.")
@click.option("--question", metavar="TEXT", help="FILE holds a plan that answers this question, not a tree.")
@click.option("--generator", metavar="URL", help="OpenAI-compatible endpoint (default: the embedded reader).")
@click.option("--generator-model", "model", metavar="NAME", default="", help="Its model.")
@click.option("--documents", default=3, show_default=True, type=click.IntRange(0), help="Titles to show for a node.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON for machines.")
def run(
    path: Path, sources: Path, question: str | None, generator: str | None, model: str, documents: int, as_json: bool
) -> None:
    """Run a tree or a plan in this process, and see each node, its sources and the answer.

    A tree is a file of JSON (`revelator plan grammar --language art`); with --question the file holds a plan of the
    language bnf, whose steps become the nodes of a tree. `-` is standard input. docs/plans.md has the sources file.

    \b
    Exit status: 0 answered, 1 not.

    \b
    Examples:
      revelator plan run tree.json --sources sources.yaml
      echo "Who directed UHF? * Where was {director} born?" |
        revelator plan run - --question "Where was UHF's director born?" --sources sources.yaml
      OPENAI_API_KEY=… revelator plan run tree.json --sources sources.yaml --generator http://127.0.0.1:8000/v1
    """
    from revelator.trace_view import print_trace

    tree = _tree_of_plan(question, _read(path)) if question else parse(_read(path))
    trace = asyncio.run(_answer(tree, sources, generator, model))
    if as_json:
        click.echo(json.dumps(trace.to_json(), ensure_ascii=False))
    else:
        print_trace(trace, Console(), documents=documents)
    sys.exit(0 if trace.answers else 1)


def _read(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise DataError(f"the plan cannot be read: {error.strerror}", where=str(path)) from error
    return data.decode(errors="replace")


def _tree_of_plan(question: str, text: str) -> Art:
    from serving.executor.trees import derive_tree

    plan = bnf.parse(text.strip())
    if faults := checking.check(plan):
        raise PlanError(f"the plan cannot be run: {faults[0].message}", hint=faults[0].hint)
    return derive_tree(question, plan)


async def _answer(tree: Art, path: Path, url: str | None, model: str) -> Trace:
    from serving.executor.trees import run_tree_alone
    from serving.knowledge.config import open_sources
    from serving.models.embedded import EmbeddedGenerator
    from serving.models.generators import EndpointGenerator

    sources = open_sources(path)
    generator = EndpointGenerator(url, model) if url else EmbeddedGenerator()
    try:
        return await run_tree_alone(tree, sources, generator)
    finally:
        await sources.close()
        if isinstance(generator, EndpointGenerator):
            await generator.close()
