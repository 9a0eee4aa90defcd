"""Sources of knowledge that a world is divided among, by type of thing: who holds what, and in which words they say so.

A question for training gets sources of its own, drawn by its id: how many, their names and kinds, which types of things
each holds, and the words for that. A model that learns who to ask thus cannot go by names.

`blend` divides a whole world among three sources, and finds the questions that no source answers alone. The document of
a thing goes to the source of its type, and by chance to one or both of the others: to a text corpus, to a corpus that a
web search finds, or, as triples, to a graph. A question of two steps that no source holds both of needs two: the answer
of the first step is the bridge to the second. BlendQA (Xin et al. 2024, section 4.1.2) merges two sub-questions of two
sources in this way; here the plan of a world's question already has the two.

OUT/text.jsonl, OUT/web.jsonl   documents: id, title, text
OUT/triples.tsv                 head, relation, tail
OUT/questions.jsonl             question, answer, sources of each step, type (all of them), plan; the format `blendqa`
OUT/sources.yaml                the sources, with what each holds, for OUT/indexes/text, OUT/graph, and a web search
OUT/manifest.json               counts and digests; written last
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import yaml

from data_gen.questions import QUESTIONS, AnnotatedQuestion, AnnotatedSource
from data_gen.world.documents import join_items
from data_gen.world.names import load_vocabulary
from revelator.errors import DataError
from revelator.files import stage_folder
from revelator.folders import FolderKind

SOURCE_KINDS: list[Literal["graph", "text", "web"]] = ["graph", "text", "web"]
PAIRS = ["-".join(pair) for pair in combinations(SOURCE_KINDS, 2)]
Division = Sequence[tuple[AnnotatedSource, frozenset[str]]]  # sources, and the types of things that each holds
Facts = Mapping[tuple[str, str], Collection[str]]  # titles of documents, by two things
BLEND = FolderKind("a blend", "revelator-blend-1", "revelator data build CONFIG.yaml")
DRAWS = 50
SEARCH = "http://127.0.0.1:8899/search"  # where examples/blend.sh serves the web's documents
COPIES = (0.7, 0.2, 0.1)  # shares of things that one, two and three sources hold
PER_TYPE = 150  # questions of a pair of sources, and of all three; BlendQA has 132 to 163 of a pair


def list_types() -> list[str]:
    """The types of things in a world."""
    return list(load_vocabulary()["holdings"])


def divide(rng: random.Random, types: Sequence[str], count: int) -> list[list[str]]:
    """All types, dealt out into `count` parts of like size."""
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
        return AnnotatedSource(words["holdings"][held[0]][0], rng.choice(SOURCE_KINDS))
    things = join_items([rng.choice(words["holdings"][one][:-1]) for one in held])
    return AnnotatedSource(name, rng.choice(SOURCE_KINDS), rng.choice(words["source frames"]).format(things=things))


def describe_in_new_words(types: Sequence[str]) -> str:
    """What a source holds, in words that no question for training has."""
    return join_items([load_vocabulary()["holdings"][name][-1] for name in types])


def find_holders(division: Division, types: Collection[str]) -> tuple[str, ...]:
    """The names of the sources that hold one of these types."""
    return tuple(source.name for source, held in division if not held.isdisjoint(types))


def blend(world: Path, out: Path) -> dict[str, Any]:
    """Divides the world in the folder `world` and writes OUT; returns its manifest.

    Of `DRAWS` divisions of the types it takes the one with the most questions for the pair of sources that has fewest.
    Raises DataError where a pair has none.
    """
    BLEND.check_place(out)
    passages = list(_read_rows(world / "passages.jsonl"))
    triples = [line.split("\t") for line in (world / "triples.tsv").read_text(encoding="utf-8").splitlines()]
    stated = _index_facts(triples)
    questions = [AnnotatedQuestion.from_json(row) for row in _read_rows(world / QUESTIONS)]
    chains = [question for question in questions if _has_two_steps(question)]
    types = {row["title"]: row["type"] for row in passages}
    drawn = (_Placement(number, types) for number in range(DRAWS))
    best, asked = max(
        ((one, one.choose_questions(chains, stated)) for one in drawn), key=lambda pair: _count_fewest(pair[1])
    )
    if not _count_fewest(asked):
        found = sum(pair in asked for pair in PAIRS)
        raise DataError(f"only {found} of 3 pairs of sources have a question", hint="make a larger world (`size`)")
    with stage_folder(out) as folder:
        for source in ("text", "web"):
            _write_rows(folder / f"{source}.jsonl", [row for row in passages if source in best.holders[row["title"]]])
        lines = ["\t".join(triple) for triple in triples if "graph" in best.holders[triple[0]]]
        (folder / "triples.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        _write_rows(folder / QUESTIONS, [row for _, rows in sorted(asked.items()) for row in rows[:PER_TYPE]])
        (folder / "sources.yaml").write_text(_render_sources_file(best.places), encoding="utf-8")
        about = {
            "documents": dict(Counter(source for row in passages for source in best.holders[row["title"]])),
            "sources of a document": dict(sorted(Counter(len(best.holders[row["title"]]) for row in passages).items())),
            "questions": {type: len(rows[:PER_TYPE]) for type, rows in sorted(asked.items())},
        }
        return BLEND.write_manifest(folder, about)


class _Placement:
    """Where things are placed in the draw of this number: `places`, the source of each type of thing, and `holders`,
    the sources that hold what is said of a thing, by its title."""

    def __init__(self, number: int, types: Mapping[str, str]) -> None:
        parts = divide(random.Random(f"blend:{number}"), list_types(), len(SOURCE_KINDS))
        self.places = {name: source for source, part in zip(SOURCE_KINDS, parts, strict=True) for name in part}
        self.holders = {title: self._draw_holders(title, self.places[type]) for title, type in types.items()}

    @staticmethod
    def _draw_holders(title: str, home: str) -> frozenset[str]:
        rng = random.Random(f"copies:{title}")
        [count] = rng.choices(range(len(SOURCE_KINDS)), COPIES)
        return frozenset([home, *rng.sample([source for source in SOURCE_KINDS if source != home], count)])

    def choose_questions(self, chains: Sequence[AnnotatedQuestion], stated: Facts) -> dict[str, list[dict[str, Any]]]:
        """The questions that no source answers alone, by the sources that hold their steps."""
        chosen = defaultdict(list)
        for question in chains:
            told = [[self._find_holders(stated[step.title, one]) for one in step.answers] for step in question.steps]
            first, second = (frozenset[str]().union(*of_answers) for of_answers in told)
            whole = [sorted(of_answers[0].intersection(*of_answers)) for of_answers in told]
            if all(whole) and not first & second:
                type = "-".join(sorted({*whole[0], *whole[1]}))
                chosen[type].append(_describe_question(question, type, whole))
        return chosen

    def _find_holders(self, titles: Collection[str]) -> frozenset[str]:
        return frozenset(source for title in titles for source in self.holders[title])


def _index_facts(triples: Sequence[Sequence[str]]) -> Facts:
    """The titles of the documents that state a fact, by the two things that it relates: "films directed" of a person
    and "director" of the film are the same fact, and so are the years of a wedding in the documents of both."""
    stated = defaultdict(set)
    for head, relation, tail in triples:
        for name in (head, relation.partition("[")[2].removesuffix("]")):
            stated[name, tail].add(head)
            stated[tail, name].add(head)
    return stated


def _has_two_steps(question: AnnotatedQuestion) -> bool:
    """Whether a question has two steps in a row, and nothing after them."""
    return question.route == "complex" and len(question.steps) == 2 and question.ending in ("", "none")


def _count_fewest(asked: Mapping[str, Sequence[object]]) -> int:
    """The questions of the pair of sources that has fewest."""
    return min(len(asked.get(pair, ())) for pair in PAIRS)


def _render_sources_file(places: Mapping[str, str]) -> str:
    """The file of sources; what they hold is said in words that no question for training has."""
    held: dict[str, list[str]] = {
        source: [name for name, place in places.items() if place == source] for source in SOURCE_KINDS
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


def _describe_question(question: AnnotatedQuestion, type: str, sources: list[list[str]]) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.question,
        "answer": list(question.answers),
        "sources": sources,
        "type": type,
        "plan": question.expression,
        "split": question.split,
    }


def _read_rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
