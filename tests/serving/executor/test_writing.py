"""What a language model writes beyond the reading of passages: who merges, the text with citations, own knowledge."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.answers import asks_nothing, is_unclear
from revelator.errors import Unavailable
from revelator.limits import Limits
from revelator.plans.art import Art, render
from revelator.plans.operators import Search
from revelator.trace import Passage, replay
from serving.executor.conversation import ASKS_NOTHING
from serving.executor.executor import Executor
from serving.executor.merging import CITATION, drop_unknown_citations
from serving.knowledge.sources import Sources
from serving.protocols import Reading, Writing

PLAN = "Who wrote A? * Where was {author} born?"
CHAIN = {"Who wrote A?": ["Ann"], "Where was Ann born?": ["Ayr"]}
WHOLE = "Where was the author of A born?"


def open_executor(world, **writing):
    return Executor(world, Sources.of_index(world), world, Limits(), writing=Writing(**writing))


async def test_the_text_is_written_from_all_steps_and_cites_what_was_read(toy):
    world = toy({**CHAIN, f"compose: {WHOLE}": ["Ann [1], who wrote A, was born in Ayr [2][7]."]})
    trace = await open_executor(world, text=True).run(WHOLE, plan=PLAN)
    assert trace.answers == ["Ayr"] and trace.outcome == "answered"
    assert trace.text == "It is Ann [1], who wrote A, was born in Ayr [2].."  # there is no passage 7
    assert trace.nodes[-1].kind == "write" and trace.nodes[-1].answers == []
    [asked] = [request for request in world.requests if request.mode == "compose"]
    assert [passage.id for passage in asked.passages] == [one.passage.id for one in trace.list_evidence()]
    assert [(step.question, step.answers) for step in asked.steps] == [
        ("Who wrote A?", ("Ann",)),
        ("Where was Ann born?", ("Ayr",)),
        (WHOLE, ("Ayr",)),
    ]
    ann, ayr = (passage.title for passage in asked.passages)
    assert trace.list_citations() == [f"[1] {ann}: It is Ann.", f"[2] {ayr}: It is Ayr."]


async def test_a_passage_that_two_steps_were_answered_from_is_shown_to_the_writer_once(toy):
    questions = "Who wrote A?", "When was A written?"
    one = Passage("a", "A", "A was written by Ann in 1950.")

    class OneBook(toy):
        async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
            return [one]

    known = {questions[0]: ["Ann"], questions[1]: ["1950"], f"compose: {WHOLE}": ["Ann wrote it in 1950 [1][2]."]}
    world = OneBook(known)
    trace = await open_executor(world, text=True).run(WHOLE, plan=" + ".join(questions), strategy="compound")
    [asked] = [request for request in world.requests if request.mode == "compose"]
    assert [passage.id for passage in asked.passages] == ["a"] and len(trace.list_evidence()) == 2
    assert "[1]" in trace.text and "[2]" not in trace.text
    assert [line[:3] for line in trace.list_citations()] == ["[1]"]


async def test_the_sentence_of_one_step_is_the_text_at_no_further_call(toy):
    world = toy({"Who wrote A?": ["Ann"]}, {"route": "single"})
    trace = await open_executor(world, text=True).run("Who wrote A?")
    assert trace.text == "It is Ann. [1]" and [request.mode for request in world.requests] == ["read"]


async def test_without_evidence_nothing_is_written(toy):
    world = toy({"direct: What is 2 + 2?": ["4"]})
    trace = await open_executor(world, text=True).run("What is 2 + 2?", strategy="direct")
    assert trace.answers == ["4"] and trace.text == ""


async def test_an_answer_whose_text_fails_stays_whole(toy):
    world = toy({**CHAIN, f"compose: {WHOLE}": Unavailable("gone")})
    trace = await open_executor(world, text=True).run(WHOLE, plan=PLAN)
    assert (trace.answers, trace.text, trace.outcome) == (["Ayr"], "", "answered")
    assert trace.nodes[-1].kind == "write" and trace.nodes[-1].status == "failed"


async def test_an_answer_whose_text_comes_too_late_stays_whole(toy, monkeypatch):
    world = toy(CHAIN)
    reads = world.answer

    async def answer(request):
        if request.mode == "compose":
            await asyncio.Event().wait()
        return await reads(request)

    monkeypatch.setattr(world, "answer", answer)
    trace = await open_executor(world, text=True).run(WHOLE, plan=PLAN, deadline_ms=1500)
    assert (trace.answers, trace.text, trace.deadline_exceeded) == (["Ayr"], "", False)


async def test_a_text_is_told_as_it_is_written_and_the_events_replayed_are_the_trace(toy, monkeypatch):
    world, events = toy(CHAIN), []
    text = "Ann [1], who wrote A, was born in Ayr [2][7], where she lives [9]."
    tell_text(world, monkeypatch, text, whole=True)
    trace = await open_executor(world, text=True).run(WHOLE, plan=PLAN, listener=events.append)
    assert trace.text == "Ann [1], who wrote A, was born in Ayr [2], where she lives." and replay(events) == trace
    first, *told = [event.changes for event in events if event.kind == "written"]
    assert first["answers"] == ["Ayr"] and len(told) > 1
    assert all(trace.text.startswith(changes["text"]) for changes in told)


async def test_a_text_that_time_cuts_off_is_what_was_told_of_it_with_a_mark(toy, monkeypatch):
    world, events = toy(CHAIN), []
    tell_text(world, monkeypatch, "Ann [1], who wrote A, was born in Ayr, and", whole=False)
    trace = await open_executor(world, text=True).run(WHOLE, plan=PLAN, deadline_ms=1500, listener=events.append)
    [*_, told] = [event.changes.get("text", "") for event in events if event.kind == "written"]
    assert told.startswith("Ann [1], who wrote A") and trace.text == f"{told} …" and replay(events) == trace
    assert (trace.answers, trace.outcome, trace.nodes[-1].status) == (["Ayr"], "answered", "failed")


def tell_text(world, monkeypatch, text, *, whole):
    reads = world.answer

    async def answer(request):
        if request.mode != "compose":
            return await reads(request)
        for end in range(len(text)):
            request.listener(text[:end])
        if not whole:
            await asyncio.Event().wait()
        return Reading(text, (text,))

    monkeypatch.setattr(world, "answer", answer)


@given(st.text(alphabet="[]0123456789 ab", max_size=60), st.integers(0, 30))
@settings(max_examples=50)
def test_no_citation_is_left_that_names_no_passage(text, count):
    left = drop_unknown_citations(text, count)
    assert all(1 <= int(number) <= count for number in CITATION.findall(left))


async def test_a_first_message_that_asks_for_nothing_is_unanswered_with_the_reason_and_not_searched(toy):
    world = toy({"rewrite: Danke!": Reading("", (), 9, 4, asks_nothing=True)})
    trace = await open_executor(world, reads_messages=True).run("Danke!", history=())
    assert (trace.outcome, trace.reason, world.asked) == ("unanswered", ASKS_NOTHING, [])
    assert asks_nothing(trace) and trace.usage.tokens_in == 9 and not is_unclear(trace)


async def test_who_cannot_read_a_first_message_is_not_asked_to(toy):
    world = toy({"Who wrote A?": ["Ann"]}, {"route": "single"})
    trace = await open_executor(world).run("Who wrote A?", history=())
    assert trace.answers == ["Ann"] and [request.mode for request in world.requests] == ["read"]


async def test_own_knowledge_answers_what_no_document_does_and_is_marked(toy):
    known = {"Who wrote A?": ["Ann"], "direct: Where was Ann born?": ["Ayr"]}
    closed = await open_executor(toy(known)).run(WHOLE, plan=PLAN)
    assert (closed.answers, closed.outcome) == ([], "unanswered")
    opened = await open_executor(toy(known), own_knowledge=True, text=True).run(WHOLE, plan=PLAN)
    assert (opened.answers, opened.outcome) == (["Ayr"], "partial")
    leaf = [node for node in opened.nodes if node.kind == "atomic"][-1]
    assert leaf.answers == ["Ayr"] and "own knowledge" in leaf.detail["unsupported"] and not leaf.find_evidence()


async def test_own_knowledge_is_the_last_that_a_tree_asks(toy):
    tree = render(Art("Where was Ann born?", Search("Ann", "place of birth")))
    world = toy({"direct: Where was Ann born?": ["Ayr"]})
    trace = await open_executor(world, own_knowledge=True).run("Where was Ann born?", plan=tree, strategy="atomic")
    assert (trace.answers, trace.outcome) == (["Ayr"], "partial")
    assert [request.mode for request in world.requests] == ["read", "read", "direct"]


async def test_the_text_of_a_fan_out_is_written_from_its_members(toy):
    world = toy({"Who wrote A?": ["Ann", "Bo"], "Where was Ann born?": ["Ayr"], "Where was Bo born?": ["Ely"]})
    await open_executor(world, text=True).run("Where were the authors of A born?", plan=PLAN)
    [asked] = [request for request in world.requests if request.mode == "compose"]
    assert [step.question for step in asked.steps][:-1] == ["Who wrote A?", "Where was Ann born?", "Where was Bo born?"]
