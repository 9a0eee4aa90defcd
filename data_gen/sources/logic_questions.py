"""Logical questions over the topics of a corpus: query, wording, and documents that match it or miss it by one term.

Queries and their words are those of `logic_wording`, about one to five topics. Every topic belongs to one split, by the
hash of its text, so that no question of dev or test names a topic of training. Half of the questions outside training
are worded as no training question is; their source is `logic-free`. The 32 templates of three terms (ITLR, section 3.1)
are what the benchmark of logical retrieval ranks by.

A document holds one sentence for each term that it is about, in any order, and none about the others: whether it
matches follows from how it was made (ITLR, appendix H).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from data_gen.config import SplitConfig
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from data_gen.records import hash_fraction
from data_gen.sources.logic_topics import LITTLE, Topic, read_topics
from data_gen.sources.logic_wording import list_wordings
from data_gen.sources.rows import ReadResult
from revelator.errors import DataError
from revelator.fingerprints import normalise
from revelator.plans.grammar import write_string
from revelator.plans.logic import Query, holds, list_terms, parse, render

LIMIT = 3  # matching combinations, and hard negatives, of a query
Truth = tuple[bool, ...]


@cache
def list_templates(size: int = 3) -> list[str]:
    """t1 op t2 op … with each op AND or OR and each term plain or negated, in a fixed order: of three terms 4 x 8."""
    found = []
    for joins in itertools.product(("AND", "OR"), repeat=size - 1):
        for signs in itertools.product(("", "NOT "), repeat=size):
            first, *rest = (f"{sign}{{{i}}}" for i, sign in enumerate(signs))
            found.append(" ".join([first, *(f"{op} {term}" for op, term in zip(joins, rest, strict=True))]))
    return found


def fill_template(template: str, texts: Sequence[str]) -> Query:
    """The query of a template for its terms."""
    return parse(template.format(*map(write_string, texts)))


def draw_combinations(query: Query, rng: random.Random) -> tuple[list[Truth], list[Truth]]:
    """Truth values of the terms, in order of first use: some that match, and hard negatives (ITLR, appendix H).

    A hard negative does not match and is one flipped term away from a combination that does. At most LIMIT of each.
    """
    names = list_terms(query)
    rows: list[Truth] = list(itertools.product((True, False), repeat=len(names)))
    matches = {row: holds(query, dict(zip(names, row, strict=True))) for row in rows}
    positives = [row for row in rows if matches[row]]
    near = [row for row in rows if not matches[row] and any(matches[other] for other in _flip_each(row))]
    return rng.sample(positives, min(LIMIT, len(positives))), rng.sample(near, min(LIMIT, len(near)))


def _flip_each(row: Truth) -> list[Truth]:
    return [(*row[:i], not row[i], *row[i + 1 :]) for i in range(len(row))]


TEACHER = "wordings"
SOURCE, FREE = "logic", "logic-free"
COMMON = 0.4  # chance that a topic is drawn from those that are no names
FEWEST = 24  # topics of a split
PATIENCE = 10_000  # draws of topics for one question
ROOM = 560  # characters of a document: what a relevance prompt shows of one


def make_logical_questions(
    topics: Sequence[Topic], size: int, seed: int, splits: SplitConfig, name: str
) -> Iterator[AnnotatedQuestion]:
    """`size` questions; the same arguments give the same ones. `name` tells corpora apart in their ids.

    Raises DataError when a split that is to have questions has fewer than FEWEST topics.
    """
    pools = _split_topics(topics, seed, splits)
    for number in range(size):
        rng = random.Random(f"logic/{seed}/{name}/{number}")
        split = splits.choose(rng.random())
        free = split != "train" and rng.random() < 0.5
        wording = rng.choice(list_wordings(held_out=free))
        chosen = _draw_topics(pools[split], wording.size, rng)
        asked, query = wording.fill(tuple(topic.text for topic in chosen), rng)
        yield AnnotatedQuestion(
            id=f"logic:{name}:{seed}:{number}",
            source=FREE if free else SOURCE,
            licence="as the corpus",
            split=split,
            question=asked,
            route="single",
            passages=tuple(_write_documents(query, chosen, pools[split], rng)),
            entities=list_terms(query),
            query=render(query),
            teacher=TEACHER,
        )


@dataclass(frozen=True)
class _Pool:
    names: list[Topic]
    common: list[Topic]


def _split_topics(topics: Sequence[Topic], seed: int, splits: SplitConfig) -> dict[str, _Pool]:
    found = {split: _Pool([], []) for split in ("train", "dev", "test")}
    for topic in topics:
        pool = found[splits.choose(hash_fraction(f"topic:{seed}:{normalise(topic.text)}"))]
        (pool.common if topic.text[0].islower() else pool.names).append(topic)
    for split, share in (("train", 1.0), ("dev", splits.dev), ("test", splits.test)):
        count = len(found[split].names) + len(found[split].common)
        if share and count < FEWEST:
            raise DataError(
                f"the split {split} has {count} topics of its own, and needs {FEWEST}",
                hint="give a larger corpus, or raise the split's share",
            )
    return found


def _draw_topics(pool: _Pool, count: int, rng: random.Random) -> list[Topic]:
    """Topics of which no two share a content word, and none stands in the sentence of another.

    Raises DataError where the pool's topics are too alike.
    """
    for _ in range(PATIENCE):
        chosen = [_draw_topic(pool, rng) for _ in range(count)]
        words = [word for topic in chosen for word in _find_content_words(topic.text)]
        said = [topic.said.casefold() for topic in chosen]
        inside = any(
            topic.text.casefold() in text for i, topic in enumerate(chosen) for j, text in enumerate(said) if i != j
        )
        if len(words) == len(set(words)) and not inside and all(_find_content_words(topic.text) for topic in chosen):
            return chosen
    raise DataError(f"no {count} topics of a split differ in all their words", hint="give a larger corpus")


def _draw_topic(pool: _Pool, rng: random.Random) -> Topic:
    common = pool.common if pool.common and (not pool.names or rng.random() < COMMON) else pool.names
    return rng.choice(common)


def _find_content_words(text: str) -> list[str]:
    return list({word for word in normalise(text).split() if word not in LITTLE})


def _write_documents(
    query: Query, topics: Sequence[Topic], pool: _Pool, rng: random.Random
) -> Iterator[AnnotatedPassage]:
    """For each combination drawn a document; `topics` stand in the order of the query's terms."""
    positives, negatives = draw_combinations(query, rng)
    numbers = rng.sample(range(100, 1000), len(positives) + len(negatives))
    for number, truth in zip(numbers, positives + negatives, strict=True):
        text = _write_document(topics, truth, pool, rng)
        yield AnnotatedPassage(f"Digest {number}", text, relevant=truth in positives)


