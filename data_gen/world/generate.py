"""Writes a world: passages, triples and questions of three splits that share no entity and no name.

A split is made in parts of at most `PART` questions, each a graph of its own, so that memory stays bounded.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from data_gen.leakage import make_text_key
from data_gen.questions import QUESTIONS, AnnotatedQuestion
from data_gen.world.documents import Document, View, write_document
from data_gen.world.graph import WorldGraph
from data_gen.world.populate import populate
from data_gen.world.questions import ROUTES, Questions
from revelator.config import FilePath, Strict
from revelator.errors import ConfigError, DataError
from revelator.files import stage_folder
from revelator.folders import FolderKind

WORLD = FolderKind("a world", "revelator-world-1", "revelator data build CONFIG.yaml")
SMALLEST = 20
PART = 8000  # questions of one graph
ENTITIES = 0.5  # of a graph for each question
SPLITS = (("train", 0.8), ("dev", 0.1), ("test", 0.1))
PATIENCE = 400  # draws in a row that lead nowhere before the world is called too small


Kind = Literal["single", "compound", "complex"]


class WorldConfig(Strict):
    """A synthetic world: documents, triples, and questions with gold plans. With `operators` there are complex
    questions alone, and their trees have each operator. With `blend` each document also goes to one of three sources,
    text, web or graph, in that folder, and the questions of two steps that need two sources are written beside
    them."""

    rows: Literal["world"]
    size: int = 2_000  # questions, at least 20
    seed: int = 0
    dev: Annotated[int, Field(ge=0)] | None = None  # questions in the split dev: a tenth unless it is given
    test: Annotated[int, Field(ge=0)] | None = None  # as `dev`
    routes: Annotated[tuple[Kind, ...], Field(min_length=1)] = get_args(Kind)  # kinds of questions
    operators: bool = False
    blend: FilePath | None = None  # a second folder, of documents divided among sources


def generate(
    size: int,
    seed: int,
    out: Path,
    *,
    held_back: Mapping[str, int] | None = None,
    routes: Sequence[str] = tuple(ROUTES),
    operators: bool = False,
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
            f"a world has at least {SMALLEST} questions, not {size}", where="size", hint="ask for more questions"
        )
    WORLD.check_place(out)
    amounts = list(split_parts(size, held_back or {}))
    with stage_folder(out) as folder:
        progress(0)  # what can be refused at once has been
        with ExitStack() as files:
            writer = _Writer(folder, files, ("complex",) if operators else routes, operators)
            for split, part, amount in amounts:
                for _ in writer.write_part(split, part, amount, random.Random(f"{seed}/{split}/{part}")):
                    progress(1)
        about = {
            "seed": seed,
            "size": size,
            "licence": "Apache-2.0",
            "passages": writer.documents,
            "counts": {what: dict(sorted(counts.items())) for what, counts in writer.counts.items()},
        }
        return WORLD.write_manifest(folder, about)


def split_parts(size: int, held_back: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """(split, number of the part, questions in it): 80/10/10, at least two each, where nothing else is said."""
    held_out = {split: held_back.get(split, max(2, round(size * share))) for split, share in SPLITS[1:]}
    amounts = {"train": size - sum(held_out.values()), **held_out}
    if amounts["train"] < 1:
        left = "dev and test must leave questions for train"
        raise ConfigError(f"{left}: {sum(held_out.values())} of {size}", where="size", hint="ask for more in all")
    for split, amount in amounts.items():
        for part, start in enumerate(range(0, amount, PART)):
            yield split, part, min(PART, amount - start)


class _Writer:
    """Writes the parts of a world into the three files of `folder`, and counts. No part uses a name or a question that
    another one has."""

    def __init__(self, folder: Path, files: ExitStack, routes: Sequence[str], operators: bool) -> None:
        self.passages, self.triples, self.questions = (
            files.enter_context((folder / name).open("w", encoding="utf-8"))
            for name in ("passages.jsonl", "triples.tsv", QUESTIONS)
        )
        self.routes = routes
        self.operators = operators
        self.names: set[str] = set()
        self.asked: set[int] = set()
        self.documents = 0
        self.counts = {what: Counter[str]() for what in ("split", "route", "shape", "ending")}

    def write_part(self, split: str, part: int, amount: int, rng: random.Random) -> Iterator[None]:
        """Writes a part, and yields after each of its questions."""
        graph = populate(round(amount * ENTITIES), rng, self.names)
        documents = [write_document(graph, entity, rng) for entity in graph.entities]
        prefix = f"{split}-{part}"
        for document in documents:
            kind = graph.entities[document.entity].type
            said = {"id": f"{prefix}-{document.entity}", "title": document.title, "text": document.text, "type": kind}
            self.passages.write(json.dumps(said, ensure_ascii=False) + "\n")
        self.triples.writelines(_list_triples(graph, documents))
        self.documents += len(documents)
        questions = Questions(View(graph, documents), rng, split, prefix, self.operators)
        for number, route in enumerate(_draw_routes(amount, self.routes, rng)):
            row, shape = self._draw(questions, route, f"world-{prefix}-{number}")
            self.questions.write(json.dumps(row.to_json(), ensure_ascii=False) + "\n")
            self.counts["split"][split] += 1
            self.counts["route"][route] += 1
            if route == "complex":
                self.counts["shape"][shape] += 1
                self.counts["ending"][row.ending.split(" ")[0]] += 1
            yield

    def _draw(self, questions: Questions, route: str, id: str) -> tuple[AnnotatedQuestion, str]:
        for _ in range(PATIENCE):
            if made := questions.draw(route, id):
                key = make_text_key(" ".join(made[0].question.lower().split()).rstrip("?."))
                if key not in self.asked:
                    self.asked.add(key)
                    return made
        hint = "this is a fault of the generator: please report it"
        raise DataError(f"no new {route} question after {PATIENCE} draws", where=id, hint=hint)


def _draw_routes(amount: int, wanted: Sequence[str], rng: random.Random) -> list[str]:
    """The routes of a part's questions, those wanted in the shares of `ROUTES`, shuffled."""
    shares = {route: share for route, share in ROUTES.items() if route in wanted}
    total = sum(shares.values())
    routes = [route for route, share in shares.items() for _ in range(round(amount * share / total))]
    routes = (routes + [list(shares)[-1]] * amount)[:amount]
    rng.shuffle(routes)
    return routes


def _list_triples(graph: WorldGraph, documents: list[Document]) -> Iterator[str]:
    """Lists the facts that a passage states, as tab-separated lines: head, relation, tail. A relation with a second
    argument is written `relation[second]`."""
    for fact in graph.all_facts():
        if fact.relation in documents[fact.head].stated:
            second = f"[{graph.entities[fact.second].title}]" if fact.second is not None else ""
            yield f"{graph.entities[fact.head].title}\t{fact.relation}{second}\t{graph.text(fact.tail)}\n"
