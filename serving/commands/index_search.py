"""`revelator index search`: plain and logical search of an index."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from revelator.plans import logic as language
from revelator.terminal import printable
from revelator.trace import Passage
from serving.retrieval import Index
from serving.retrieval.calibration import read_calibrations
from serving.retrieval.index_folder import Fusion
from serving.retrieval.logic import Conjunction, Disjunction, Negation, Operators
from serving.retrieval.logical_search import LogicalSettings, Ranking, Source, rank_logical

FOLDER = click.Path(path_type=Path)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON for machines.")
RERANKED = 50  # passages that a cross-encoder reads
SHOWN = 160  # characters of a text
LOGICAL = ("source", "conjunction", "disjunction", "negation", "calibrate", "calibration", "plain", "exact")
PLAIN = ("fusion",)


def choice(literal: Any) -> click.Choice:
    return click.Choice(get_args(literal))


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("query")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="How many passages.")
@click.option("--fusion", type=choice(Fusion), help="How a hybrid index joins both.  [default: as built]")
@click.option("--logic", is_flag=True, help='QUERY is logical: "a" AND ("b" OR NOT "c").')
@click.option("--source", type=choice(Source), help="--logic: scores of terms.  [default: dense if the index has it]")
@click.option("--and", "conjunction", default="product", show_default=True, type=choice(Conjunction), help="--logic")
@click.option("--or", "disjunction", default="sum", show_default=True, type=choice(Disjunction), help="--logic")
@click.option("--not", "negation", default="complement", show_default=True, type=choice(Negation), help="--logic")
@click.option("--calibrate", is_flag=True, help="--logic: scores to probabilities, by each term's own best passages.")
@click.option(
    "--calibration", type=click.Path(path_type=Path), help="--logic: the same by a file of `revelator index calibrate`."
)
@click.option(
    "--plain", default=0.0, show_default=True, type=click.FloatRange(0), help="--logic: weight of the plain cosine."
)
@click.option(
    "--exact/--candidates", default=None, help="--logic: score all passages or candidates.  [default: by memory]"
)
@click.option("--reranker", help="Cross-encoder that reads the best passages again: a folder or a Hub id.")
@AS_JSON
@click.pass_context
def search(
    context: click.Context,
    folder: Path,
    query: str,
    k: int,
    fusion: Fusion | None,
    logic: bool,
    reranker: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Print the best passages for QUERY.

    With --logic, standard error says whether every passage was scored or candidates, and what is odd about the query;
    --json then writes an object of `exact`, `scored`, `warnings` and `passages`, else the list of passages.

    \b
    Examples:
      revelator index search runs/indexes/wiki "Who directed UHF?" -k 3
      revelator index search runs/indexes/papers "gene therapy" --fusion convex --reranker models/cross
      revelator index search runs/indexes/papers --logic '"gene therapy" AND NOT ("mice" OR "rats")' --calibrate
      revelator index search runs/indexes/papers --logic '"gene therapy" AND NOT "mice"' --calibration fitted.json
    """
    _refuse_unused(context, logic)
    settings = _logical(**how) if logic else None
    opened = Index.open(folder)
    if fusion and opened.settings.kind != "hybrid":
        raise click.UsageError(f"--fusion: counts for a hybrid index alone, and this one is {opened.settings.kind}")
    depth = max(k, RERANKED) if reranker else k
    if settings is None:
        passages, head = opened.search(query, depth, fusion=fusion), None
    else:
        parsed = language.parse(query)
        found = rank_logical(opened, parsed, depth, settings)
        passages, head = opened.passages_at(found.scores, found.places), _head(found, parsed)
    if reranker:
        from serving.retrieval.encoder import Reranker

        passages = Reranker(reranker).rerank(query, passages, k)
    _print(passages, head, len(opened), as_json)


def _refuse_unused(context: click.Context, logic: bool) -> None:
    """An option that would not count is refused, not dropped."""
    given = [p for p in context.command.params if context.get_parameter_source(p.name or "") != ParameterSource.DEFAULT]
    unused = ["/".join(p.opts + p.secondary_opts) for p in given if p.name in (PLAIN if logic else LOGICAL)]
    if unused:
        raise click.UsageError(f"{', '.join(unused)}: counts {'without' if logic else 'with'} --logic alone")


def _logical(
    conjunction: Any, disjunction: Any, negation: Any, calibrate: bool, calibration: Path | None, **more: Any
) -> LogicalSettings:
    if calibrate and calibration:
        raise click.UsageError("--calibrate labels by itself, --calibration takes labels that were given: choose one")
    operators = Operators(conjunction, disjunction, negation)
    if calibration:
        return LogicalSettings(operators, calibration=read_calibrations(calibration), **more)
    return LogicalSettings(operators, calibration="self" if calibrate else "none", **more)


def _head(found: Ranking, query: language.Query) -> dict[str, Any]:
    """What a logical search says beside its passages."""
    warnings = [{"code": d.code, "message": d.message, "hint": d.hint} for d in language.check(query)]
    return {"exact": found.exact, "scored": found.scored, "warnings": warnings}


def _print(passages: list[Passage], head: dict[str, Any] | None, count: int, as_json: bool) -> None:
    if head is not None:
        for warning in head["warnings"]:
            click.echo(f"{warning['code']}: {warning['message']}\n  hint: {warning['hint']}", err=True)
        scored = "exact: all" if head["exact"] else f"candidates: {head['scored']:,} of"
        click.echo(f"{scored} {count:,} passages scored", err=True)
    if as_json:
        rows = [asdict(passage) for passage in passages]
        click.echo(json.dumps(rows if head is None else head | {"passages": rows}, ensure_ascii=False))
        return
    if not passages:
        click.echo("no passage shares a word with the query" if head is None else "no passage matches the query")
    for passage in passages:
        text = _line(passage.text)
        text = text if len(text) <= SHOWN else text[: SHOWN - 1].rstrip() + "…"
        click.echo(f"{passage.score:7.2f}  {_line(passage.title)}  ({_line(passage.id)})\n         {text}")


def _line(text: str) -> str:
    """A text of a corpus on one line of a terminal."""
    return printable(" ".join(text.split()))
