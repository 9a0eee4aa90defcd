"""Names come back as they were written, whatever the word pieces made of them."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from revelator.plans import logic, parse
from revelator.prefix_lm.model import load_minilm_tokenizer
from revelator.prefix_lm.spelling import read_function_words, read_sources, restore_spelling
from revelator.tasks import TASKS, QuestionInput, Step, StepsInput

LAW = settings(max_examples=300, deadline=None)
# Letters, marks, digits and punctuation of any script; what bears a meaning in plans and JSON stands elsewhere.
CHARACTERS = st.characters(
    categories=["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Nl", "Pd", "Po", "Sm", "So"],
    exclude_characters="{}\\\"+*[]():;'",
)
SCRIPTS = ["Ødegård", "東京都", "Łódź", "תל אביב", "القاهرة", "Ελλάδα", "Владивосток", "𝔊𝔬𝔱𝔥", "🜁🜂", "ñandú"]
PLAIN = ["O'Hara", "Jean-Luc", "C++", "1984", "McX", "iPhone", "İstanbul"]
WORDS = st.text(CHARACTERS, min_size=1, max_size=8) | st.sampled_from([*SCRIPTS, *PLAIN])
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join).filter(lambda name: any(map(str.isalnum, name)))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return load_minilm_tokenizer()


def restore(tokenizer: PreTrainedTokenizerFast, text: str, *sources: str) -> str:
    return restore_spelling(tokenizer(text, add_special_tokens=False)["input_ids"], sources, tokenizer)


@given(name=NAMES)
@example(name='The "Big" Sleep')
@example(name="Gödel, Escher, Bach: An Eternal Golden Braid")
@example(name="רב-סרן")
@example(name="Who's Afraid of Virginia Woolf?")
@LAW
def test_a_name_of_the_question_comes_back_as_it_was_written(tokenizer: PreTrainedTokenizerFast, name: str) -> None:
    name = unicodedata.normalize("NFC", name)
    pieces = tokenizer(name, add_special_tokens=False)["input_ids"]
    assume(pieces and not {word.lower() for word in name.split()} <= read_function_words())
    question = f"In which year did the maker of {name} die?"
    plan = restore(tokenizer, f"Who is the maker of {name}? * When did {{maker}} die?", question)
    assert plan == f"Who is the maker of {name}? * When did {{maker}} die?"


@given(
    names=st.lists(st.sampled_from(["🜁🜂 One", "🜃 Two", "Three 🜄🜄🜄"]), min_size=2, max_size=3, unique=True),
    data=st.data(),
)
@LAW
def test_a_word_that_the_vocabulary_lacks_is_copied_by_its_span(
    tokenizer: PreTrainedTokenizerFast, names: list[str], data: st.DataObject
) -> None:
    """Several unknown words are one piece, [UNK]; the words beside them tell which is which."""
    question = f"Who is older, {' or '.join(names)}?"
    chosen = data.draw(st.permutations(names))
    assert tokenizer(question)["input_ids"].count(tokenizer.unk_token_id) >= len(names)
    plan = " + ".join(f"When was {name} born?" for name in chosen)
    assert restore(tokenizer, plan, question) == plan


def test_an_unknown_word_without_neighbours_is_the_one_that_was_not_taken_yet(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    assert restore(tokenizer, "is 🜁🜂 on 🜃🜃?", "Do 🜁🜂 and 🜃🜃 meet?") == "Is 🜁🜂 on 🜃🜃?"


def test_an_unknown_word_of_no_source_is_left_out(tokenizer: PreTrainedTokenizerFast) -> None:
    assert restore(tokenizer, "Who is 🜁🜂?", "Who is Ada?") == "Who is?"


@pytest.mark.parametrize(
    ("written", "sources", "spelled"),
    [
        ("who directed the wall?", ["The Wall was directed by whom?"], "Who directed The Wall?"),
        ("who is the maker of it?", ["The maker of It is who?"], "Who is the maker of It?"),
        ("where was {person} born?", ["The Wall was directed by whom?"], "Where was {person} born?"),
        ("who is {actor}'s co - star?", ["X"], "Who is {actor}'s co-star?"),
        ("who plays in {birth_place of it}?", ["X"], "Who plays in {birth_place of it}?"),
        ("what is 3.5 % of 1,000?", ["X"], "What is 3.5% of 1,000?"),
        ('who sang "la vie en rose" first?', ["I like La Vie en Rose."], 'Who sang "La Vie en Rose" first?'),
        ("who is the director of it?", ["Where was the director of It born?"], "Who is the director of It?"),
    ],
)
def test_what_comes_from_nowhere_is_spelled_as_a_sentence(
    tokenizer: PreTrainedTokenizerFast, written: str, sources: list[str], spelled: str
) -> None:
    assert restore(tokenizer, written, *sources) == spelled


def test_a_text_of_json_keeps_its_keys_and_begins_its_questions_with_capitals(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    question = 'When was the Head of "Rosebud" Inc. born, and where is Łódź?'
    parts = ['Who is the Head of "Rosebud" Inc.?', "Where is Łódź?"]
    assert restore(tokenizer, json.dumps(parts, ensure_ascii=False), question) == json.dumps(parts, ensure_ascii=False)
    tree = {
        "question": "Where was the Head of Łódź born?",
        "children": [{"question": "Who heads Łódź?", "relate": {"head": "Łódź", "to": "boss"}}],
    }
    assert json.loads(restore(tokenizer, json.dumps(tree, ensure_ascii=False), question)) == tree


@pytest.mark.parametrize(
    "query",
    [
        '"Port Velm" AND NOT ("Ödegård" OR "salt and pepper")',
        'NOT "Port Velm" AND "The Who"',
        '"Port Velm"',
    ],
)
def test_operators_of_a_logical_query_are_written_as_the_language_has_them(
    tokenizer: PreTrainedTokenizerFast, query: str
) -> None:
    question = "papers on Port Velm and not on Ödegård or salt and pepper, nor The Who"
    assert restore(tokenizer, query, question) == query and logic.parse(query)
    assert restore(tokenizer, 'who said "Port Velm" and "The Who"?', question).startswith("Who said")


def test_the_sources_of_a_prompt_are_its_question_and_steps(tokenizer: PreTrainedTokenizerFast) -> None:
    prompt = TASKS["refine"].render(StepsInput("Where was its Maker born?", (Step("Who made It?", ("Ødegård",)),)))
    assert read_sources(prompt) == ["Where was its Maker born?", "Who made It? = Ødegård"]
    assert restore(tokenizer, "where was ødegård born?", *read_sources(prompt)) == "Where was Ødegård born?"


@pytest.mark.parametrize(
    "plan",
    [
        "Who directed {name}? * When was {{1}} born? => count",
        "(Who directed {name}? * When was {{1}} born?) + (Who wrote Belt? * When was {{3}} born?) => argmin {{1}}",
        "(Who likes {name}? => count) + (Who likes Belt? => count) => equal",
        "Who wrote Belt? * Which of {{1*}} saw {name}? => judge",
    ],
)
def test_numbers_and_operations_come_back_whatever_the_question_names(
    tokenizer: PreTrainedTokenizerFast, plan: str
) -> None:
    name = "Count Equal, the Judge of Argmin"
    text = plan.format(name=name)
    question = f"Which of those who like {name} and Belt was born first?"
    assert parse(restore(tokenizer, text, question)) == parse(text)


@given(name=NAMES)
@LAW
def test_a_plan_of_restored_text_parses_as_the_plan_that_was_meant(
    tokenizer: PreTrainedTokenizerFast, name: str
) -> None:
    name = unicodedata.normalize("NFC", name)
    plan = f"(Who made {name}? + Where is {name}?) * Is {{maker}} in {{place}}?"
    assume(tokenizer(name, add_special_tokens=False)["input_ids"])
    prompt = TASKS["translate_bnf"].render(QuestionInput(f"Is the maker of {name} where {name} is?"))
    assert restore(tokenizer, plan, *read_sources(prompt)) == plan
    assert parse(plan)
