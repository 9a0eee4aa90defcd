"""A reply of the chat and what of it is history: two parts that can be told apart whatever they say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from revelator.answers import CITATION, find_text
from revelator.trace import Node, Passage, Trace
from serving.inspector.reply import read_answer, write_reply

TEXT = st.text(alphabet='ab >\\-[]12\n{"', max_size=40)


@given(
    st.lists(TEXT.filter(str.strip), min_size=1, max_size=3),
    TEXT,
    TEXT,
    st.sampled_from([None, "late", "nothing said it"]),
)
def test_history_is_the_values_and_the_text_whatever_stands_in_them(values, text, sentence, doubt):
    step = Node("1", "atomic", "Who?", asked="Who?", answers=values, sentence=sentence)
    step.documents, step.detail = [Passage("p", sentence, text)], {"document": "p", "respelled": {"wer": ["were"]}}
    if doubt:
        step.detail["unsupported"] = doubt
    trace = Trace("Who?", "auto", answer=", ".join(values), answers=values, text=text, nodes=[step])
    reply = write_reply(trace)
    bare = "\n\n".join(filter(None, [" ".join(trace.answer.split()), CITATION.sub("", find_text(trace))]))
    assert read_answer(reply) == bare.strip()
    assert "> - [1] " in reply and "wer" in reply and (not doubt or doubt in reply)


@given(TEXT)
def test_a_reply_without_an_answer_leaves_no_history(question):
    silent = Node("1", "atomic", question, asked=question, status="unanswered", error="no answer was found")
    assert read_answer(write_reply(Trace(question, "auto", outcome="unanswered", nodes=[silent]))) == ""


def test_another_model_s_reply_is_history_as_it_stands():
    said = "It was [1] Ana.\n\nShe lives in Oslo [2]."
    assert read_answer(said) == said
