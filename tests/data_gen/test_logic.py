"""Logical questions: one query each, many wordings, splits without a common topic, documents that are what they say."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from pathlib import Path

import pytest

from data_gen.annotate.validation import check_query
from data_gen.build import build
from data_gen.config import SetConfig, SplitConfig
from data_gen.questions import AnnotatedQuestion
from data_gen.sources.logic_questions import (
    FREE,
    SOURCE,
    draw_combinations,
    fill_template,
    list_templates,
    make_logical_questions,
)
from data_gen.sources.logic_topics import (
    Topic,
    read_topics,
)
from data_gen.sources.logic_wording import Wording, list_wordings
from revelator.errors import DataError
from revelator.fingerprints import normalise
from revelator.plans.logic import check, holds, list_terms, parse
from revelator.rows import stream_rows

TEXTS = ("tin mines", "Orn Fell", "river ferries", "kilns", "Lake Sedge", "salt tax")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Invented places, each with a sentence of its own."""
    rng = random.Random(1)
    made = ["".join(rng.choice(("ka", "lo", "mi", "ru", "se", "to")) for _ in range(4)) for _ in range(700)]
    rows = [
        {"title": name.title(), "text": f"{name.title()} is a {name[:4]}nish {kind} with {number} gates. It is old."}
        for number, (name, kind) in enumerate(zip(dict.fromkeys(made), itertools.cycle(("town", "river", "city"))))
    ]
    path = tmp_path_factory.mktemp("corpus") / "places.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


@pytest.fixture(scope="module")
def questions(corpus: Path) -> list[AnnotatedQuestion]:
    return list(make_logical_questions(read_topics(corpus), 600, 5, SplitConfig(dev=0.2, test=0.1), "places"))


@pytest.mark.parametrize("held_out", [False, True])
def test_a_wording_names_every_topic_of_its_query_in_order(held_out: bool) -> None:
    rng = random.Random(3)
    for wording in list_wordings(held_out):
        assert wording.size <= len(TEXTS)
        for _ in range(3):
            question, query = wording.fill(TEXTS[: wording.size], rng)
            named = list_terms(query)
            assert [term.lower() for term in named] == [text.lower() for text in TEXTS[: wording.size]], wording
            places = [question.find(term) for term in named]
            assert -1 not in places and places == sorted(places), question
            assert check(query) == () and not {"{", "}", "\n"} & set(question)


def test_training_has_no_wording_that_is_held_out_and_no_two_are_alike() -> None:
    ways = [wording.question.casefold() for held_out in (False, True) for wording in list_wordings(held_out)]
    assert len(set(ways)) == len(ways) > 500
    assert 0.05 < len(list_wordings(held_out=True)) / len(ways) < 0.15


def test_a_topic_with_a_word_of_the_language_of_queries_is_quoted() -> None:
    wording, rng = Wording("{0} or {1}", "{0} OR {1}"), random.Random(6)
    assert all('"salt and iron"' in wording.fill(("Salt and Iron", "kilns"), rng)[0].lower() for _ in range(50))


def test_a_hard_negative_is_one_term_away_from_a_match() -> None:
    rng = random.Random(7)
    for template in list_templates():
        query = fill_template(template, TEXTS[:3])
        positives, negatives = draw_combinations(query, rng)
        rows = list(itertools.product((True, False), repeat=3))
        matching = [row for row in rows if holds(query, dict(zip(list_terms(query), row, strict=True)))]
        assert positives and set(positives) <= set(matching) and len(positives) <= 3
        assert negatives and not set(negatives) & set(matching) and len(negatives) <= 3
        assert all(any(sum(a != b for a, b in zip(n, m, strict=True)) == 1 for m in matching) for n in negatives)


def test_no_topic_is_asked_about_in_two_splits(corpus: Path, questions: list[AnnotatedQuestion]) -> None:
    known = {normalise(topic.text) for topic in read_topics(corpus)}
    named: dict[str, set[str]] = {"train": set(), "dev": set(), "test": set()}
    for question in questions:
        asked = [normalise(term) for term in list_terms(parse(question.query))]
        named[question.split] |= {topic for topic in known for term in asked if term.endswith(topic)}
    assert all(len(found) > 40 for found in named.values())
    assert not any(one & other for one, other in itertools.combinations(named.values(), 2))


