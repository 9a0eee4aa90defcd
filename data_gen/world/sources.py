"""Sources of knowledge that a world is divided among, by type of thing: who holds what, and in which words they say so.

A question for training gets sources of its own, drawn by its id: how many, their names and kinds, which types of things
each holds, and the words for that. A model that learns who to ask thus cannot go by names.

`blend` divides a whole world among three sources, and finds the questions that two of them answer only together. Each
document goes to the source of its type: to a text corpus, to a corpus that a web search finds, or, as triples, to a
graph. A question of two steps whose documents lie in different sources needs both: the answer of the first step is the
bridge to the second. BlendQA (Xin et al. 2024, section 4.1.2) merges two sub-questions of two sources in this way; here
the plan of a world's question already has the two.

OUT/text.jsonl, OUT/web.jsonl   documents: id, title, text
OUT/triples.tsv                 head, relation, tail
OUT/questions.jsonl             question, answer, type (the pair of sources), plan; the format `blendqa`
OUT/sources.yaml                the sources, with what each holds, for OUT/indexes/text, OUT/graph, and a web search
OUT/manifest.json               counts and digests; written last
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import yaml

from data_gen.questions import QUESTIONS, AnnotatedQuestion, AnnotatedSource, check_place
from data_gen.world.documents import join_items
from data_gen.world.names import load_vocabulary
from revelator.errors import DataError
from revelator.files import sha256_folder, staged_folder, write_json

KINDS: list[Literal["graph", "text", "web"]] = ["graph", "text", "web"]
Division = Sequence[tuple[AnnotatedSource, frozenset[str]]]  # sources, and the types of things that each holds
KIND = "blend"
DRAWS = 50
SEARCH = "http://127.0.0.1:8899/search"  # where examples/blend.sh serves the web's documents
PER_PAIR = 150  # questions of a pair of sources; BlendQA has 132 to 163


def list_types() -> list[str]:
    """The types of things in a world."""
    return list(load_vocabulary()["holdings"])


def divide(rng: random.Random, types: Sequence[str], count: int) -> list[list[str]]:
    """Some types in `count` parts of like size."""
    shuffled = rng.sample(types, len(types))
    return [shuffled[place::count] for place in range(count)]


def divide_by_chance(id: str, asked: Sequence[str]) -> Division:
    """Two to four sources for one question, which hold among them the types that it asks about and some others."""
    rng, words = random.Random(f"sources:{id}"), load_vocabulary()
    needed = list(dict.fromkeys(asked))
    others = [name for name in list_types() if name not in needed]
    count = rng.randint(2, 4)
    types = needed + rng.sample(others, rng.randint(min(count, len(others)), len(others)))
    names = rng.sample(words["source names"], count)
    return [
        (_describe(rng, name, words, held), frozenset(held))
        for name, held in zip(names, divide(rng, types, count), strict=True)
    ]


def _describe(rng: random.Random, name: str, words: dict[str, Any], held: Sequence[str]) -> AnnotatedSource:
    """Half of the sources that hold one type say it by their names alone."""
    if len(held) == 1 and rng.random() < 0.5:
        return AnnotatedSource(words["holdings"][held[0]][0], rng.choice(KINDS))
    things = join_items([rng.choice(words["holdings"][one][:-1]) for one in held])
    return AnnotatedSource(name, rng.choice(KINDS), rng.choice(words["source frames"]).format(things=things))


def describe_in_new_words(types: Sequence[str]) -> str:
    """What a source holds, in words that no question for training has."""
    return join_items([load_vocabulary()["holdings"][name][-1] for name in types])


def find_holders(division: Division, types: Collection[str]) -> tuple[str, ...]:
    """The names of the sources that hold one of these types."""
    return tuple(source.name for source, held in division if not held.isdisjoint(types))


def blend(world: Path, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Divides the world in the folder `world` and writes OUT; returns its manifest.

    Of `DRAWS` divisions of the types it takes the one with the most questions for the pair of sources that has fewest.
    Raises DataError where a pair has none.
    """
    check_place(out, force, KIND)
    passages = list(_read_rows(world / "passages.jsonl"))
    types = {row["title"]: row["type"] for row in passages}
    triples = [line.split("\t") for line in (world / "triples.tsv").read_text(encoding="utf-8").splitlines()]
    facts: dict[str, set[str]] = defaultdict(set)  # what the graph says of each thing, where it has the thing
    for head, _, tail in triples:
        facts[head].add(tail)
    questions = [AnnotatedQuestion.from_json(row) for row in _read_rows(world / QUESTIONS)]
    chains = [(q, types[q.steps[0].title], types[q.steps[1].title]) for q in questions if _has_two_steps(q)]
    drawn = [_divide(number) for number in range(DRAWS)]
    places = max(drawn, key=lambda places: _count_fewest(places, chains))
    asked: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for question, *both in chains:
        pair = "-".join(sorted({places[one] for one in both}))
        if len(asked[pair]) < PER_PAIR and "-" in pair and _is_in_graph(question, both, places, facts):
            asked[pair].append(_describe_question(question, pair))
    pairs = {pair: rows for pair, rows in sorted(asked.items()) if rows}
    if len(pairs) < len(KINDS):
        raise DataError(f"only {len(pairs)} of 3 pairs of sources have a question", hint="make a larger world (--size)")
    with staged_folder(out) as folder:
        for source in ("text", "web"):
            _write_rows(folder / f"{source}.jsonl", [row for row in passages if places[row["type"]] == source])
        lines = ["\t".join(triple) for triple in triples if places[types[triple[0]]] == "graph"]
        (folder / "triples.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        _write_rows(folder / QUESTIONS, [row for rows in pairs.values() for row in rows])
        (folder / "sources.yaml").write_text(_list_sources(places), encoding="utf-8")
        manifest = {
            "kind": KIND,
            "documents": dict(Counter(places[row["type"]] for row in passages)),
            "questions": {pair: len(rows) for pair, rows in pairs.items()},
            "files": sha256_folder(folder),
        }
        write_json(folder / "manifest.json", manifest)
    return manifest


def _divide(number: int) -> dict[str, str]:
    """The source of each type of thing, in the division of this number."""
    parts = divide(random.Random(f"blend:{number}"), list_types(), len(KINDS))
    return {name: source for source, part in zip(KINDS, parts, strict=True) for name in part}


def _has_two_steps(question: AnnotatedQuestion) -> bool:
    """Whether a question has two steps in a row, and nothing after them."""
    return question.route == "complex" and len(question.steps) == 2 and question.operation in ("", "none")


def _count_fewest(places: dict[str, str], chains: Sequence[tuple[AnnotatedQuestion, str, str]]) -> int:
    pairs = Counter(frozenset((places[one], places[other])) for _, one, other in chains)
    return min(pairs[frozenset(pair)] for pair in combinations(KINDS, 2))


def _is_in_graph(
    question: AnnotatedQuestion, types: Sequence[str], places: dict[str, str], facts: dict[str, set[str]]
) -> bool:
    """Whether the graph has the triples of the steps that are about its things: long documents leave some facts out."""
    steps = zip(question.steps, types, strict=True)
    return all(facts[step.title].issuperset(step.answers) for step, one in steps if places[one] == "graph")


def _list_sources(places: dict[str, str]) -> str:
    """The file of sources; what they hold is said in words that no question for training has."""
    held: dict[str, list[str]] = {
        source: [name for name, place in places.items() if place == source] for source in KINDS
    }
    where: dict[str, dict[str, str]] = {
        "text": {"index": "indexes/text"},
        "graph": {"folder": "graph"},
        "web": {"api": "searxng", "url": SEARCH},
    }
    sources = [
        {"kind": kind, "name": kind, **where[kind], "about": describe_in_new_words(held[kind])} for kind in where
    ]
    return yaml.safe_dump({"sources": sources}, sort_keys=False, allow_unicode=True)


def _describe_question(question: AnnotatedQuestion, pair: str) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.question,
        "answer": list(question.answers),
        "type": pair,
        "plan": question.expression,
        "split": question.split,
    }


def _read_rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
