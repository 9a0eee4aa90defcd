"""The sentence by which a passage is judged beside the whole."""

from hypothesis import given
from hypothesis import strategies as st

from revelator.trace import Passage
from serving.retrieval.snippets import choose_sentences
from tests.serving.executor.world import Toy

PEOPLE = "Owen Sturgess is a carpenter. He was born in Hallowick. Ingrid Vale is a nurse. Paul Abara teaches physics."
HUTS = "Larch Hut sleeps twelve people. Its key is held by Paul Abara."


def choose(question, *texts, title=""):
    return choose_sentences(question, [Passage("", title, text) for text in texts])


def test_it_has_most_of_the_questions_words_and_rare_ones_count_more():
    found = choose("Where does Paul Abara teach?", PEOPLE, HUTS)
    assert found == ["Paul Abara teaches physics.", "Its key is held by Paul Abara."]
    assert choose("How many people can Larch Hut sleep?", PEOPLE, HUTS)[1] == "Larch Hut sleeps twelve people."


def test_words_of_the_title_do_not_count():
    assert choose("Who holds the key of Larch Hut?", HUTS) == ["Larch Hut sleeps twelve people."]
    assert choose("Who holds the key of Larch Hut?", HUTS, title="Larch Hut") == ["Its key is held by Paul Abara."]


def test_a_text_of_one_sentence_or_without_a_word_of_the_question_has_none():
    assert choose("Who holds the key?", "The key is here.", PEOPLE, "", "。。") == ["", "", "", ""]


SENTENCE = st.text(st.sampled_from("abc .\n?。é"), max_size=30)


@given(SENTENCE, st.lists(SENTENCE, max_size=4), SENTENCE)
def test_it_is_a_part_of_its_text(question, texts, title):
    for text, chosen in zip(texts, choose(question, *texts, title=title), strict=True):
        assert chosen in text and (not chosen or chosen == chosen.strip() != text.strip())


class List(Toy):
    """An index of one list."""

    async def search(self, query, k, scope=None):
        return [Passage("people", "Who is who", PEOPLE, 1.0)]


async def test_a_line_of_a_list_that_answers_makes_the_list_relevant():
    judged = {"carpenter": 0.001, "Paul Abara": 0.99}  # the whole by its first words, the sentence by its own
    world = List({"Where does Paul Abara teach?": ["physics"]}, relevance=judged)
    trace = await world.executor().run("Where does Paul Abara teach?", strategy="single")
    assert (trace.answers, trace.nodes[0].documents[0].relevance) == (["physics"], 0.99)
    assert world.calls == [("relevance", 2, 0.0)]
