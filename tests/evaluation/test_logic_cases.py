"""The logical benchmark: its templates, its measure, and that labels are what the documents were made from."""

from __future__ import annotations

from collections import Counter

from data_gen.sources.logic_questions import (
    fill_template,
    list_templates,
)
from evaluation.harness.ranking import make_world_cases, say_query
from revelator.plans.logic import check, holds, negations


def test_there_are_32_templates_by_number_of_negations_4_12_12_4() -> None:
    queries = [fill_template(template, ("a", "b", "c")) for template in list_templates()]
    assert len(set(queries)) == 32
    assert Counter(map(negations, queries)) == {0: 4, 1: 12, 2: 12, 3: 4}
    assert all(check(query) == () for query in queries)


def test_a_query_is_asked_in_words() -> None:
    query = fill_template("{0} AND NOT {1} OR {2}", ("it rains", "it snows", "it pours"))
    assert say_query(query) == "documents saying that it rains and not saying that it snows, or saying that it pours"


def test_world_documents_match_exactly_as_their_facts_say_and_state_what_is_true() -> None:
    found = make_world_cases(1, seed=3)
    assert len(found.cases) == 32
    for case in found.cases:
        assert 0 < len(case.relevant) < len(case.pool) <= 6
        for place in case.pool:
            assert holds(case.query, found.truths[place]) == (place in case.relevant)
    assert make_world_cases(1, seed=3).texts == found.texts
