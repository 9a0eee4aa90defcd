"""What a citation promises: a quotation is the document's own words, and it says where they stand."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.answers import find_text
from revelator.trace import Evidence, Node, Passage, Trace, quote

SAID = "Ana Berg – our head – was born in Ayr."


def cite(id: str, title: str = "Staff: Berg", markdown: bool = False) -> str:
    evidence = Evidence("Where was Ana Berg born?", ("Ayr",), SAID, Passage(id, title, SAID))
    return evidence.cite(markdown=markdown)


@given(st.text("ab. \n\t", max_size=60), st.data())
def test_what_stands_in_quotation_marks_stands_in_the_document_white_space_aside(
    text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text)))
    said = data.draw(st.one_of(st.just(text[start : start + 20]), st.text("ab. \n", max_size=20)))
    quoted = quote(said, text)
    assert all(inner in " ".join(text.split()) for inner in re.findall("“([^”]*)”", quoted))
    assert quoted.replace("“", "").replace("”", "") == " ".join(said.split())
    lines = [line for line in said.splitlines() if line.strip()]
    assert quoted.count("“") == sum(" ".join(line.split()) in " ".join(text.split()) for line in lines)


@pytest.mark.parametrize(
    ("id", "where"),
    [
        ("staff/people.md#120-980", "Staff: Berg in staff/people.md"),
        ("staff/people.md#120-980/2", "Staff: Berg in staff/people.md"),
        ("papers:c#/people.pdf#page=12&120-980", "Staff: Berg in papers:c#/people.pdf, page 12"),
        ("questions:12", "Staff: Berg"),
        ("films:Tin Comet#directed by", "Staff: Berg"),
        ("https://example.org/staff", "Staff: Berg <https://example.org/staff>"),
        ("web:https://example.org/staff?of=1", "Staff: Berg <https://example.org/staff?of=1>"),
        ("javascript://example.org/%0aalert(1)", "Staff: Berg"),
    ],
)
def test_a_citation_names_headings_file_page_and_address_as_far_as_the_passage_has_them(id: str, where: str) -> None:
    assert cite(id) == f"{where}: “{SAID}”"


def test_in_markdown_the_name_of_a_page_is_a_link_to_the_sentence_and_cannot_end_it() -> None:
    linked = cite("web:https://example.org/staff", "A](javascript:x) [b]", markdown=True)
    name, target = re.fullmatch(r"\[(.*)\]\((https://[^()\s]+)\): “.*”", linked).groups()  # type: ignore[union-attr]
    assert name == r"A\](javascript:x) \[b\]"
    assert target.startswith("https://example.org/staff#:~:text=Ana%20Berg%20%E2%80%93%20our%20head")
    assert cite("https://example.org/staff#top", markdown=True).count("#") == 1
    assert cite("people.md#1-9", markdown=True) == cite("people.md#1-9")


def answered(id: str, answer: str, passage: Passage, sentence: str, probability: float) -> Node:
    detail = {"document": passage.id, "probability": probability}
    return Node(id, "atomic", "q", None, "q", {}, [passage], sentence, [answer], "ok", detail=detail)


def test_a_passage_that_several_steps_were_answered_from_is_one_source_with_all_that_it_says() -> None:
    staff = Passage("people.md#1-90", "Staff", "Ana Berg was born in Ayr. Bo Lund was born in Wick.")
    towns = Passage("towns.md#1-90", "Towns", "Ayr lies on the coast.")
    ana, bo, coast = "Ana Berg was born in Ayr.", "Bo Lund was born in Wick.", "Ayr lies on the coast."
    trace = Trace("q", "compile", answer="Ayr, Wick", answers=["Ayr", "Wick"])
    trace.nodes = [
        answered("1", "Ayr", staff, ana, 0.9),
        answered("2", "coast", towns, coast, 0.8),
        answered("3", "Wick", staff, bo, 0.7),
        answered("4", "Ayr", staff, ana, 0.9),
    ]
    assert len(trace.list_evidence()) == 4, "what each step found stays"
    assert trace.list_citations() == [
        f"[1] Staff in people.md: “{ana}” “{bo}”",
        f"[2] Towns in towns.md: “{coast}”",
    ]
    [first, _] = trace.list_sources()
    assert (first.answers, first.probability) == (("Ayr", "Wick"), 0.7)
    trace.text = "Ana was born in Ayr [1], on the coast [2], and Bo in Wick [3]."
    assert find_text(trace) == "Ana was born in Ayr [1], on the coast [2], and Bo in Wick.", "there is no third source"
