"""Reading by the task `read`: what is shown in one prompt, what counts as an answer, and how likely there is one."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from revelator.errors import InvalidRequest
from revelator.tasks import TASKS, ReadInput
from revelator.tasks.task import MOST_PASSAGES, UNANSWERABLE
from revelator.trace import Passage
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.engine import Engine
from serving.models.local import complete
from serving.models.revelator_reader import NO_ANSWER, NOT_THERE, READ, RevelatorReader, group_passages, make_reading
from serving.protocols import TEXT, Completion, GenerateRequest
from tests.causal import TINY
from tests.chat_server import Handler, running

FILM = Passage("a", "Lantern Row", "Lantern Row is a film of 1987. Ines Calloway\ndirected it, and her brother sang.")
TOWN = Passage("b", "Sarnath", "Sarnath was founded in 1890. Its harbour is closed.")
texts = st.text(st.sampled_from("ab .\n"), max_size=60)
passages = st.lists(st.builds(Passage, st.sampled_from("abcdef"), st.text("T", max_size=5), texts), max_size=7)


@given(passages, st.integers(20, 60))
def test_prompts_show_all_that_is_read_in_its_order_and_none_is_over_full(found: list[Passage], room: int) -> None:
    groups = list(group_passages(found, room))
    shown = [character for group in groups for p in group for character in p.text if not character.isspace()]
    assert shown == [character for p in found for character in p.text if not character.isspace()]
    assert all(1 <= len(group) <= MOST_PASSAGES for group in groups)
    assert all(len(group) == 1 or sum(len(p.title) + 2 + len(p.text) for p in group) <= room for group in groups)


@given(st.sampled_from([FILM, TOWN]), st.data())
def test_an_answer_stands_in_its_passage_and_in_the_sentence_that_is_quoted(
    passage: Passage, data: st.DataObject
) -> None:
    words = passage.text.split()
    start = data.draw(st.integers(0, len(words) - 1))
    end = data.draw(st.integers(start + 1, len(words)))
    wanted = " ".join(words[start:end])
    case = data.draw(st.sampled_from([str, str.upper, str.lower]))
    reading = make_reading("Who?", [TOWN, FILM] if passage is FILM else [FILM, TOWN], Completion(case(wanted)))
    assert [" ".join(answer.split()).casefold() for answer in reading.answers] == [wanted.casefold()]
    assert reading.answers[0] in reading.sentence
    assert reading.answers[0] in (FILM if reading.document == "a" else TOWN).text


def test_a_list_has_all_its_items_and_a_verdict_the_sentence_that_it_is_about() -> None:
    listed = make_reading("Which years?", [FILM, TOWN], Completion('["1987", "1890"]'))
    assert (listed.answers, listed.document) == (("1987", "1890"), "a")
    assert listed.sentence == "Lantern Row is a film of 1987.\nSarnath was founded in 1890."
    verdict = make_reading("Was Sarnath founded in 1890?", [FILM, TOWN], Completion("yes"))
    assert (verdict.answers, verdict.is_verdict, verdict.document) == (("yes",), True, "b")


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (UNANSWERABLE, NO_ANSWER),
        ("Tessa Orvane", NOT_THERE),
        ('["1987", "Tessa Orvane"]', NOT_THERE),
        ("[1987", "read must answer a JSON list"),
        ("", "read must answer on one line"),
    ],
)
def test_what_no_passage_says_is_no_answer(written: str, reason: str) -> None:
    reading = make_reading("Who?", [FILM, TOWN], Completion(written))
    assert (reading.answers, reading.sentence, reading.probability) == ((), "", 0.0)
    assert reading.reason.startswith(reason)


async def test_of_several_prompts_the_one_that_most_likely_answers_is_taken() -> None:
    """At an endpoint: each prompt gets the year of its passage, that of the town with the likelier first token."""
    with running() as server:
        server.replies = [say_year]
        revelator = EndpointRevelator(PlannerConfig(url=server.url, model="m", prompt="trained"))
        try:
            reader = RevelatorReader(revelator)
            long = replace(FILM, text=f"{FILM.text} {'A ferry sails. ' * 90}")
            reading = await reader.answer(GenerateRequest("read", "When?", (long, TOWN)))
            assert (reading.answers, reading.document, reading.probability) == (("1890",), "b", pytest.approx(0.9))
            assert (reading.tokens_in, reading.tokens_out) == (2 * 31, 2 * 7)
            assert (await reader.answer(GenerateRequest("merge", "When?"))).answers == ()
            assert (await reader.answer(GenerateRequest("read", "When?"))).answers == ()
            assert len(server.requests) == 2
        finally:
            await revelator.close()


def say_year(handler: Handler) -> None:
    year, refused = ("1890", 0.1) if TOWN.text in handler.body["prompt"] else ("1987", 0.4)
    likely = [{f" {year}": math.log(1 - refused), " una": math.log(refused)}]
    tokens = {"tokens": [f" {year}"], "token_logprobs": [math.log(1 - refused)], "top_logprobs": likely}
    choice = {"index": 0, "text": f" {year}", "finish_reason": "stop", "logprobs": tokens}
    used = {"prompt_tokens": 31, "completion_tokens": 7}
    reply = {"id": "x", "object": "text_completion", "created": 0, "model": "m", "choices": [choice], "usage": used}
    handler.send(200, json.dumps(reply).encode())


def test_the_first_token_tells_how_likely_the_passages_do_not_answer() -> None:
    """Against transformers, which computes it for one prompt after the other."""
    shown = [
        ReadInput("Who directed Lantern Row?", (("Lantern Row", FILM.text),)),
        ReadInput("When?", (("", TOWN.text),)),
    ]
    prompts = [READ.render(each) for each in shown]
    tokenizer, model = AutoTokenizer.from_pretrained(TINY), AutoModelForCausalLM.from_pretrained(TINY)
    first = tokenizer(f" {UNANSWERABLE}", add_special_tokens=False)["input_ids"][0]
    found = complete(Engine(TINY, threads=1), READ.name, prompts)
    for prompt, completion in zip(prompts, found, strict=True):
        with torch.inference_mode():
            logits = model(**tokenizer(prompt, return_tensors="pt")).logits[0, -1]
        assert completion.probabilities[UNANSWERABLE] == pytest.approx(float(logits.softmax(-1)[first]), abs=1e-4)
        assert list(completion.probabilities) == [TEXT, UNANSWERABLE]
        assert (completion.text == UNANSWERABLE) or completion.probabilities[UNANSWERABLE] <= 0.5
    assert TASKS["read"].refusal == UNANSWERABLE


class Narrow:
    """A model that reads only so many characters of a prompt."""

    def __init__(self, most: int) -> None:
        self.most = most

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        if max(map(len, prompts)) > self.most:
            raise InvalidRequest("a prompt of too many tokens")
        return [Completion("Ines Calloway" if "Ines" in prompt else UNANSWERABLE) for prompt in prompts]


async def test_passages_of_too_many_tokens_are_read_in_smaller_prompts() -> None:
    long = replace(TOWN, text="12.5 | " * 400)
    request = GenerateRequest("read", "Who directed it?", (long, FILM))
    assert (await RevelatorReader(Narrow(500)).answer(request)).answers == ("Ines Calloway",)
    with pytest.raises(InvalidRequest):
        await RevelatorReader(Narrow(50)).answer(request)
