"""The embedded generator: answers with their sentence and document, requests read together, and any text at all."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.errors import ArtifactError
from revelator.tasks import Step
from revelator.trace import Passage
from serving.models.embedded import (
    NO_LANGUAGE_MODEL,
    NO_SPAN,
    REACH,
    EmbeddedGenerator,
    cut_rows,
    join_items,
    quote_sentence,
)
from serving.protocols import GenerateRequest, Reading
from serving.retrieval.cutting import split_markdown
from tests.mark_reader import read_mark, watch_passes

MARK = "Zanzibar Quixote"
SOMEWHERE = Passage("a", "Ports", f"There are many. The port is {MARK}, they say. Another is not.")
NOWHERE = Passage("b", "Other", "Nothing is said here. Nor here.")


async def read(*passages: Passage, kind: str = "span", question: str = "Which port?") -> Reading:
    return await EmbeddedGenerator(read_mark(MARK, kind)).answer(GenerateRequest("read", question, passages))


async def test_an_answer_carries_its_span_its_sentence_its_document_and_its_probability() -> None:
    reading = await read(NOWHERE, SOMEWHERE)
    assert (reading.answers, reading.sentence) == ((MARK,), f"The port is {MARK}, they say.")
    assert (reading.document, reading.method, reading.reason) == ("a", "reader", "")
    assert reading.probability and reading.probability > 0.9


async def test_a_list_has_all_its_items_and_each_sentence_once() -> None:
    passage = Passage("a", "", f"First {MARK} and zanzibar quixote. None here. Then Zanzibar quixote.")
    reading = await read(passage, kind="list")
    assert reading.answers == (MARK, "zanzibar quixote", "Zanzibar quixote")
    assert reading.sentence == f"First {MARK} and zanzibar quixote.\nThen Zanzibar quixote." and not reading.is_verdict


@pytest.mark.parametrize("kind", ["yes", "no"])
async def test_yes_and_no_come_with_the_sentence_that_speaks_for_them(kind: str) -> None:
    reading = await read(SOMEWHERE, NOWHERE, kind=kind)
    assert (reading.answers, reading.sentence) == ((kind,), f"The port is {MARK}, they say.")
    assert reading.document == "a" and reading.is_verdict


async def test_what_no_passage_says_has_a_low_probability_and_whoever_asks_decides() -> None:
    reading = await read(NOWHERE)
    assert reading.answers and reading.probability is not None and reading.probability < 0.1


@pytest.mark.parametrize("passages", [(), (Passage("a", "", ""),), (Passage("a", "Ports", " \n"),) * 2])
async def test_passages_without_a_word_have_no_answer_and_say_so(passages: tuple[Passage, ...]) -> None:
    reading = await read(*passages)
    assert (reading.answers, reading.probability, reading.reason) == ((), 0.0, NO_SPAN)


@pytest.mark.parametrize(
    "request_",
    [
        GenerateRequest("direct", "What is 17 plus 25?"),
        GenerateRequest("merge", "Who is older?", steps=(Step("When was Ada born?", ("1962",)),)),
        GenerateRequest("rewrite", "And where?", steps=(Step("When was Ada born?", ("1962",)),)),
        GenerateRequest("write", "Write a plan."),
    ],
)
async def test_what_is_a_language_models_work_has_no_answer_and_the_reading_says_why(request_: GenerateRequest) -> None:
    reading = await EmbeddedGenerator(read_mark(MARK)).answer(request_)
    assert (reading.answers, reading.reason) == ((), NO_LANGUAGE_MODEL)


async def test_requests_of_one_turn_are_read_in_one_pass_and_each_gets_its_own_answer() -> None:
    reader = read_mark(MARK)
    passes = watch_passes(reader)
    generator = EmbeddedGenerator(reader)
    texts = [Passage(str(n), "", f"Number {n}: {MARK} is number {n}.") for n in range(5)]
    readings = await asyncio.gather(*(generator.answer(GenerateRequest("read", "Which?", (p,))) for p in texts))
    assert passes == [5]
    assert [reading.document for reading in readings] == ["0", "1", "2", "3", "4"]


async def test_a_reading_that_fails_fails_alone() -> None:
    reader = read_mark(MARK)
    network, bad = reader.forward, reader.tokenizer.encode("Quicksand")[0][0]

    def forward(ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, kinds = network(ids, mask, types)
        kinds[(ids == bad).any(1)] = np.nan
        return scores, kinds

    reader.forward = forward
    generator = EmbeddedGenerator(reader)
    asked = [GenerateRequest("read", "Which?", (p,)) for p in (SOMEWHERE, Passage("c", "", "Quicksand."))]
    good, failed = await asyncio.gather(*map(generator.answer, asked), return_exceptions=True)
    assert isinstance(good, Reading) and good.answers == (MARK,)
    assert isinstance(failed, ArtifactError)


ANY_TEXT = st.text(st.characters(), max_size=200)


@given(ANY_TEXT, st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=4))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_and_what_is_quoted_stands_in_its_passage(question: str, texts: list[tuple[str, str]]) -> None:
    passages = tuple(Passage(str(number), *each) for number, each in enumerate(texts))
    reading = asyncio.run(read(*passages, question=question))
    if reading.answers:
        text = passages[int(reading.document)].text
        assert reading.sentence in text and all(answer in text for answer in reading.answers)
    else:
        assert reading.reason == NO_SPAN


async def test_a_megabyte_without_a_space_is_no_answer() -> None:
    reading = await read(Passage("a", "", "x" * 1_000_000))
    assert (reading.answers, reading.reason) == ((), NO_SPAN)


@pytest.mark.parametrize(
    ("text", "span", "sentence"),
    [
        ("J. R. Holm met Dr. Lind. They left.", "Lind", "J. R. Holm met Dr. Lind."),
        ("It cost 3.5 crowns! Why? Nobody knows.", "Why", "Why?"),
        (
            "He won. The U.S. team (of c. 1920) lost, e.g. twice. End.",
            "1920",
            "The U.S. team (of c. 1920) lost, e.g. twice.",
        ),
        ("He said “No.” Then he left.", "No", "He said “No.”"),
        ("東京は首都です。人口は多い。", "人口", "人口は多い。"),
        ("One\nTwo\nThree", "Two", "Two"),
        ("First end. Second end. Third.", "end. Second", "First end. Second end."),
        ("No end", "No end", "No end"),
    ],
)
def test_a_sentence_is_quoted_whole(text: str, span: str, sentence: str) -> None:
    start = text.index(span)
    assert quote_sentence(text, start, start + len(span)) == sentence


@given(st.text("aB. \n?。", max_size=3_000), st.data())
def test_a_quoted_sentence_holds_its_span_and_reaches_no_further_than_promised(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 50)))
    sentence = quote_sentence(text, start, end)
    assert text[start:end].strip() in sentence
    assert len(sentence) <= end - start + 2 * REACH


PEOPLE = """Priya Nandakumar runs the bakery Crumb & Rye in Thornby.
Owen Sturgess is a carpenter. He was born in Hallowick in 1979.
Marit Solheim grew up in Bergen and studied biology in Uppsala.
Ingrid Vale is a nurse at Thornby Infirmary.
Paul Abara teaches physics at Marrick Grammar School."""


async def test_the_line_of_a_list_that_is_asked_about_is_read_alone_as_well() -> None:
    people = Passage("people", "Who is who", PEOPLE)
    reading = await EmbeddedGenerator().answer(GenerateRequest("read", "What does Ingrid Vale work?", (people,)))
    [answer] = reading.answers
    assert answer.startswith("nurse") and reading.document == "people"
    assert reading.sentence == "Ingrid Vale is a nurse at Thornby Infirmary."
    assert reading.probability and reading.probability > 0.5


@pytest.mark.parametrize(
    ("question", "text", "answers"),
    [
        (
            "Who are the members of the safety committee?",
            "The members of the safety committee are:\n- Ingrid Moss\n- Nadia Okoye\n- Henrik Dahl",
            ("Ingrid Moss", "Nadia Okoye", "Henrik Dahl"),
        ),
        (
            "Which days is the office open?",
            "The office is open on these days:\n- Monday\n- Wednesday\n- Friday",
            ("Monday", "Wednesday", "Friday"),
        ),
    ],
)
async def test_the_items_of_a_list_are_answers_of_their_own(question: str, text: str, answers: tuple[str, ...]) -> None:
    passage = Passage("a", "", text)
    reading = await EmbeddedGenerator().answer(GenerateRequest("read", question, (passage,)))
    assert reading.answers == answers
    assert reading.sentence.splitlines() == [f"- {answer}" for answer in answers]


@given(st.text("aB.:- \n", max_size=80))
def test_a_text_whose_items_are_joined_keeps_the_place_of_every_word(text: str) -> None:
    joined = join_items(text)
    assert len(joined) == len(text) and "\n- " not in joined
    assert all(new == old or (old in "\n- " and new in ", ") for old, new in zip(text, joined, strict=True))


async def test_each_row_of_a_table_is_read_alone_and_quoted_as_its_passage_says_it() -> None:
    rows = f"Port: Lissova; Cranes: 2\nPort: {MARK}; Cranes: 3"
    passage = Passage("a", "Cranes", f"What stands where.\n{rows}\nCounted in May.")
    assert [text.text for text in cut_rows(passage)] == [
        "What stands where.",
        "For Lissova, the Cranes is 2.",
        f"For {MARK}, the Cranes is 3.",
        "Counted in May.",
    ]
    reading = await read(NOWHERE, passage)
    assert (reading.answers, reading.sentence, reading.document) == ((MARK,), rows.splitlines()[1], "a")


@given(st.sampled_from([2, 3]), st.lists(st.integers(0, 9_999), min_size=1, max_size=6, unique=True))
def test_a_table_with_a_header_is_read_in_sentences_however_few_its_columns(width: int, numbers: list[int]) -> None:
    names = ["Town", "Mayor", "Founded"][:width]
    rows = [names, ["---"] * width, *([f"{name} {number}" for name in names] for number in numbers)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = "\n".join(paragraph.text for paragraph in split_markdown(table))
    said = [" ".join(f"For Town {number}, the {name} is {name} {number}." for name in names[1:]) for number in numbers]
    assert [row.text for row in cut_rows(Passage("a", "Towns", text))] == said


def test_a_text_without_rows_is_read_as_it_is() -> None:
    assert cut_rows(SOMEWHERE) == [SOMEWHERE]
