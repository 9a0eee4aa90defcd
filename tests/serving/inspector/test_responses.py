"""OpenAI's Responses API, asked with OpenAI's own package."""

from __future__ import annotations

import httpx
import openai
import pytest
from openai.types.responses import Response

from revelator.errors import Unavailable
from revelator.tasks import Step
from serving.inspector.chat import describe_error
from serving.inspector.reply import read_answer
from serving.protocols import Reading, Writing
from tests.serving.inspector.test_chat import BOTH, COMPOSED, LEVEY
from tests.serving.inspector.world import PLAN, QUESTION, Asked, inspecting, runs_in, speaking


def test_a_question_is_answered_with_its_sources_as_annotations(client):
    said = client.responses.create(model="revelator", input=QUESTION)
    assert (said.status, said.output_text, said.error) == ("completed", BOTH, None)
    [message] = said.output
    [part] = message.content
    marks = [(note.filename, part.text[note.index :].strip()[:3]) for note in part.annotations]
    assert [mark for _, mark in marks] == ["[1]", "[2]"] and all(
        note.type == "file_citation" for note in part.annotations
    )
    assert said.usage.total_tokens == said.usage.input_tokens + said.usage.output_tokens == 20


def test_the_stream_s_events_are_those_that_openai_s_client_puts_together_and_end_with_the_same_response(client):
    with client.responses.stream(model="revelator", input=[{"role": "user", "content": QUESTION}]) as stream:
        events = list(stream)
        whole = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == BOTH
    plain = client.responses.create(model="revelator", input=QUESTION)
    assert whole.output_text == plain.output_text
    assert [a.to_dict() for a in whole.output[0].content[0].annotations] == [
        a.to_dict() for a in plain.output[0].content[0].annotations
    ]


def test_a_text_comes_as_it_is_written(one, tmp_path):
    one.world.writing, one.world.text = Writing(text=True), COMPOSED
    one.world.outputs["translate_bnf"] = PLAN
    with inspecting([one.server()], runs_in(tmp_path)) as url, speaking(url) as client:
        events = list(client.responses.create(model="revelator", input=QUESTION, stream=True))
        plain = client.responses.create(model="revelator", input=QUESTION)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas[0] == "Detroit" and len(deltas) > 3 and "".join(deltas) == plain.output_text
    assert [event.type for event in events].count("response.output_item.added") == 1


@pytest.fixture
def one() -> Asked:
    asked = Asked("one", "1")
    asked.world.outputs["translate_bnf"] = LEVEY
    return asked


def test_an_earlier_response_is_what_a_follow_up_refers_to(one, tmp_path):
    one.world.knowledge["rewrite: And where was he born?"] = [LEVEY]
    with inspecting([one.server()], runs_in(tmp_path)) as url, speaking(url) as client:
        first = client.responses.create(model="revelator", input=QUESTION)
        second = client.responses.create(
            model="revelator", input="And where was he born?", previous_response_id=first.id, instructions="Be brief."
        )
        assert second.previous_response_id == first.id and read_answer(second.output_text)
        [request] = [request for request in one.world.requests if request.mode == "rewrite"]
        assert request.steps[0].question == QUESTION and isinstance(request.steps[0], Step)
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="revelator", input="And?", previous_response_id="resp_none")


def test_an_earlier_response_to_a_message_that_asked_for_nothing_is_no_history(one, tmp_path):
    one.world.writing = Writing(reads_messages=True)
    one.world.knowledge["rewrite: Danke!"] = Reading("", (), asks_nothing=True)
    with inspecting([one.server()], runs_in(tmp_path)) as url, speaking(url) as client:
        first = client.responses.create(model="revelator", input="Danke!")
        client.responses.create(model="revelator", input=LEVEY, previous_response_id=first.id)
    assert [request.steps for request in one.world.requests if request.mode == "rewrite"] == [(), ()]


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"input": QUESTION, "tools": [{"type": "web_search"}]}, "tools"),
        ({"input": QUESTION, "background": True}, "background"),
        ({"input": QUESTION, "text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"input": [{"role": "assistant", "content": "Detroit"}]}, "input"),
        ({"input": []}, "input"),
    ],
)
def test_what_would_change_the_kind_of_answer_is_refused_by_name(client, wanted, named):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="revelator", **wanted)
    assert refused.value.param == named


def test_an_error_keeps_its_status_and_one_after_the_beginning_ends_the_stream(one, tmp_path):
    one.refusals = [Unavailable("no model answers", where="model revelator")]
    with inspecting([one.server()], runs_in(tmp_path)) as url, speaking(url) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            client.responses.create(model="revelator", input=QUESTION)
        assert refused.value.status_code == 503
        assert refused.value.code == describe_error(Unavailable("x"))["error"]["code"]
        with pytest.raises(openai.NotFoundError):
            client.responses.create(model="gpt-5", input=QUESTION)


@pytest.mark.parametrize("path", ["/responses", "/chat/completions"])
def test_a_client_that_leaves_a_request_without_a_stream_ends_its_question(tmp_path, path):
    one = Asked("one", "1")
    one.world.gate("Who directed UHF?")
    body = {"model": "revelator", "input": QUESTION, "messages": [{"role": "user", "content": QUESTION}]}
    with inspecting([one.server()], runs_in(tmp_path)) as url:
        with httpx.Client(trust_env=False) as client, pytest.raises(httpx.ReadTimeout):
            client.post(f"{url}/v1{path}", json=body, timeout=httpx.Timeout(10, read=1.0))
        assert one.begun.is_set() and one.left.wait(30)


def test_the_body_is_what_openai_s_type_describes(client):
    raw = client.responses.with_raw_response.create(model="revelator", input=QUESTION)
    Response.model_validate_json(raw.text)
