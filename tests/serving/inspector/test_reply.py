"""A reply of the chat and what of it is history: two parts that can be told apart whatever they say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.answers import CITATION, find_text
from revelator.errors import ServingError
from revelator.trace import Event, Node, Passage, Trace
from serving.executor.merging import drop_unknown_citations
from serving.inspector.reply import ReplyStream, read_answer, write_reply

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


@given(
    TEXT.filter(str.strip),
    st.text(alphabet='ab >\\-[]129\n{"`é', max_size=60),
    st.sampled_from(["", "ab", "a b [1]", '["a"]', "```json"]),
)
@settings(max_examples=300)
def test_the_pieces_of_a_stream_are_the_whole_reply_whatever_is_written(value, text, begin):
    step = Node("1", "atomic", "Who?", asked="Who?", answers=[value], sentence="ab a")
    step.documents, step.detail = [Passage("p", "P", "ab a")], {"document": "p"}
    trace = Trace("Who?", "auto", answer=value, answers=[value], nodes=[step])
    stream, whole = ReplyStream(lambda: replace(trace)), (begin + text).strip()
    letters = [end for end in range(len(whole) + 1) if whole[:end][-1:].isalpha()]
    told = [drop_unknown_citations(whole[:end], 1) for end in letters]
    pieces = [stream.add(Event("written", None, 0.0, {"text": text})) for text in ("", *told)]
    reply = write_reply(replace(trace, text=drop_unknown_citations(whole, 1)))
    assert "".join(pieces) + stream.finish(reply) == reply


def test_a_text_that_was_changed_after_it_had_begun_to_be_sent_is_an_error_and_no_wrong_reply():
    stream = ReplyStream(lambda: Trace("Who?", "auto", answer="Ann", answers=["Ann"]))
    assert stream.add(Event("written", None, 0.0, {"text": "It was Ann"})) == "Ann\n\nIt was Ann"
    with pytest.raises(ServingError, match="changed"):
        stream.finish("Ann\n\nIt was Bo.")


def test_another_model_s_reply_is_history_as_it_stands():
    said = "It was [1] Ana.\n\nShe lives in Oslo [2]."
    assert read_answer(said) == said
