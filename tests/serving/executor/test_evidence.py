"""Evidence before answers: what no passage supports is no answer, and nothing is asked with it."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.answers import explain_silence
from revelator.errors import InvalidRequest
from revelator.limits import Limits
from revelator.plans import render
from revelator.trace import Passage
from serving.executor.evidence import PASSAGE_CHARACTERS, rank_by_both
from serving.protocols import Completion, Reading
from tests.serving.executor.test_plan_laws import plans
from tests.serving.executor.world import Toy

MEGABYTE = "word " * 200_000
WORDS = ("amber", "birch", "cedar", "delta")


class Drawn(Toy):
    """Passages of a few words, judged and read by chance: often the answer is not in them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)

    async def search(self, query, k, scope=None):
        count = self.chance.randrange(3)
        return [
            Passage(f"{query}#{n}", "", f"{query} {' '.join(self.chance.choices(WORDS, k=3))}") for n in range(count)
        ]

    async def answer(self, request):
        answers = tuple(self.chance.sample(WORDS, self.chance.randrange(3)))
        return Reading("", answers, probability=self.chance.choice([None, 0.01, 0.5]))

    def _relevance(self, prompt):
        yes = self.chance.choice([0.001, 0.2, 0.9])
        return Completion("", {"yes": yes, "no": 1 - yes})


class Named(Toy):
    """A language model whose endpoint reports a name."""

    async def answer(self, request):
        return replace(await super().answer(request), model="big-2026-08-01")


async def test_a_step_names_the_model_that_read_for_it_also_in_a_run_that_reuses_its_answer():
    world = Named({"Who directed A?": ["Ada Quill"], "Where was Ada Quill born?": ["Ayr"]})
    first = await world.executor().run("A?", plan="Who directed A? * Where was {director} born?")
    assert {node.detail.get("reader") for node in first.nodes if node.kind == "atomic"} == {"big-2026-08-01"}
    again = await Toy().executor().run("A?", plan="Who directed A?", reuse=first)
    assert again.answers == ["Ada Quill"]
    assert again.list_language_models() == first.list_language_models() == ["big-2026-08-01"]


@given(plans(5), st.integers())
@settings(max_examples=80)
def test_a_question_is_answered_only_where_passages_that_were_read_hold_every_span(plan, seed):
    world = Drawn(seed)
    trace = asyncio.run(world.executor(leaves=64, fan_out=2).run("q", plan=render(plan)))
    inside = {node.parent for node in trace.nodes}
    leaves = [node for node in trace.nodes if node.kind == "atomic" and node.id not in inside]
    if trace.outcome == "answered":
        assert trace.answers and all(node.answers for node in leaves)
        for node in leaves:
            texts = [passage.text for passage in node.documents if passage.id in node.detail["kept"]]
            assert node.detail["document"] in node.detail["kept"]
            assert all(any(answer in text.split() for text in texts) for answer in node.answers)
    elif not trace.answers:
        assert trace.outcome == "unanswered" and trace.reason
    for node in leaves:
        read = [passage for passage in node.documents if passage.id in node.detail.get("kept", ())]
        assert all((passage.relevance or 0) >= Limits().relevance_floor for passage in read)
        assert node.status != "ok" or node.detail.get("probability", 1) >= Limits().answer_floor
    # what depends on an unanswered question is not asked
    ended = {node.id: node for node in trace.nodes}
    for node in trace.nodes:
        for producer in node.inputs.values():
            assert ended[producer].answers
        if node.status == "skipped":
            assert not node.documents and not node.usage.generator_calls


async def test_nothing_is_read_where_nothing_is_relevant(toy):
    world = toy({"Who wrote A?": ["p"]}, relevance={"title": 0.001})
    trace = await world.executor().run("Who wrote A?", strategy="single")
    assert (trace.outcome, world.requests, trace.nodes[0].status) == ("unanswered", [], "unanswered")
    assert trace.reason == "no document is relevant: the likeliest has P = 0.001; the limit relevance_floor is 0.01"
    assert (await world.executor(relevance_floor=0.0).run("Who wrote A?", strategy="single")).answers == ["p"]


