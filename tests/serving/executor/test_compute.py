"""Answers computed from the answers of a plan's parts."""

import random
from dataclasses import replace

import pytest

from serving.merge.compute import compute
from serving.merge.parts import Member, Part
from serving.merge.wording import find_labels


def part(question: str, *answers: str, **lineage: str) -> Part:
    return Part((question,), (Member(lineage, answers),))


def fan(question: str, name: str, **values: str) -> Part:
    return Part((question,), tuple(Member({name: key}, (value,)) for key, value in values.items()))


def answers(question: str, *parts: Part) -> tuple[str, ...] | None:
    merged = compute(question, parts)
    return merged.answers if merged else None


def born(name: str, value: str) -> Part:
    return part(f"When was {name} born?", value)


@pytest.mark.parametrize(
    ("question", "first", "second", "winner"),
    [
        ("Who was born first, Ann Lee or Bob Ray?", "3 May 1950", "June 1950", "Ann Lee"),
        ("Who was born later, Ann Lee or Bob Ray?", "3 May 1950", "1951-06-01", "Bob Ray"),
        ("Who is older, Ann Lee or Bob Ray?", "1950", "1949", "Bob Ray"),
        ("Who is older, Ann Lee or Bob Ray?", "61", "sixty", "Ann Lee"),
        ("Is Ann Lee or Bob Ray younger?", "May 3, 1950", "44 BC", "Ann Lee"),
        ("Which is taller: Ann Lee or Bob Ray?", "6 ft 2 in", "190 cm", "Bob Ray"),
        (
            "Which is more expensive: Ann Lee or Bob Ray?",
            "88 crowns per square metre",
            "71 crowns per square metre",
            "Ann Lee",
        ),
        ("Which is cheaper: Ann Lee or Bob Ray?", "€20 an hour", "€25 an hour", "Ann Lee"),
        ("Of Ann Lee and Bob Ray, which one sold more copies?", "1.2 million", "900,000", "Ann Lee"),
        ("Who came out more recently, Ann Lee or Bob Ray?", "1950", "1960", "Bob Ray"),
        ("Which is shorter, Ann Lee or Bob Ray?", "2 hours 10 minutes", "125 minutes", "Bob Ray"),
        ("Which has fewer pages, Ann Lee or Bob Ray?", "1,204", "993", "Bob Ray"),
        ("Which has more memory, Ann Lee or Bob Ray?", "512 MB", "64 GB", "Bob Ray"),
        ("Which leaves earlier, Ann Lee or Bob Ray?", "7:40 pm", "06:15", "Bob Ray"),
        ("Which is hotter, Ann Lee or Bob Ray?", "310 °C", "295 °C", "Ann Lee"),
    ],
)
def test_a_comparison_names_the_winner_as_the_question_does(question, first, second, winner):
    parts = [born("Ann Lee", first), born("Bob Ray", second)]
    assert answers(question, *parts) == (winner,) == answers(question, *parts[::-1])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1950", "1950"),
        ("1950", "3 May 1950"),
        ("long ago", "1950"),
        ("", "1950"),
        ("1950s", "1955"),
        ("1950–1960", "1955"),
        ("a film of 1984 about 1999", "1990"),
    ],
)
def test_a_comparison_that_cannot_be_decided_is_left_open(first, second):
    assert answers("Who was born first, Ann or Bob?", born("Ann", first), born("Bob", second)) is None


def test_values_of_different_dimensions_are_not_compared():
    parts = [part("How big is Ann?", "3 kg"), part("How big is Bob?", "2 m")]
    assert answers("Which is larger, Ann or Bob?", *parts) is None


@pytest.mark.parametrize(
    ("first", "second"), [("Apollo 13", "Apollo 11"), ("1,5 million", "2 million"), ("5'11\"", "6'2\""), ("1/2", "2")]
)
def test_what_is_no_date_or_quantity_as_a_whole_is_not_compared(first, second):
    parts = [part("What of Ann?", first), part("What of Bob?", second)]
    assert answers("Which is larger, Ann or Bob?", *parts) is None


