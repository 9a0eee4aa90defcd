"""Writes a world: passages, triples and questions of three splits that share no entity and no name.

A split is made in parts of at most `PART` questions, each a graph of its own, so that memory stays bounded.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from data_gen.leakage import digest_text
from data_gen.questions import QUESTIONS, check_place
from data_gen.world.documents import Document, View, write_document
from data_gen.world.graph import Graph
from data_gen.world.populate import populate
from data_gen.world.questions import ROUTES, DrawnQuestion, Questions
from revelator.errors import ConfigError, DataError
from revelator.files import sha256_folder, staged_folder, write_json

FORMAT = 1
SMALLEST = 20
PART = 8000  # questions of one graph
ENTITIES = 0.5  # of a graph for each question
SPLITS = (("train", 0.8), ("dev", 0.1), ("test", 0.1))
PATIENCE = 400  # draws in a row that lead nowhere before the world is called too small


@dataclass
class _Totals:
    """Names and questions used so far, and counts."""

    taken: set[str] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    passages: int = 0


def generate(
    size: int,
    seed: int,
    out: Path,
    *,
    held_back: Mapping[str, int] | None = None,
    routes: Sequence[str] = tuple(ROUTES),
    operators: bool = False,
    force: bool = False,
    progress: Callable[[int], None] = lambda n: None,
) -> dict[str, Any]:
    """Makes a world of `size` questions at `out` and returns its manifest; `progress` is called with 1 after
    each question, and with 0 before the first.

    `held_back` says how many of them are in the splits dev and test (a tenth each if it does not), `routes` which
    kinds there are; with `operators` there are complex questions alone, and their trees have each operator. The same
    arguments give the same bytes. Raises ConfigError for a size below 20, splits that leave nothing for train, and a
    folder that is no world.
    """
    if size < SMALLEST:
        raise ConfigError(
            f"a world has at least {SMALLEST} questions, not {size}", where="--size", hint="ask for more questions"
        )
    check_place(out, force)
    amounts = list(split_parts(size, held_back or {}))
    with staged_folder(out) as folder:
        progress(0)  # what can be refused at once has been
        totals = _Totals()
        with (
            (folder / "passages.jsonl").open("w", encoding="utf-8") as passages,
            (folder / "triples.tsv").open("w", encoding="utf-8") as triples,
            (folder / QUESTIONS).open("w", encoding="utf-8") as questions,
        ):
            wanted = ("complex",) if operators else routes
            for split, part, amount in amounts:
                files = passages, triples, questions
                _write_part(totals, split, part, amount, seed, wanted, operators, files, progress)
        manifest = _make_manifest(totals, size, seed, folder)
        write_json(folder / "manifest.json", manifest)
    return manifest


def split_parts(size: int, held_back: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """(split, number of the part, questions in it): 80/10/10, at least two each, where nothing else is said."""
    held_out = {split: held_back.get(split, max(2, round(size * share))) for split, share in SPLITS[1:]}
    amounts = {"train": size - sum(held_out.values()), **held_out}
    if amounts["train"] < 1:
        left = "dev and test must leave questions for train"
        raise ConfigError(f"{left}: {sum(held_out.values())} of {size}", where="--size", hint="ask for more in all")
    for split, amount in amounts.items():
        for part, start in enumerate(range(0, amount, PART)):
            yield split, part, min(PART, amount - start)


def _write_part(
    totals: _Totals,
    split: str,
    part: int,
    amount: int,
    seed: int,
    wanted: Sequence[str],
    operators: bool,
    files: tuple[IO[str], IO[str], IO[str]],
    progress: Callable[[int], None],
) -> None:
    rng = random.Random(f"{seed}/{split}/{part}")
    graph = populate(round(amount * ENTITIES), rng, totals.taken)
    documents = [write_document(graph, entity, rng) for entity in graph.entities]
    prefix = f"{split}-{part}"
    passages, triples, lines = files
    for document in documents:
        kind = graph.entities[document.entity].type
        row = {"id": f"{prefix}-{document.entity}", "title": document.title, "text": document.text, "type": kind}
        passages.write(json.dumps(row, ensure_ascii=False) + "\n")
    triples.writelines(_list_triples(graph, documents))
    totals.passages += len(documents)
    questions = Questions(View(graph, documents), rng, split, prefix, operators)
    for number, route in enumerate(_draw_routes(amount, wanted, rng)):
        made = _draw(totals, questions, route, f"world-{split}-{part}-{number}")
        lines.write(json.dumps(made.row.to_json(), ensure_ascii=False) + "\n")
        totals.counts["split", split] += 1
        totals.counts["route", route] += 1
        if route == "complex":
            totals.counts["shape", made.shape] += 1
            totals.counts["operation", made.row.operation.split(" ")[0]] += 1
        progress(1)


def _draw_routes(amount: int, wanted: Sequence[str], rng: random.Random) -> list[str]:
    """The routes of a part's questions, those wanted in the shares of `ROUTES`, shuffled."""
    shares = {route: share for route, share in ROUTES.items() if route in wanted}
    total = sum(shares.values())
    routes = [route for route, share in shares.items() for _ in range(round(amount * share / total))]
    routes = (routes + [list(shares)[-1]] * amount)[:amount]
    rng.shuffle(routes)
    return routes


def _draw(totals: _Totals, questions: Questions, route: str, id: str) -> DrawnQuestion:
    for _ in range(PATIENCE):
        made = questions.draw(route, id)
        if made is None:
            continue
        key = digest_text(" ".join(made.row.question.lower().split()).rstrip("?."))
        if key not in totals.asked:
            totals.asked.add(key)
            return made
    raise DataError(
        f"no new {route} question after {PATIENCE} draws",
        where=id,
        hint="this is a fault of the generator: please report it",
    )


def _list_triples(graph: Graph, documents: list[Document]) -> Iterator[str]:
    """Lists the facts that a passage states, as tab-separated lines: head, relation, tail. A relation with a second
    argument is written `relation[second]`."""
    for fact in graph.all_facts():
        if fact.relation in documents[fact.head].stated:
            second = f"[{graph.entities[fact.second].title}]" if fact.second is not None else ""
            yield f"{graph.entities[fact.head].title}\t{fact.relation}{second}\t{graph.text(fact.tail)}\n"


def _make_manifest(totals: _Totals, size: int, seed: int, folder: Path) -> dict[str, Any]:
    counts: dict[str, dict[str, int]] = {"split": {}, "route": {}, "shape": {}, "operation": {}}
    for (what, name), number in sorted(totals.counts.items()):
        counts[what][name] = number
    return {
        "kind": "world",
        "format": FORMAT,
        "seed": seed,
        "size": size,
        "licence": "Apache-2.0",
        "passages": totals.passages,
        "counts": counts,
        "files": sha256_folder(folder),
    }
