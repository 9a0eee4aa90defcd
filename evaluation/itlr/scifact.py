"""Logical cases on SciFact's abstracts, with labels by construction.

Documents are the titles and abstracts as they are, cut to WORDS words. Topics are phrases of two words (no stop word,
no digit) that stand in at least FEWEST and at most MOST of the cut documents; a document is about a topic exactly if
the phrase stands in it, compared by stems. No model and no person judges. The label is what a search by words would
find, so the table is about dense scores only: whether composing them follows the operators, and it is strict with
synonyms, which count as misses. A case's three topics come from one document and its neighbours: each stands in one
document with the first. Ranked are the documents about at least one of the three and as many at random about none:
over the whole corpus nearly every document would match a query like `NOT a OR NOT b`. A case needs a document that
matches and one that does not.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from data_gen.sources.logic_questions import (
    fill_template,
    list_templates,
)
from evaluation.itlr.cases import Case, say_query
from revelator.errors import DataError
from revelator.plans.logic import holds
from serving.retrieval import STOP_WORDS, extract_terms

WORDS = 80  # of a document: about 128 tokens of a small encoder
FEWEST, MOST = 15, 200
GENERIC = frozenset(  # words that name no topic
    """
    about after also although among analysis assess associated association based been before between both but can
    compared data derived different due during expressed findings found from have here high however identified
    increased its known largely leading levels long low main many may more most new not observed only other our
    outcome outcomes previously protected recent reduced required results role several show shown studies study such
    suggest than their these those three through two underlying unknown used using via was we well were whether
    which who within
    """.split()  # noqa: SIM905
)
_SENTENCE = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True)
class Abstracts:
    """Documents, the topics of each (set of phrases), and the documents of each topic."""

    rows: list[dict[str, str]]
    topics: list[frozenset[str]]
    documents: dict[str, frozenset[int]]


def read_abstracts(path: Path) -> Abstracts:
    """Reads SciFact's corpus as published, gzipped JSON lines. Raises DataError for any other file."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [_read_row(json.loads(line)) for line in lines]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"not SciFact's corpus: {error}", where=str(path)) from error
    phrases = [_find_phrases(f"{row['title']}. {row['text']}") for row in rows]
    spelled: dict[str, str] = {}
    documents: dict[str, set[int]] = defaultdict(set)
    for number, found in enumerate(phrases):
        for stems, text in found.items():
            spelled.setdefault(stems, text)
            documents[stems].add(number)
    kept = {spelled[s]: frozenset(places) for s, places in documents.items() if FEWEST <= len(places) <= MOST}
    topics: list[set[str]] = [set() for _ in rows]
    for topic, places in kept.items():
        for place in places:
            topics[place].add(topic)
    return Abstracts(rows, [frozenset(found) for found in topics], kept)


def _read_row(row: dict) -> dict[str, str]:
    abstract = row["abstract"]  # a list, printed: quoted sentences
    if isinstance(abstract, str) and abstract.startswith("["):
        abstract = [first or second for first, second in _SENTENCE.findall(abstract)]
    words = " ".join([abstract] if isinstance(abstract, str) else abstract).split()
    return {
        "id": str(row["doc_id"]),
        "title": row["title"],
        "text": " ".join(words[: max(0, WORDS - len(row["title"].split()))]),
    }


def _find_phrases(text: str) -> dict[str, str]:
    """Maps the stems of each pair of neighbouring content words to the pair as it is written first."""
    found: dict[str, str] = {}
    for part in re.split(r"[^\w\s'-]+|\s[-–]\s", text.lower()):
        words = part.split()
        for first, second in pairwise(words):
            if _is_content_word(first) and _is_content_word(second):
                found.setdefault(" ".join(extract_terms(f"{first} {second}")), f"{first} {second}")
    return found


def _is_content_word(word: str) -> bool:
    return bool(_WORD.fullmatch(word)) and word not in STOP_WORDS and word not in GENERIC


def make_scifact_cases(abstracts: Abstracts, per_template: int, seed: int) -> list[Case]:
    """Makes `per_template` cases of each of the 32 templates; the same arguments give the same cases."""
    rng = random.Random(f"scifact/{seed}")
    rich = [number for number, topics in enumerate(abstracts.topics) if len(topics) >= 2]
    cases = []
    for number, template in enumerate(list_templates()):
        made = 0
        while made < per_template:
            chosen = _draw_topics(abstracts, rng.choice(rich), rng)
            if chosen is None:
                continue
            query = fill_template(template, chosen)
            relevant = frozenset(
                i for i, topics in enumerate(abstracts.topics) if holds(query, {t: t in topics for t in chosen})
            )
            touched = frozenset().union(*(abstracts.documents[topic] for topic in chosen))
            others = rng.sample(sorted(set(range(len(abstracts.rows))) - touched), len(touched))
            pool = tuple(sorted([*touched, *others]))
            relevant &= frozenset(pool)
            if 0 < len(relevant) < len(pool):
                cases.append(Case(query, say_query(query), number, relevant, pool))
                made += 1
    return cases


def _draw_topics(abstracts: Abstracts, seed_document: int, rng: random.Random) -> list[str] | None:
    """Draws two topics of one document, and a third topic of another document that shares one of them."""
    first, second = rng.sample(sorted(abstracts.topics[seed_document]), 2)
    neighbour = rng.choice(sorted(abstracts.documents[first]))
    others = sorted(abstracts.topics[neighbour] - {first, second})
    if not others:
        return None
    chosen = [first, second, rng.choice(others)]
    if len(set(" ".join(chosen).split())) < 6:  # topics that share a word are not three topics
        return None
    rng.shuffle(chosen)
    return chosen