@pytest.mark.parametrize(
    "question",
    [
        "Is Ann not larger than Bob?",
        "Is Ann no larger than Bob?",
        "Which isn't the larger, Ann or Bob?",
        "Is Ann more than 3 km from Bob?",
        "Which of Ann and Bob is less than ten km long?",
        "Do Ann and Bob have at least 3 km?",
    ],
)
def test_a_negation_or_a_condition_on_each_is_no_comparison_of_the_two(question):
    assert answers(question, part("What of Ann?", "5 km"), part("What of Bob?", "4 km")) is None


def test_a_film_is_named_where_the_film_is_asked_for_and_its_director_where_that_is():
    parts = [
        Part(("Who directed Taxi!?", "When did {director} die?"), (Member({"director": "Roy"}, ("1950",)),)),
        Part(("Who directed The Hours?", "When did {director} die?"), (Member({"director": "Cuk"}, ("1983",)),)),
    ]
    assert answers("Which film has the director who died later, Taxi! or The Hours?", *parts) == ("The Hours",)
    assert answers("Which director died later, Taxi!'s or The Hours's?", *parts) == ("Cuk",)
    assert answers("Who died first, the director of Taxi! or the director of The Hours?", *parts) == ("Roy",)


def test_words_inside_a_title_are_no_operation():
    parts = [part("When was The first of May released?", "1950"), part("When was Bob released?", "1960")]
    assert answers("Which was released later, The first of May or Bob?", *parts) == ("Bob",)


def test_a_question_of_yes_or_no_compares_in_the_order_in_which_it_names_the_two():
    parts = [born("Ann", "1950"), born("Bob", "1960")]
    assert answers("Is Ann older than Bob?", *parts) == ("yes",)
    assert answers("Was Bob born before Ann?", *parts) == ("no",)


def test_lifetimes_are_computed_from_births_and_deaths():
    parts = [
        part("When was Ann born?", "1 May 1900"),
        part("When did Ann die?", "1980"),
        part("When was Bob born?", "1910"),
        part("When did Bob die?", "3 June 1950"),
    ]
    assert answers("Who lived longer, Ann or Bob?", *parts) == ("Ann",)
    close = [*parts[:2], part("When was Bob born?", "1910"), part("When did Bob die?", "3 June 1990")]
    assert answers("Who lived longer, Ann or Bob?", *close) is None


