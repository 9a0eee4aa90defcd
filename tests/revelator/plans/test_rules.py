"""Each rule of the language, and the plans of the QCompiler paper."""

import pytest

from revelator.plans import (
    Atomic,
    Dependent,
    Operation,
    Sequence,
    check,
    list_leaves,
    list_placeholders,
    parse,
    render,
    substitute,
)

A, B, C, D = (Atomic(name) for name in "ABCD")


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("A", A),
        ("A * B", Dependent(A, B)),
        ("A × B", Dependent(A, B)),
        ("A + B + C", Sequence((A, B, C))),
        ("A * B * C", Dependent(Dependent(A, B), C)),
        ("A * (B * C)", Dependent(A, Dependent(B, C))),
        ("A + B * C", Sequence((A, Dependent(B, C)))),
        ("(A + B) * C", Dependent(Sequence((A, B)), C)),
        ("A + (B + C)", Sequence((A, B, C))),
        ("((A))", A),
        ("( A + B )*C * D".replace(")*C", ") * C"), Dependent(Dependent(Sequence((A, B)), C), D)),
        ("  A\n*\tB  ", Dependent(A, B)),
        ("A + B => count", Operation(Sequence((A, B)), "count")),
        ("(A => count) + B", Sequence((Operation(A, "count"), B))),
        ("A * (B + C => argmin {2})", Dependent(A, Operation(Sequence((B, C)), "argmin", (2,)))),
        ("(A => union) => count", Operation(Operation(A, "union"), "count")),
    ],
)
def test_operators_bind_and_group_as_the_grammar_says(text, plan):
    assert parse(text) == plan


@pytest.mark.parametrize(
    "text",
    [
        "What is C++?",
        "What is 5*3?",
        "Who directed Titanic (1997 film)?",
        "Who is {director}'s wife?",
        'Who sang "Hello" in 2015?',
        'Who sang "What? (Live) + More" in 2015?',
        'How long is a 12" ruler?',
        "(Live) at Leeds",
        "f(x) or g()?",
        "من أخرج الفيلم؟",
        "A+B",
        "(A)*(B)",
        "a {b, c} {} d",
        "a=>b",
        "x <= y = z",
    ],
)
def test_what_is_not_syntax_is_text_and_stays_as_it_is(text):
    assert parse(text) == Atomic(text)
    assert render(Atomic(text)) == text


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("What? (Live) + More", '"What? (Live) + More"'),
        ("(A)", '"(A)"'),
        ("", '""'),
        (" A", '" A"'),
        ("A\nB", r'"A\nB"'),
        ('"A"', r'"\"A\""'),
        ("a ) b", '"a ) b"'),
        ("a => count", '"a => count"'),
        ("a =>b", '"a =>b"'),
        ('say "hi', r'"say \"hi"'),
    ],
)
def test_a_text_that_would_read_as_syntax_is_quoted(text, rendered):
    assert render(Atomic(text)) == rendered
    assert parse(rendered) == Atomic(text)


def test_white_space_in_an_unquoted_text_is_folded():
    assert parse("Who   is\nBob?") == Atomic("Who is Bob?")


def test_spans_are_offsets_of_the_text_parsed_and_no_part_of_equality():
    text = "A * (B {x} + C)"
    plan = parse(text)
    assert text[slice(*plan.span)] == text
    assert text[slice(*plan.right.span)] == "(B {x} + C)"
    assert [text[slice(*leaf.span)] for leaf in list_leaves(plan)] == ["A", "B {x}", "C"]
    assert plan == Dependent(A, Sequence((Atomic("B {x}"), C)))


@pytest.mark.parametrize("items", [(), (A,), (A, Sequence((B, C)))])
def test_a_sequence_with_another_spelling_is_refused(items):
    with pytest.raises(ValueError, match="Sequence"):
        Sequence(items)


def test_a_plan_at_the_depth_limit_can_be_compared_shown_checked_and_drawn():
    plan = Atomic("A")
    for step in range(199):
        plan = Dependent(Sequence((plan, B)), C) if step % 3 == 0 and plan.depth < 198 else Dependent(A, plan)
        if plan.depth >= 199:
            break
    assert parse(render(plan)) == plan
    assert len({plan, parse(render(plan))}) == 1
    assert repr(plan).startswith("parse(")
    assert check(plan)


def test_a_plan_beyond_the_depth_limit_is_refused():
    plan = Atomic("A")
    for _ in range(199):
        plan = Dependent(plan, B)
    with pytest.raises(ValueError, match="200"):
        Dependent(plan, B)


def test_placeholders_are_names_in_single_braces():
    assert list_placeholders("{b} and {a b} and {b}, {{c}}, {}, { d}, {e, f}, {g-h}") == ("b", "a b", "g-h")


def test_substitution_fills_names_once_and_frees_doubled_braces():
    assert substitute("{a} {b} {{a}} {c}", {"a": "{b}", "b": "2"}) == "{b} 2 {a} {c}"


def test_table_5_parses_into_a_list_and_two_steps():
    first, second = Atomic("Which continent is Aruba in?"), Atomic("Which country is Prazeres in?")
    third = Atomic("Which colonial holding in {continent} was governed by {country}?")
    fourth = Atomic("How many Germans live in {colonial_holding}?")
    text = f"({first.text} + {second.text}) * {third.text} * {fourth.text}"
    assert parse(text) == Dependent(Dependent(Sequence((first, second)), third), fourth)


def test_table_6_parses_into_a_question_and_a_list_of_three():
    text = (
        "What is JK. Rowling's most popular book? * (Find an introduction to {book} + Find reviews of {book} +"
        " Does the local library have {book}?)"
    )
    plan = parse(text)
    asked = ("Find an introduction to {book}", "Find reviews of {book}", "Does the local library have {book}?")
    assert plan == Dependent(Atomic("What is JK. Rowling's most popular book?"), Sequence(tuple(map(Atomic, asked))))
    assert [leaf.placeholders for leaf in list_leaves(plan)] == [(), ("book",), ("book",), ("book",)]


def test_table_7_parses_into_a_chain_nested_to_the_left():
    one, two, three = (
        "Who is the creator of La Schiavona?",
        "Where did {creator} die?",
        "Why did Roncalli leave {city}?",
    )
    assert parse(f"{one} * {two} * {three}") == Dependent(Dependent(Atomic(one), Atomic(two)), Atomic(three))


def test_table_8_parses_into_a_list_of_four():
    questions = [
        "What are the current geopolitical tensions affecting the semiconductor industry",
        "What are the current supply chain disruptions affecting the semiconductor industry",
        "How might the semiconductor industry adapt to the geopolitical tensions over the next five years",
        "How might the semiconductor industry adapt to the supply chain disruptions over the next five years",
    ]
    assert parse(" + ".join(questions)) == Sequence(tuple(map(Atomic, questions)))


def test_table_9_parses_into_a_list_of_two_chains():
    def chain(place):
        who = Atomic(f"Who are the top 5 EV manufacturers in {place}")
        share = f"What is the market share and revenue growth of {{manufacturer}} in {place} over the last 3 years"
        return Dependent(who, Atomic(share))

    plan = Sequence((chain("North America"), chain("Europe")))
    assert parse(" + ".join(render(item) for item in plan.items)) == plan
    assert check(plan) == check(plan, "paper") == ()
