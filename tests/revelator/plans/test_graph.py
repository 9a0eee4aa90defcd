"""The graph of a tree: its nodes are steps of their numbers, and `[i]` is what a plan calls `{i*}`."""

from __future__ import annotations

from revelator.plans.art import Art
from revelator.plans.bnf import substitute
from revelator.plans.graph import read_tree
from revelator.plans.operators import Filter, Relate, Search

ADA = Art("Who is Ada?", Search("Ada Quill"))
HERS = Art("What is hers?", children=(Art("What did [1] direct?", Relate("[1]", "directed by", True)),))
LEFT = Art("Which of [2] are left?", Filter(("[2]", "UHF"), "not by [1]"))
TREE = Art("What is left?", children=(ADA, HERS, LEFT))


def test_each_node_is_the_step_of_its_number_and_the_root_is_the_last() -> None:
    graph = read_tree(TREE)
    assert [step.text for step in graph.steps] == [
        "Who is Ada?",
        "What is hers?",
        "Which of {2*} are left?",
        "What did {1*} direct?",
        "What is left?",
    ]
    assert graph.results == (4,)
    assert graph.steps[2].call == Filter(("{2*}", "UHF"), "not by {1*}")
    assert dict(graph.steps[2].sources) == {"2*": 1, "1*": 0}


def test_a_parent_is_drawn_from_those_children_that_nothing_below_it_uses() -> None:
    steps = read_tree(TREE).steps
    assert [step.is_drawn for step in steps] == [False, True, False, False, True]
    assert (list(steps[4].inside), list(steps[4].parts)) == ([0, 1, 2], [2])
    assert list(steps[1].parts) == [3]


def test_a_comparison_is_drawn_from_what_it_compares_by_the_names_beside_it() -> None:
    compared = Art("Which is older, the film of [1] ([2]) or Bo ([3])?")
    step = read_tree(Art("?", children=(ADA, LEFT, LEFT, compared))).steps[3]
    assert dict(step.labels) == {1: "the film of {1*}", 2: "Bo"}
    assert list(step.parts) == [1, 2] and set(step.sources) == {"1*", "2*", "3*"}


def test_what_is_no_reference_stays_text() -> None:
    for text in ("Who is {she}?", "{{x}} and {1*}", "no {brackets} [[1]]"):
        [step] = read_tree(Art(text, Search(text))).steps
        assert step.sources == {} and step.call
        assert substitute(step.text, {"she": "?", "1*": "?"}) == text.replace("[[1]]", "[1]")
        assert substitute(step.call.texts[0], {"she": "?", "1*": "?"}) == text.replace("[[1]]", "[1]")