@pytest.mark.parametrize(
    ("question", "first", "second", "answer"),
    [
        ("Are Ann and Bob from the same country?", "American", "the U.S.", "yes"),
        ("Are Ann and Bob from the same country?", "India", "Indonesian", "no"),
        ("Were Ann and Bob born in the same city?", "Ayr", "ayr", "yes"),
        ("Were Ann and Bob born in the same year?", "3 May 1950", "1950", "yes"),
        ("Were Ann and Bob born on the same day?", "3 May 1950", "May 3, 1950", "yes"),
        ("Were Ann and Bob born on the same day?", "3 May 1950", "4 May 1950", "no"),
        ("Are both Ann and Bob painters?", "yes", "no", "no"),
        ("Are both Ann and Bob painters?", "yes", "yes", "yes"),
        ("Do Ann and Bob have the same length?", "1,000 m", "1 km", "yes"),
        ("Do Ann and Bob have the same number of pages?", "1204", "1,205", "no"),
        ("Were Ann and Bob born in the same decade?", "1957", "3 May 1951", "yes"),
        ("Were Ann and Bob born in the same century?", "1900", "12 May 1901", "no"),
        ("Were Ann and Bob built in the same month?", "3 May 1950", "May 1950", "yes"),
        ("Do Ann and Bob share a border?", "no", "no", "no"),
    ],
)
def test_same_and_both_are_answered_with_yes_or_no(question, first, second, answer):
    assert answers(question, part("What of Ann?", first), part("What of Bob?", second)) == (answer,)


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        ("Are Ann and Bob both directors?", "writer", "writer"),
        ("Were both Ann and Bob born in 1950?", "1951", "1951"),
        ("Do both Ann and Bob have more than 5 members?", "4", "4"),
        ("Are Ann and Bob both American?", "American", "United States"),
        ("Are Ann and Bob not from the same country?", "Peru", "Chad"),
    ],
)
def test_that_two_answers_are_alike_says_nothing_of_what_the_question_names(question, first, second):
    assert answers(question, part("What of Ann?", first), part("What of Bob?", second)) is None


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        ("Were Ann and Bob born on the same date?", "1957", "12 May 1957"),
        ("Were Ann and Bob born on the same date?", "1957", "1957"),
        ("Were Ann and Bob born on the same day?", "12 May 1957", "12 May 1960"),
        ("Were Ann and Bob born in the same decade?", "the 1950s", "1957"),
        ("Are Ann and Bob of the same class?", "Type 42", "the 42"),
        ("Were Ann and Bob born in the same city?", "Ayr", "Ayr, Scotland"),
        ("Do Ann and Bob have the same height?", "3 m", "3 kg"),
        ("Are Ann and Bob from the same village?", "no", "no"),
    ],
)
def test_what_may_be_the_same_or_not_is_left_open(question, first, second):
    assert answers(question, part("What of Ann?", first), part("What of Bob?", second)) is None


def test_the_same_of_several_is_one_that_both_have_and_lists_are_the_same_as_a_whole():
    parts = [part("Who directed A?", "Ann", "Bob"), part("Who directed B?", "bob", "Cy")]
    assert answers("Are A and B by the same director?", *parts) == ("yes",)
    assert answers("Are the directors of A and B the same?", *parts) == ("no",)
    assert answers("Are the directors of A and B the same?", parts[0], part("Who directed B?", "Bob", "ann")) == (
        "yes",
    )


def test_that_lists_share_nothing_is_not_said_for_they_may_only_be_written_differently():
    parts = [part("Which films has Ann?", "A", "B"), part("Which films has Bob?", "B (film)")]
    assert answers("Which films have both Ann and Bob?", *parts) is None
    assert answers("How many films have both Ann and Bob?", *parts) is None


def test_of_a_part_that_is_not_whole_nothing_is_computed():
    years = fan("When was {film} released?", "film", A="1950", B="1949", C="1960")
    cut = replace(years, whole=False)
    for question in ("Which of X's films came first?", "How many of X's films came out after 1949?"):
        assert answers(question, years) is not None and answers(question, cut) is None
    times = fan("How long is {film}?", "film", A="90 min", B="90 min")
    assert answers("How long are X's films in total?", times) == ("180 min",)
    assert answers("How long are X's films in total?", replace(times, whole=False)) is None
    parts = [replace(part("Which films has Ann?", "A"), whole=False), part("Which films has Bob?", "A")]
    assert answers("Which films have both Ann and Bob?", *parts) is None


def test_what_two_lists_share_is_their_intersection():
    parts = [part("Which films has Ann?", "A", "B", "C"), part("Which films has Bob?", "c", "B")]
    assert answers("Which films have both Ann and Bob?", *parts) == ("B", "C")
    assert answers("How many films have both Ann and Bob?", *parts) == ("2",)


def test_a_list_is_counted_and_a_number_that_was_read_is_left_as_it_is():
    assert answers("How many films did Ann direct?", part("Which films did Ann direct?", "A", "B", "A")) == ("2",)
    assert answers("How many people live in Ayr?", part("What is the population of Ayr?", "46,260")) is None
    assert answers("How many films did Ann direct?", part("How many films did Ann direct?", "a handful")) is None