def _write_document(topics: Sequence[Topic], truth: Truth, pool: _Pool, rng: random.Random) -> str:
    about = [topic for topic, true in zip(topics, truth, strict=True) if true]
    if len(about) < 2:
        about.append(_draw_other(topics, pool, rng))
    rng.shuffle(about)
    return " ".join(_cut_sentence(topic, ROOM // len(about)) for topic in about)


def _draw_other(topics: Sequence[Topic], pool: _Pool, rng: random.Random) -> Topic:
    """A topic beside those of the question, whose sentence names none of them."""
    while True:
        other = _draw_topic(pool, rng)
        if not any(topic.text.casefold() in other.said.casefold() for topic in topics):
            return other


def _cut_sentence(topic: Topic, room: int) -> str:
    if len(topic.said) <= room:
        return topic.said
    cut = topic.said[: room - 2].rpartition(" ")[0]
    if topic.text not in cut:
        cut = f"On {topic.text}: {topic.said}"[: room - 2].rpartition(" ")[0]
    return f"{cut} …"


def read_logic(path: Path, size: int, seed: int, splits: SplitConfig) -> Iterator[ReadResult]:
    """`size` questions over the documents of `path`, a JSON-lines corpus or the folder of a world."""
    return make_logical_questions(read_topics(path), size, seed, splits, path.name.partition(".")[0])