async def test_an_answer_that_is_too_unlikely_is_none(toy):
    class Unsure(Toy):
        async def answer(self, request):
            return Reading("It is p.", ("p",), document=request.passages[0].id, probability=0.04)

    trace = await Unsure().executor().run("Who wrote A?", strategy="single")
    assert (trace.outcome, trace.nodes[0].answers, trace.nodes[0].sentence) == ("unanswered", [], "")
    assert trace.reason == "the likeliest answer, p, has P = 0.04; the limit answer_floor is 0.33"
    assert explain_silence(trace) == "the passages that were read do not say it clearly enough"
    lower = await Unsure().executor(answer_floor=0.01).run("Who wrote A?", strategy="single")
    assert (lower.outcome, lower.answers) == ("answered", ["p"])


async def test_an_answer_that_no_passage_says_is_only_a_part(toy):
    world = toy({"read: Who wrote A?": ["Zed"], "Who wrote A?": ["p"]})
    trace = await world.executor().run("Who wrote A?", strategy="single")
    assert (trace.outcome, trace.answers) == ("partial", ["Zed"])
    assert trace.reason == "no passage that was read says Zed"


async def test_a_fault_is_no_lack_of_evidence(toy):
    world = toy({"Who wrote A?": RuntimeError("index torn")})
    assert (await world.executor().run("Who wrote A?", strategy="single")).outcome == "failed"


def test_a_request_may_set_the_floors():
    limits = Limits().lower({"relevance_floor": 0.3, "answer_floor": 0.0})
    assert (limits.relevance_floor, limits.answer_floor) == (0.3, 0.0)
    with pytest.raises(InvalidRequest):
        Limits().lower({"answer_floor": "high"})


@dataclass
class Long(Toy):
    """One passage, with this title and text."""

    title: str = "t"
    text: str = "t"

    async def search(self, query, k, scope=None):
        return [Passage("1", self.title, f"{query} {self.text}")]


async def test_of_a_passage_of_a_megabyte_the_beginning_is_read():
    toy = Long({"Where is Sarnath?": ["Orland"]}, text=MEGABYTE)
    trace = await toy.executor().run("Where is Sarnath?", strategy="single")
    assert trace.answers == ["Orland"]
    assert [len(passage.text) for passage in toy.requests[0].passages] == [PASSAGE_CHARACTERS]


async def test_a_prompt_of_a_megabyte_is_put_to_no_model():
    toy = Long(title=MEGABYTE)
    trace = await toy.executor().run("Where is Sarnath?", strategy="single")
    assert trace.outcome == "failed" and "at most 500000 are read" in trace.reason
    assert not toy.calls


async def test_the_sentence_that_is_cited_says_the_answer_whichever_the_model_names():
    class Careless(Toy):
        async def search(self, query, k, scope=None):
            return [Passage("1", "Port Lunde", "The port is old. Its quay master is Hedda Moe. It has two cranes.")]

        async def answer(self, request):
            named = {"document": "1", "probability": 0.9, "model": "m"}
            return Reading("It has two cranes.", ("Hedda Moe",), method="endpoint", **named)

    trace = await Careless().executor().run("Who is the quay master?", strategy="single")
    assert trace.list_evidence()[0].sentence == "Its quay master is Hedda Moe."


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=12))
def test_two_rankings_are_fused_and_where_they_agree_nothing_moves(relevance: list[float | None]) -> None:
    found = [Passage(str(place), "", "", relevance=yes) for place, yes in enumerate(relevance)]
    ranked = rank_by_both(found)
    assert sorted(found, key=id) == sorted(ranked, key=id)
    place = {passage.id: number for number, passage in enumerate(ranked)}
    for first, one in enumerate(found):
        for other in found[first + 1 :]:
            if (one.relevance or 0) >= (other.relevance or 0):
                assert place[one.id] < place[other.id], "better in one ranking, and not worse in the other"
