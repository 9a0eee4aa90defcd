"""MetaQA (Zhang et al. 2018): questions of one and two hops planned as trees and answered from the graph.

    python -m evaluation.metaqa --data DIR        DIR holds kb.tsv.gz, 1-hop_dev.jsonl.gz, 2-hop_dev.jsonl.gz

The rules that plan (`metaqa.plans`) were written on one half of the questions, drawn by the hash of the question; the
figures are of the other half. The halves share wordings, so the figures say nothing of wordings never seen. Held-out
questions are dropped. A 1-hop question is *answerable* when each of its answers stands beside the topic in the graph.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from data_gen.leakage import load_held_out, question_hash
from evaluation.facts import processor
from evaluation.measures.bootstrap import bootstrap
from evaluation.measures.metrics import list_score
from evaluation.metaqa.plans import plan, topic_of
from revelator.errors import DataError
from revelator.trace import Trace
from serving.executor.trees import answer_by_tree
from serving.generators import EmbeddedGenerator
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore, build_graph
from serving.knowledge.sources import Sources

FILE = click.Path(path_type=Path)
HOPS = (1, 2)


@dataclass(frozen=True)
class Asked:
    """One question, how its answer was scored, and what it took; `ms` from the question's text to the answer."""

    hops: int
    answerable: bool
    planned: bool
    f1: float
    ms: float
    generator_calls: int
    retrievals: int


@click.command()
@click.option("--data", required=True, type=FILE, help="Folder with kb.tsv.gz and the two dev files.")
@click.option("--held-out", type=FILE, help="Hashes of questions to drop (default: held_out.sha256 beside --data).")
@click.option(
    "--graph",
    "folder",
    default=Path("runs/graphs/metaqa"),
    show_default=True,
    type=FILE,
    help="Graph folder; loaded when absent.",
)
@click.option("--limit", type=click.IntRange(1), help="At most so many questions a hop.")
@click.option("--half", default="report", show_default=True, type=click.Choice(["report", "develop"]))
@click.option("--json", "as_json", is_flag=True, help="Write the figures as JSON.")
def main(data: Path, held_out: Path | None, folder: Path, limit: int | None, half: str, as_json: bool) -> None:
    """Answer MetaQA's dev questions from its graph.

    \b
    Example:
      python -m evaluation.metaqa --data ../shared/data/metaqa
    """
    held = load_held_out(held_out or data.parent / "held_out.sha256")
    if not (folder / "manifest.json").exists():
        build_graph([data / "kb.tsv.gz"], folder)
    rows, dropped = [], 0
    for hops in HOPS:
        some, out = read_questions(data / f"{hops}-hop_dev.jsonl.gz", held, half, limit)
        rows += [(hops, row) for row in some]
        dropped += out
    asked = asyncio.run(answer_all(rows, folder, neighbours(data / "kb.tsv.gz")))
    figures = {"half": half, "held out, dropped": dropped, **report(asked)}
    click.echo(json.dumps(figures, indent=2) if as_json else shown(figures))


def read_questions(
    path: Path, held_out: dict[str, str], half: str, limit: int | None = None
) -> tuple[list[dict[str, Any]], int]:
    """The rows of one half, and how many rows of the whole file were dropped as held out."""
    rows, dropped = [], 0
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                digest = question_hash(row["question"])
                if digest in held_out:
                    dropped += 1
                elif (int(digest[:8], 16) % 2 == 0) == (half == "develop"):
                    rows.append(row)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise DataError(f"not MetaQA's questions: {error!r}", where=str(path)) from error
    return rows[:limit], dropped


def neighbours(path: Path) -> dict[str, set[str]]:
    """What stands one step from each node, either way: decides which questions are answerable, never how."""
    beside: dict[str, set[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            head, _, tail = line.rstrip("\n").split("\t")
            beside.setdefault(head, set()).add(tail)
            beside.setdefault(tail, set()).add(head)
    return beside


async def answer_all(
    rows: Sequence[tuple[int, dict[str, Any]]], folder: Path, beside: dict[str, set[str]]
) -> list[Asked]:
    """One question after the other, as one user would ask them."""
    sources = Sources([GraphSource(GraphStore(folder))])
    try:
        return [await _one(hops, row, sources, beside) for hops, row in rows]
    finally:
        await sources.close()


async def _one(hops: int, row: dict[str, Any], sources: Sources, beside: dict[str, set[str]]) -> Asked:
    started = time.perf_counter()
    trace = await answer(row["question"], sources)
    ms = (time.perf_counter() - started) * 1000
    near = beside.get(topic_of(row["question"]) or "", set())
    return Asked(
        hops,
        answerable=hops > 1 or set(row["answers"]) <= near,
        planned=trace.plan is not None,
        f1=list_score(trace.answers, row["answers"]).f1,
        ms=ms,
        generator_calls=trace.usage.generator_calls,
        retrievals=trace.usage.retrievals,
    )


async def answer(question: str, sources: Sources) -> Trace:
    """Plan and run; a question that no rule plans has an empty trace."""
    tree = plan(question)
    return await answer_by_tree(tree, sources, EmbeddedGenerator()) if tree else Trace(question, "atomic")


def report(asked: Sequence[Asked]) -> dict[str, Any]:
    """Set-F1 (over SQuAD-normalised values) with its 95 % interval, times, and cost, by hops."""
    groups = {f"{hops}-hop, all": [a for a in asked if a.hops == hops] for hops in HOPS}
    groups["1-hop, answerable"] = [a for a in asked if a.hops == 1 and a.answerable]
    return {name: _figures(group) for name, group in sorted(groups.items()) if group}


def _figures(asked: Sequence[Asked]) -> dict[str, Any]:
    f1, ms = bootstrap([a.f1 for a in asked]), [a.ms for a in asked]
    return {
        "n": len(asked),
        "planned": sum(a.planned for a in asked),
        "set_f1": round(f1.mean, 4),
        "set_f1_95": [round(f1.low, 4), round(f1.high, 4)],
        "p50_ms": round(float(np.percentile(ms, 50)), 2),
        "p99_ms": round(float(np.percentile(ms, 99)), 2),
        "generator_calls": round(float(np.mean([a.generator_calls for a in asked])), 3),
        "retrievals": round(float(np.mean([a.retrievals for a in asked])), 3),
    }


def shown(figures: dict[str, Any]) -> str:
    """A table for people (and for docs/knowledge.md)."""
    head = ["questions", "n", "planned", "set-F1 [95 %]", "p50 ms", "p99 ms", "generator calls", "retrievals"]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(cells) for cells in _rows(figures)]
    table = "\n".join(f"| {line} |" for line in lines)
    dropped = f"{figures['held out, dropped']} held-out questions dropped"
    return f"{table}\n\nhalf: {figures['half']}; {dropped}; {processor()}"


def _rows(figures: dict[str, Any]) -> Iterator[list[str]]:
    for name, f in figures.items():
        if isinstance(f, dict):
            f1 = f"{f['set_f1']:.3f} [{f['set_f1_95'][0]:.3f}, {f['set_f1_95'][1]:.3f}]"
            counts = [f"{f['n']:,}", f"{f['planned']:,}"]
            yield [name, *counts, f1, *(f"{f[key]:g}" for key in ("p50_ms", "p99_ms", "generator_calls", "retrievals"))]
