"""The language's quick ways against the plain ones: the regular expressions in full."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.metrics.plans import summarise_plan
from revelator.errors import ExpressionError
from revelator.limits import count_stages
from revelator.plans import check, list_leaves, list_placeholders, make_letters_key, parse, substitute
from revelator.plans.bnf import blank_placeholders

PIECES = [*"+*×(){}", '"', "{x}", "{{x}}", "{a b}", "C++", "(1997 film)", "who", "born", '"a + b"']
PLANS = st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join)

BRACES = st.lists(st.sampled_from(["{", "{{", "}", "}}", "a", "b c", "{x}", "{y z}", " ", "{{w}}"]), max_size=9)


@given(BRACES.map("".join))
def test_placeholders_are_the_names_that_substitution_replaces(text: str) -> None:
    replaced: list[str] = []

    class Seen(dict[str, str]):
        def get(self, name: str, default: Any = None) -> str:
            replaced.append(name)
            return " "

    wiped = substitute(text, Seen())
    assert list_placeholders(text) == tuple(dict.fromkeys(replaced))
    assert re.findall(r"\w+", blank_placeholders(text)) == re.findall(r"\w+", wiped)


@settings(max_examples=300)
@given(PLANS)
def test_what_scores_look_at_is_what_the_plan_itself_says(text: str) -> None:
    try:
        plan = parse(text)
    except ExpressionError:
        with pytest.raises(ExpressionError):
            summarise_plan(text)
        return
    found, valid = summarise_plan(text), not check(plan)
    assert (found.valid, found.letters, found.depth) == (valid, make_letters_key(plan), count_stages(plan))
    assert found.leaves == len(list_leaves(plan))
