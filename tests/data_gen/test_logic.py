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
    draw_query,
    fill_template,
    list_templates,
    make_logical_questions,
)
from data_gen.sources.logic_topics import (
    Topic,
    read_topics,
)
from data_gen.sources.logic_wording import (
    word_query,
)
from revelator.errors import DataError
from revelator.fingerprints import normalise
from revelator.plans.logic import Query, check, holds, list_terms, parse
from revelator.rows import stream_rows

TEXTS = ("tin mines", "Orn Fell", "river ferries", "kilns", "Lake Sedge", "salt tax")


def table(query: Query, names: list[str]) -> list[bool]:
    lowered = {name: name.lower() for name in list_terms(query)}
    rows = [dict(zip(names, row, strict=True)) for row in itertools.product((True, False), repeat=len(names))]
    return [holds(query, {name: row[lowered[name]] for name in lowered}) for row in rows]


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


@pytest.mark.parametrize("free", [False, True])
def test_a_wording_names_every_topic_and_keeps_what_its_query_means(free: bool) -> None:
    rng = random.Random(3)
    queries = [fill_template(template, TEXTS[:3]) for template in list_templates()]
    queries += [draw_query(TEXTS[:size], rng) for size in (4, 5, 6) for _ in range(20)]
    for query in queries:
        worded = word_query(query, rng, free)
        names = [name.lower() for name in list_terms(query)]
        assert table(query, names) == table(worded.query, names), worded
        places = [worded.question.find(term) for term in list_terms(worded.query)]
        assert -1 not in places and places == sorted(places)  # the query names topics in the question's order
        assert not {"\ufdd0", "{", "}", "  "} & set(worded.question), worded.question


def test_each_template_has_hundreds_of_wordings_and_training_has_none_of_the_held_out_ones() -> None:
    rng = random.Random(4)
    for template in list_templates():
        query = fill_template(template, TEXTS[:3])
        assert len({word_query(query, rng).form for _ in range(230)}) > 200
    trained = {word_query(query, rng).form for _ in range(1000)}
    assert not trained & {word_query(query, rng, free=True).form for _ in range(300)}


@pytest.mark.parametrize(
    ("template", "questions"),
    [
        ("{0} AND {1} OR {2}", {"tin mines and Orn Fell or river ferries"}),
        ("{0} OR {1} AND NOT {2}", {"tin mines or Orn Fell but not river ferries"}),
    ],
)
def test_a_wording_that_could_be_read_in_two_ways_is_not_used(template: str, questions: set[str]) -> None:
    rng = random.Random(5)
    found = {word_query(fill_template(template, TEXTS[:3]), rng).question.lower().strip(".?") for _ in range(1000)}
    assert not {question.lower() for question in questions} & found


def test_a_topic_with_a_word_of_the_language_of_queries_is_quoted() -> None:
    rng = random.Random(6)
    query = fill_template("{0} OR {1}", ("Salt and Iron", "kilns"))
    assert all('"salt and iron"' in word_query(query, rng).question.lower() for _ in range(50))


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