def test_numbers_are_added_or_subtracted_where_the_question_says_so():
    parts = [part("How many pages has A?", "1,200"), part("How many pages has B?", "nine hundred")]
    assert answers("How many pages do A and B have in total?", *parts) == ("2,100",)
    assert answers("How many more pages has A than B?", *parts) == ("300",)
    years = [part("When was A founded?", "3 May 1950"), part("When was B founded?", "1939")]
    assert answers("How many years apart were A and B founded?", *years) == ("11",)
    times = [part("How long is A?", "2 hours"), part("How long is B?", "95 minutes")]
    assert answers("By how many minutes do A and B differ in running time?", *times) == ("25",)


def test_the_member_of_a_fan_out_with_the_extreme_value_is_named():
    released = fan("When was {film} released?", "film", A="3 May 1950", B="1949", C="1960")
    assert answers("Which of X's films was released earliest?", released) == ("B",)
    assert answers("Which of X's films is the newest?", released) == ("C",)
    assert answers("When was the earliest film of X released?", released) == ("1949",)


def test_a_pronoun_is_named_by_the_value_found_for_it():
    parts = [
        Part(("Who is the child of Ann?", "When was {child} born?"), (Member({"child": "Cy"}, ("1950",)),)),
        Part(
            ("Who is the child of Ann?", "Who is the father of {child}?", "When was {father} born?"),
            (Member({"child": "Cy", "father": "Dan"}, ("1920",)),),
        ),
    ]
    assert answers("Who is older: the child of Ann or her father?", *parts) == ("Dan",)


def test_a_description_with_a_comparing_word_is_no_comparison():
    parts = [
        Part((f"What is the largest city in {x}?", "When was {city} founded?"), (Member({"city": c}, (year,)),))
        for x, c, year in (("Peru", "Lim", "1585"), ("Chad", "Nja", "1900"))
    ]
    question = "Which city was founded first, the largest city in Peru or the largest city in Chad?"
    assert answers(question, *parts) == ("Lim",)


def test_the_members_of_a_fan_out_that_meet_a_condition_are_counted():
    countries = fan("Which country is {child} from?", "child", a="Peru", b="Chad", c="Peru")
    assert answers("How many of Ann's children are from Peru?", countries) == ("2",)
    years = fan("When was {film} released?", "film", A="3 May 1950", B="1949", C="1960")
    assert answers("How many of X's films came out after 1950?", years) == ("1",)
    assert answers("How many of X's films came out before 1960?", years) == ("2",)
    decade = fan("When was {film} released?", "film", A="the 1950s", B="1949")
    assert answers("How many of X's films came out after 1949?", decade) is None
    assert answers("How many of X's films did not come out after 1949?", years) is None


def test_what_is_only_described_is_named_by_the_value_found_for_it():
    parts = [
        part("How high is Ben Ayr?", "900 m"),
        Part(("Which hill is nearest to Cox?", "How high is {hill}?"), (Member({"hill": "Dun"}, ("950 m",)),)),
    ]
    assert answers("Which is higher, Ben Ayr or the hill nearest to Cox?", *parts) == ("Dun",)
    assert answers("Which is lower, Ben Ayr or the hill nearest to Cox?", *parts) == ("Ben Ayr",)


def test_the_member_of_a_list_of_more_things_is_named():
    parts = [part("Who are the children of Ann?", "a", "b"), part("Who are the children of Bob?", "c")]
    assert answers("Who has more children, Ann or Bob?", *parts) == ("Ann",)


def test_without_an_operation_or_with_a_part_missing_nothing_is_computed():
    assert answers("Who wrote A and where is B?", part("Who wrote A?", "p"), part("Where is B?", "Ayr")) is None
    assert answers("Who was born first, Ann or Bob?", born("Ann", "1950"), Part(("When was Bob born?",), ())) is None


def test_labels_of_a_long_question_are_found_at_once():
    words = " ".join(random.Random(1).choices("ABCDEF", k=2_000))
    assert find_labels(words, [["Who wrote A B?"], [words]]) == ["", words]


