"""The OpenAI-compatible route, asked with OpenAI's own package."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import openai
import pytest

from revelator.errors import DeadlineExceeded, Overloaded, Unavailable
from revelator.tasks import Step
from revelator.trace import Passage
from serving.inspector.reply import NOTHING_ASKED, NOTHING_FOUND
from serving.knowledge.sources import Sources
from serving.protocols import TEXT, PassagePlace, Reading, Writing
from tests.serving.inspector.world import PLAN, QUESTION, Asked, World, asking, inspecting, runs_in, speaking

# what the passages say, paraphrased
BOTH = "Detroit\n\n> Sources:\n> - [1] UHF: It is Jay Levey.\n> - [2] Jay Levey: It is Detroit."
LAST = "Detroit\n\n> Sources:\n> - [1] Jay Levey: It is Detroit."


def messages(*texts: str) -> list:
    return [{"role": "user", "content": text} for text in texts]


def test_a_question_is_answered(client):
    said = client.chat.completions.create(model="revelator", messages=messages(QUESTION))
    assert said.choices[0].message.content == BOTH and said.choices[0].finish_reason == "stop"


def test_the_language_model_s_tokens_are_counted_apart_from_those_of_who_plans_and_judges(client):
    usage = client.chat.completions.create(model="revelator", messages=messages(QUESTION)).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (14, 6, 20), "two readings"
    planning = usage.model_dump()["revelator"]
    assert planning["total_tokens"] == planning["prompt_tokens"] + planning["completion_tokens"] > 20


def test_a_stream_thinks_aloud_and_then_answers(client):
    wanted = {"model": "revelator", "messages": messages("Hello?", QUESTION)}
    chunks = list(client.chat.completions.create(**wanted, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thoughts = [delta.reasoning_content for delta in deltas if hasattr(delta, "reasoning_content")]
    assert "".join(delta.content or "" for delta in deltas) == BOTH
    assert thoughts[0].startswith("plan: Who directed UHF?") and "Who directed UHF? → Jay Levey\n" in thoughts
    assert chunks[-1].usage.total_tokens > 0 and chunks[-2].choices[0].finish_reason == "stop"


LEVEY = "Where was Jay Levey born?"
FOLLOW_UP = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "Who directed UHF?"},
    {"role": "assistant", "content": "Jay Levey"},
    {"role": "user", "content": "And where was he born?"},
]


@pytest.fixture
def one() -> Asked:
    asked = Asked("one", "1")
    asked.world.outputs["translate_bnf"] = "Where was Jay Levey born?"
    return asked


def say(asked: Asked, folder: Path, said: list) -> str:
    with (
        inspecting([asked.server()], runs_in(folder)) as url,
        speaking(url) as client,
    ):
        return client.chat.completions.create(model="revelator", messages=said).choices[0].message.content or ""


def test_a_language_model_writes_out_what_a_follow_up_refers_to_and_the_reply_says_how_it_was_read(one, tmp_path):
    one.world.knowledge["rewrite: And where was he born?"] = ["Where was\nJay Levey born?"]
    assert say(one, tmp_path, FOLLOW_UP) == f"{LAST}\n>\n> Read as: Where was Jay Levey born?"
    [request] = [request for request in one.world.requests if request.mode == "rewrite"]
    assert request.steps == (Step("Who directed UHF?", ("Jay Levey",)),)


@pytest.mark.parametrize("likely", [{}, {TEXT: 0.9}])
def test_without_a_language_model_the_revelator_writes_it_out(one, tmp_path, likely):
    one.world.outputs["rewrite"], one.world.written = LEVEY, likely
    assert say(one, tmp_path, FOLLOW_UP) == f"{LAST}\n>\n> Read as: {LEVEY}"
    assert one.world.calls[0][0] == "rewrite"


def test_a_message_that_the_revelator_leaves_as_it_is_was_not_read_as_another(one, tmp_path):
    one.world.outputs["rewrite"] = LEVEY
    assert say(one, tmp_path, [*FOLLOW_UP[:3], {"role": "user", "content": LEVEY}]) == LAST


@pytest.mark.parametrize(
    ("written", "likely"), [(LEVEY, 0.2), ("", 1.0), ("x" * 3_000, 1.0)], ids=["unsure", "nothing", "too long"]
)
def test_a_follow_up_that_nobody_understands_is_asked_back_in_the_user_s_words(one, tmp_path, written, likely):
    one.world.outputs["rewrite"], one.world.written = written, {TEXT: likely}
    said = say(one, tmp_path, FOLLOW_UP)
    assert "“And where was he born?”" in said and "“Who directed UHF?”, and the answer was: Jay Levey." in said
    assert one.world.asked == []  # nothing was searched with a question that could be about anybody
    assert all(line.startswith(">") for line in said.splitlines()), "none of it comes back as an answer"


def test_what_has_no_answer_is_put_into_no_question(one, tmp_path):
    one.world.outputs["rewrite"] = "Where was unknown born?"  # as the prompt writes a step without an answer
    said = say(one, tmp_path, [FOLLOW_UP[1], {"role": "assistant", "content": "> None."}, FOLLOW_UP[-1]])
    assert said.startswith("> I do not see whom or what") and one.world.asked == []


def test_a_long_answer_is_repeated_in_part_when_asking_back(one, tmp_path):
    one.world.outputs["rewrite"] = ""
    said = say(one, tmp_path, [FOLLOW_UP[1], {"role": "assistant", "content": "long " * 4000}, FOLLOW_UP[-1]])
    assert "long …" in said and len(said) < 600


def test_a_long_conversation_reaches_the_language_model_cut_to_its_last_turns(one, tmp_path):
    said = [{"role": role, "content": f"{n} {'long ' * 500}"} for n in range(30) for role in ("user", "assistant")]
    say(one, tmp_path, [*said, FOLLOW_UP[-1]])
    steps = one.world.requests[0].steps
    assert [step.question.split()[0] for step in steps] == [str(n) for n in range(20, 30)]
    assert all(len(step.question) == len(step.answers[0]) == 500 for step in steps)


def test_of_an_earlier_reply_only_what_it_answered_is_history(one, tmp_path):
    silent = "Who was the king of UHF?"
    one.world.outputs["translate_bnf"] = [PLAN, silent, LEVEY]
    one.world.knowledge |= {"rewrite: And where was he born?": [LEVEY], f"rewrite: {silent}": [silent]}
    said = [*messages(QUESTION), {"role": "assistant", "content": say(one, tmp_path, messages(QUESTION))}]
    reply = say(one, tmp_path, [*said, *messages(silent)])
    say(one, tmp_path, [*said, *messages(silent), {"role": "assistant", "content": reply}, FOLLOW_UP[-1]])
    [*_, request] = [request for request in one.world.requests if request.mode == "rewrite"]
    assert request.steps == (Step(QUESTION, ("Detroit",)), Step(silent, ()))


def test_what_no_passage_is_about_is_answered_with_what_the_service_does(one, tmp_path):
    one.world.outputs["translate_bnf"] = "Hello there!"
    one.world.relevance = {"Hello": 0.0}
    assert say(one, tmp_path, messages("Hello there!")) == f"> {NOTHING_FOUND}"


def test_a_message_that_asks_for_nothing_is_not_searched_and_no_later_question_refers_to_it(one, tmp_path):
    one.world.writing = Writing(reads_messages=True)
    one.world.knowledge |= {
        "rewrite: Salut !": Reading("", (), 31, 9, asks_nothing=True),
        "rewrite: And where was he born?": [LEVEY],
    }
    reply = say(one, tmp_path, messages("Salut !"))
    assert reply == f"> {NOTHING_ASKED}" and one.world.asked == []
    greeting = [*messages("Salut !"), {"role": "assistant", "content": reply}]
    assert say(one, tmp_path, [*greeting, *FOLLOW_UP]).startswith("Detroit")
    [*_, request] = [request for request in one.world.requests if request.mode == "rewrite"]
    assert request.steps == (Step("Who directed UHF?", ("Jay Levey",)),)


def test_a_first_message_that_asks_something_is_asked_as_it_stands(one, tmp_path):
    one.world.writing = Writing(reads_messages=True)
    one.world.knowledge[f"rewrite: {LEVEY}"] = ["Where was somebody else born?"]
    assert say(one, tmp_path, messages(LEVEY)) == LAST


def test_an_answer_from_the_language_model_s_own_knowledge_says_so(one, tmp_path):
    one.world.writing = Writing(own_knowledge=True)
    one.world.outputs["translate_bnf"] = "Who was it?"
    one.world.knowledge |= {"direct: Who was it?": ["Nobody"]}
    said = say(one, tmp_path, messages("Who was it?"))
    assert said == "Nobody\n\n> This is from the language model's own knowledge, not from the documents."


def test_an_answer_in_part_says_what_is_missing(one, tmp_path):
    one.world.outputs["translate_bnf"] = "Who directed UHF? + Who was it?"
    said = say(one, tmp_path, messages("Who directed UHF and who was it?"))
    assert said.startswith(
        "Jay Levey\n\n> This answers only a part of the question.\n>\n> No answer to “Who was it?”: "
    )


COMPOSED = "Jay Levey [1], who made it, was born in Detroit [2].\n> a quotation"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (COMPOSED, "Detroit\n\nJay Levey [1], who made it, was born in Detroit [2].\n\\> a quotation\n\n>"),
        ("[1]", "Detroit\n\n>"),
        ("Detroit [2].", "Detroit\n\n>"),
        ('```json\n{"answer": "Detroit"}\n```', "Detroit\n\n>"),
        ('["Detroit"]', "Detroit\n\n>"),
    ],
)
def test_the_values_come_before_the_text_which_is_left_out_where_it_says_nothing_more(one, tmp_path, written, shown):
    one.world.writing, one.world.text = Writing(text=True), written
    one.world.outputs["translate_bnf"] = PLAN
    assert say(one, tmp_path, messages(QUESTION)).startswith(f"{shown} Sources:\n")


def test_messages_of_the_system_say_how_the_text_is_written_and_nothing_else(one, tmp_path):
    one.world.writing, one.world.text = Writing(text=True), "Jay Levey wurde in Detroit geboren [1]."
    said = say(one, tmp_path, [{"role": "system", "content": "Antworte auf Deutsch."}, *messages(LEVEY)])
    assert said.startswith("Detroit\n\nJay Levey wurde in Detroit geboren [1].\n\n>")
    [written] = [request for request in one.world.requests if request.style]
    assert (written.mode, written.style, written.question) == ("compose", "Antworte auf Deutsch.", LEVEY)


def test_a_stream_gives_the_values_and_then_the_text_as_it_is_written(one, tmp_path):
    one.world.writing, one.world.text = Writing(text=True), COMPOSED
    one.world.outputs["translate_bnf"] = PLAN
    with inspecting([one.server()], runs_in(tmp_path)) as url, speaking(url) as client:
        chunks = client.chat.completions.create(model="revelator", messages=messages(QUESTION), stream=True)
        pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
        whole = client.chat.completions.create(model="revelator", messages=messages(QUESTION))
    assert pieces[:2] == ["Detroit", "\n\nJay Levey [1], who m"] and len(pieces) > 3
    assert "".join(pieces) == whole.choices[0].message.content


def test_sources_link_to_the_place_on_the_page_by_the_name_that_the_client_calls_it(one, tmp_path):
    indexed = replace(one.server(), sources=Sources.of_index(Shelved()))
    with inspecting([indexed], runs_in(tmp_path)) as url:
        local = url.replace("127.0.0.1", "localhost")
        with speaking(local) as client:
            said = client.chat.completions.create(model="revelator", messages=messages(LEVEY))
            stream = client.chat.completions.create(model="revelator", messages=messages(LEVEY), stream=True)
            streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
            [message] = client.responses.create(model="revelator", input=LEVEY).output
        linked = f"Detroit\n\n> Sources:\n> - [1] [Jay Levey]({local}/?passage=1): It is Detroit."
        assert said.choices[0].message.content == streamed == message.content[0].text == linked
        [note] = message.content[0].annotations
        assert (note.type, note.url, note.title) == ("url_citation", f"{local}/?passage=1", "Jay Levey")
        with asking(url) as page:
            assert page.get("/api/passages", params={"id": "1"}).json()["passage"]["text"] == "<b>Levey</b>"
            missing = page.get("/api/passages", params={"id": "../../etc/passwd"})
            assert missing.status_code == 404 and "no passage" in missing.json()["error"]["message"]


@dataclass
class Shelved(World):
    async def open_passage(self, id: str, scope: object = None) -> PassagePlace | None:
        return PassagePlace(Passage("1", "Jay Levey", "<b>Levey</b>")) if id == "1" else None

    def describe(self, scope: object = None) -> dict[str, Any]:
        return {"passages": 1}


def test_text_parts_are_a_question_too(client):
    parts = [{"type": "text", "text": QUESTION}]
    said = client.chat.completions.create(model="revelator", messages=[{"role": "user", "content": parts}])
    assert said.choices[0].message.content == BOTH


def test_a_model_for_each_server(client):
    names = [model.id for model in client.models.list()]
    assert names == ["revelator", "revelator@127.0.0.1:8001", "revelator@127.0.0.1:9001"]
    said = client.chat.completions.create(model=names[2], messages=messages(QUESTION))
    assert said.model == client.models.retrieve(names[2]).id == names[2]
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.models.retrieve("other")


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "assistant", "content": "Hm."}]}, "messages"),
        ({"messages": messages(QUESTION), "n": 2}, "n"),
        ({"messages": messages(QUESTION), "response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": messages("")}, None),
    ],
)
def test_what_cannot_be_done_is_a_bad_request_that_names_the_field(client, wanted, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="revelator", **wanted)
    assert (refused.value.type, refused.value.param) == ("invalid_request_error", param)


def test_a_model_that_does_not_exist_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="gpt-9", messages=messages(QUESTION))
    assert refused.value.code == "model_not_found" and refused.value.param == "model"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (Overloaded("full", hint="later"), openai.RateLimitError),
        (Unavailable("down"), openai.InternalServerError),
        (DeadlineExceeded("late"), openai.InternalServerError),
    ],
)
def test_a_server_that_refuses_is_an_error_of_openais_package(tmp_path, error, raised, stream):
    with (
        inspecting([Asked("one", "1", error=error).server()], runs_in(tmp_path)) as url,
        speaking(url) as client,
        pytest.raises(raised) as refused,
    ):
        client.chat.completions.create(model="revelator", messages=messages(QUESTION), stream=stream)
    assert refused.value.code == type(error).__name__ and error.message in refused.value.message


def test_openais_client_comes_back_when_the_server_has_room(tmp_path):
    asked = Asked("one", "1", refusals=[Overloaded("full", retry_after_ms=1)])
    with (
        inspecting([asked.server()], runs_in(tmp_path)) as url,
        speaking(url, max_retries=1) as client,
    ):
        said = client.chat.completions.create(model="revelator", messages=messages(QUESTION))
    assert said.choices[0].message.content == BOTH and asked.refusals == []


def test_an_error_in_the_middle_of_a_stream_is_raised(tmp_path):
    asked = Asked("one", "1")
    asked.world.outputs["translate_bnf"] = "Who sank?"
    with (
        inspecting([asked.server()], runs_in(tmp_path)) as url,
        speaking(url) as client,
        pytest.raises(openai.APIError, match="the generator is down"),
    ):
        list(client.chat.completions.create(model="revelator", messages=messages("Who sank?"), stream=True))


def test_a_client_that_closes_its_stream_ends_the_question(tmp_path):
    asked = Asked("one", "1")
    asked.world.gate("Who directed UHF?")
    with (
        inspecting([asked.server()], runs_in(tmp_path)) as url,
        speaking(url) as client,
    ):
        stream = client.chat.completions.create(model="revelator", messages=messages(QUESTION), stream=True)
        next(stream)
        stream.close()
        assert asked.left.wait(20)


def test_the_token_is_openais_key(tmp_path):
    with inspecting([Asked("one", "1").server()], runs_in(tmp_path), token="secret") as url:
        with speaking(url, api_key="secret") as client:
            assert client.chat.completions.create(model="revelator", messages=messages(QUESTION)).choices
        with (
            speaking(url, api_key="other") as client,
            pytest.raises(openai.AuthenticationError),
        ):
            client.models.list()
