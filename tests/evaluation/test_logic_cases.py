"""The logical benchmark: its templates, its measure, and that labels are what the documents were made from."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from data_gen.sources.logic_questions import (
    fill_template,
    list_templates,
)
from evaluation.itlr.cases import make_world_cases, say_query
from evaluation.itlr.scifact import make_scifact_cases, read_abstracts
from revelator.errors import DataError
from revelator.plans.logic import check, holds, negations, terms

SCIFACT = Path(os.environ.get("REVELATOR_DATA", "../shared/data")) / "scifact" / "scifact_corpus.jsonl.gz"


def test_there_are_32_templates_by_number_of_negations_4_12_12_4() -> None:
    queries = [fill_template(template, ("a", "b", "c")) for template in list_templates()]
    assert len(set(queries)) == 32
    assert Counter(map(negations, queries)) == {0: 4, 1: 12, 2: 12, 3: 4}
    assert all(check(query) == () for query in queries)


def test_a_query_is_asked_in_words() -> None:
    query = fill_template("{0} AND NOT {1} OR {2}", ("cats", "dogs", "fish"))
    assert say_query(query) == "documents about cats and not about dogs, or about fish"


def test_world_documents_match_exactly_as_their_facts_say_and_state_what_is_true() -> None:
    found = make_world_cases(1, seed=3)
    assert len(found.cases) == 32
    for case in found.cases:
        assert 0 < len(case.relevant) < len(case.pool) <= 6
        for place in case.pool:
            assert holds(case.query, found.truths[place]) == (place in case.relevant)
    assert make_world_cases(1, seed=3).texts == found.texts


def test_a_file_that_is_not_scifact_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="not SciFact's corpus"):
        read_abstracts(tmp_path / "x.gz")


@pytest.mark.skipif(not SCIFACT.is_file(), reason="SciFact's corpus is not here: set REVELATOR_DATA")
def test_scifact_topics_stand_in_the_documents_that_are_about_them() -> None:
    abstracts = read_abstracts(SCIFACT)
    for case in make_scifact_cases(abstracts, 1, seed=3):
        for place in case.pool:
            truth = {term: term in abstracts.topics[place] for term in terms(case.query)}
            assert holds(case.query, truth) == (place in case.relevant)
            words = f"{abstracts.rows[place]['title']} {abstracts.rows[place]['text']}".lower()
            assert all(term.split()[0][:4] in words for term, true in truth.items() if true)