def test_free_wordings_are_outside_training(questions: list[AnnotatedQuestion]) -> None:
    sources = {(question.split == "train", question.source) for question in questions}
    assert sources == {(True, SOURCE), (False, SOURCE), (False, FREE)}


def test_the_same_arguments_give_the_same_questions(corpus: Path, questions: list[AnnotatedQuestion]) -> None:
    topics = read_topics(corpus)
    assert list(make_logical_questions(topics, 600, 5, SplitConfig(dev=0.2, test=0.1), "places")) == questions
    other = list(make_logical_questions(topics, 600, 6, SplitConfig(dev=0.2, test=0.1), "places"))
    assert len({q.question for q in other} & {q.question for q in questions}) < 10


def test_every_question_passes_the_validator_and_its_documents_are_what_they_say(
    corpus: Path, questions: list[AnnotatedQuestion]
) -> None:
    said = {topic.text.lower(): topic.said for topic in read_topics(corpus)}
    for question in questions:
        query = parse(question.query)
        assert check_query(question) is None and check(query) == ()
        sentences = {term: said[min((t for t in said if t in term.lower()), key=len)] for term in list_terms(query)}
        for passage in question.passages:
            about = {term: text[:60] in passage.text for term, text in sentences.items()}
            assert holds(query, about) == passage.relevant, (question, passage)


def test_topics_of_long_titles_are_their_phrases(tmp_path: Path) -> None:
    titles = [f"Induction of {word} decay by salt-derived {word}ic cells in old mice" for word in _words(200)]
    path = tmp_path / "papers.jsonl"
    path.write_text("".join(json.dumps({"title": f"{title}."}) + "\n" for title in titles), encoding="utf-8")
    topics = read_topics(path)
    texts = {topic.text for topic in topics}
    assert {"induction", "old mice"} <= texts and not any(" of " in text for text in texts)
    assert Topic("old mice", f"{titles[0]}.") in topics


@pytest.mark.parametrize(
    ("rows", "says"),
    [([{"name": "no title"}], "line 1"), ([{"title": "Orn Fell", "text": "A hill."}], "only 1 topics")],
)
def test_what_is_no_corpus_is_refused(tmp_path: Path, rows: list[dict[str, str]], says: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError) as error:
        read_topics(path)
    assert says in str(error.value)


def test_a_set_of_logical_questions_has_the_tasks_that_its_source_names(tmp_path: Path, corpus: Path) -> None:
    source = {"format": "logic", "path": str(corpus), "size": 200, "tasks": ["translate_logic", "relevance"]}
    config = SetConfig.model_validate({"name": "l", "sources": [source], "split": {"dev": 0.2, "test": 0.1}})
    manifest = build(config, tmp_path / "set")
    assert set(manifest["counts"]["task"]["train"]) == {"relevance", "translate_logic"}
    assert set(manifest["counts"]["source"]["dev"]) == {SOURCE, FREE}
    assert sum(manifest["counts"]["task"][s]["translate_logic"] for s in ("train", "dev", "test")) == 200
    for record in stream_rows(tmp_path / "set", "dev", "translate_logic"):
        assert parse(json.loads(record.gold)) == parse(record.completion)


def test_a_query_that_asks_for_something_else_is_dropped() -> None:
    row = AnnotatedQuestion("1", "mine", "", "", "anything on kilns", "single")
    for query, reason in (
        ('"kilns" AND', "does not parse"),
        ('("kilns")', "not canonical"),
        ('"kilns" AND NOT "kilns"', "does not check"),
        ('"ovens"', "not in the question"),
    ):
        fault = check_query(AnnotatedQuestion(**{**vars(row), "query": query}))
        assert fault and reason in fault


def _words(count: int) -> list[str]:
    letters = itertools.product("bdfgklmnrst", "aeiou", "bdfgklmn")
    return ["".join(word) for word in itertools.islice(letters, count)]