def test_labels_are_found_whatever_stands_around_them():
    parts = [["Who is the director of The Beat?"], ["Who is the director of The Bells, Part 2?"]]
    for question in (
        "Which film has the director who died later, The Beat or The Bells, Part 2?",
        "Between The Beat and The Bells, Part 2, which has the older director?",
        "Is The Beat older than The Bells, Part 2?",
    ):
        assert find_labels(question, parts) == ["The Beat", "The Bells, Part 2"]
    assert find_labels("Which came first?", parts) == ["", ""]


@pytest.mark.parametrize(
    ("question", "first", "second", "answer"),
    [
        ("What is the total length of A and B?", "3 km", "2 miles", "6.218688 km"),
        ("How many kilometres long are A and B together?", "3 km", "2 miles", "6.218688"),
        ("What is the average length of A and B?", "3 km", "2 km", "2.5 km"),
        ("What did A and B cost altogether?", "$3 million", "$500,000", "$3,500,000"),
        ("How many days lie between A and B?", "28 February 2024", "1 March 2024", "2"),
    ],
)
def test_quantities_are_added_up_in_the_unit_that_is_asked_for_or_stands_first(question, first, second, answer):
    assert answers(question, part("What of A?", first), part("What of B?", second)) == (answer,)


@pytest.mark.parametrize(
    ("question", "first", "second", "answer"),
    [
        ("What is the difference in length between A and B?", "6,650 km", "6,400 km", "250 km"),
        ("How many more kilometres long is A than B?", "6,650 km", "6,400 km", "250"),
        ("How many kilometres longer is A than B?", "6,650 km", "6,400 km", "250"),
        ("How many kilometres longer is A than B?", "6,650", "6,400", "250"),
        ("How much longer is A than B?", "6,650 km", "6,400 km", "250 km"),
        ("What is the difference between A and B in miles?", "6,650 km", "6,400 km", "155.342798"),
        ("How many more years did A live than B?", "80 years", "70 years", "10"),
        ("How many years older is A than B?", "3 May 1950", "1960", "10"),
        ("What is the difference in cost between A and B?", "$5 million", "$3 million", "$2,000,000"),
        ("What is the difference in cost between A and B?", "£5 million", "£3 million", "£2,000,000"),
        ("What is the difference in size between A and B?", "12 sq mi", "10 km²", "8.138978 sq mi"),
        ("How many square kilometres larger is A than B?", "12 km²", "10 km²", "2"),
    ],
)
def test_a_difference_stands_in_the_unit_that_is_asked_for_or_in_the_first_values(question, first, second, answer):
    assert answers(question, part("What of A?", first), part("What of B?", second)) == (answer,)


@pytest.mark.parametrize(
    ("question", "first", "second"),
    [
        ("What is the difference between A and B?", "3 May 1950", "10 June 1950"),
        ("How many months apart were A and B?", "1950", "1960"),
        ("How many years apart were A and B?", "the 1950s", "1960"),
        ("How many days apart were A and B?", "May 1950", "3 June 1950"),
        ("How many people older than sixty live in A and B?", "300", "200"),
        ("What is the difference between A and B?", "Apollo 13", "Apollo 11"),
    ],
)
def test_a_difference_that_the_values_do_not_give_is_left_open(question, first, second):
    assert answers(question, part("What of A?", first), part("What of B?", second)) is None


def test_a_title_is_no_question_for_a_difference():
    parts = [part("When was A World Apart released?", "1988"), part("When was Bob released?", "1990")]
    assert answers("Which film came out first, A World Apart or Bob?", *parts) == ("A World Apart",)


@pytest.mark.parametrize(("first", "second"), [("1950", "1960"), ("3 km", "2 kg"), ("Apollo 13", "11"), ("3 km", "?")])
def test_what_cannot_be_added_is_not(first, second):
    question = "In what year was the total of A and B reached?"
    assert answers(question, part("What of A?", first), part("What of B?", second)) is None
