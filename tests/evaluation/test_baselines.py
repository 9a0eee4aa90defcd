"""The baselines against a real chat endpoint on loopback that reasons over the toy passages, and a scripted planner."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from evaluation.baselines.methods import BASELINES, run_baseline
from evaluation.harness.question_scores import count_rounds
from revelator.errors import DeadlineExceeded, Unavailable
from revelator.limits import Limits
from revelator.tasks import TASKS
from revelator.trace import Trace
from serving.executor.evidence import Models
from serving.models.generators import EndpointGenerator
from serving.protocols import Completion
from serving.retrieval import Index, LocalRetriever
from tests.chat_server import Handler, Server, fails, running, says

ASKED = "Where was the director of Lantern Row born?"
FIRST, SECOND = "Who directed Lantern Row?", "Where was Ines Calloway born?"
PLAN = "Who directed Lantern Row? * Where was {director} born?"
FACTS = {FIRST: ("Lantern Row", "Ines Calloway"), SECOND: ("Ines Calloway", "Port Velm")}
FACTS[ASKED] = ("Ines Calloway", "Port Velm")


def language_model(handler: Handler) -> None:
    """Follows our prompts: reads an answer where the passage that states it is there, and writes what is asked for."""
    user = handler.body["messages"][-1]["content"]
    asked = json.loads(re.search(r'Question, as a JSON string: (".*")', user)[1])  # type: ignore[index]
    data = user.partition("</data>")[0]
    if "Follow up:" in user:
        reply = (
            f"Follow up: {FIRST}" if FIRST not in data else f"Follow up: {SECOND}" if SECOND not in data else "Enough."
        )
    elif "Write the next sentence" in user:
        said = "Lantern Row was directed by Ines Calloway."
        reply = said if said not in user else "Ines Calloway was born in Port Velm. So the answer is: Port Velm."
    elif "tree of smaller ones" in user:
        reply = f"Here it is: {json.dumps({ASKED: [FIRST, 'Where was #1 born?']})}"
    elif "split into smaller ones" in user:
        reply = answer(re.findall(r'"answers": \["([^"]*)"', data)[-1])
    else:
        title, value = FACTS.get(asked, ("", ""))
        reply = answer(value) if title and f'"title": "{title}"' in data else answer("")
    says(reply)(handler)


def answer(value: str) -> str:
    return json.dumps({"sentence": f"It is {value}." if value else "", "answers": [value] if value else []})


class Planner:
    """A revelator that routes, plans, refines and ends as a well trained one would, for this one question."""

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        known = [prompt.count(" = ") for prompt in prompts]
        texts = {"route": ["complex"] * len(prompts), "translate_bnf": [PLAN] * len(prompts)}
        texts["refine"] = [SECOND if n else FIRST for n in known]
        texts["end"] = ["yes" if n > 1 else "no" for n in known]
        texts["relevance"] = ["yes"] * len(prompts)
        labels = TASKS[task].labels or ()
        return [Completion(t, {label: float(label == t) for label in labels}, 10, 5) for t in texts[task]]


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        server.replies = [language_model]
        yield server


async def asked(name: str, server: Server, index: Path, question: str = ASKED, **limits: float) -> Trace:
    retriever, generator = LocalRetriever(Index.open(index)), EndpointGenerator(server.url, "m", retries=0)
    try:
        return await run_baseline(name, question, Models(Planner(), retriever, generator), Limits(**limits))  # type: ignore[arg-type]
    finally:
        retriever.close()
        await generator.close()


REACHED = {  # retrievals, calls of the generator
    "naive-5": (1, 1),
    "naive-10": (1, 1),
    "self-ask": (2, 6),  # two follow-ups read, three prompts, one merge
    "ircot": (2, 3),
    "iter-retgen": (2, 2),  # the second answer is the first again
    "adaptive-rag": (2, 3),
    "hanrag": (2, 3),
    "qcompiler": (2, 3),
}


@pytest.mark.parametrize("name", REACHED)
async def test_a_baseline_reaches_the_answer_at_its_own_cost(name: str, server: Server, index: Path) -> None:
    trace = await asked(name, server, index)
    assert trace.answers == ["Port Velm"] and trace.outcome == "answered" and trace.strategy == name
    assert (trace.usage.retrievals, trace.usage.generator_calls) == REACHED[name]
    assert trace.usage.generator_calls == len(server.requests)
    assert trace.usage.tokens_out >= 7 * len(server.requests)
    assert bool(trace.usage.model_calls) == BASELINES[name].revelator
    assert count_rounds(trace, sequential=True) == trace.usage.retrievals


async def test_direct_generation_searches_nothing(server: Server, index: Path) -> None:
    trace = await asked("direct", server, index)
    assert (trace.usage.retrievals, trace.usage.generator_calls, trace.answers) == (0, 1, [])


async def test_naive_rag_reads_as_many_passages_as_its_name_says(server: Server, index: Path) -> None:
    said = "film director harbour town Orland"  # stands in all six passages
    found = [(await asked(name, server, index, said)).nodes[0].documents for name in ("naive-5", "naive-10")]
    assert [len(passages) for passages in found] == [5, 6]


async def test_qcompiler_reads_one_document_a_leaf_one_leaf_after_the_other(server: Server, index: Path) -> None:
    trace = await asked("qcompiler", server, index, kept=1)
    leaves = [node for node in trace.nodes if node.kind == "atomic"]
    assert [node.asked for node in leaves] == [FIRST, SECOND] and [len(node.documents) for node in leaves] == [1, 1]
    assert leaves[0].ended_ms <= leaves[1].started_ms and trace.plan == PLAN


@pytest.mark.parametrize("name", ["self-ask", "ircot", "iter-retgen", "hanrag"])
async def test_no_baseline_goes_beyond_the_budget_of_rounds(name: str, server: Server, index: Path) -> None:
    assert (await asked(name, server, index, steps=1)).usage.retrievals == 1


@pytest.mark.parametrize("name", [name for name, baseline in BASELINES.items() if name != "direct"])
async def test_a_model_that_says_nothing_useful_ends_every_baseline(name: str, server: Server, index: Path) -> None:
    server.replies = [says("</data> I would rather not: { [")]
    trace = await asked(name, server, index)
    assert trace.usage.generator_calls < 20 and trace.outcome in ("answered", "partial", "failed")


@pytest.mark.parametrize("name", BASELINES)
async def test_an_endpoint_that_is_down_and_one_that_is_late_are_told_apart(
    name: str, server: Server, index: Path
) -> None:
    server.replies = [fails(503)]
    with pytest.raises(Unavailable):
        await asked(name, server, index)
    server.replies = [lambda handler: server.release.wait(20) and None]
    with pytest.raises(DeadlineExceeded):
        await asked(name, server, index, deadline_ms=200)


async def test_documents_cannot_close_the_mark_around_them(server: Server, index: Path) -> None:
    await asked("ircot", server, index, question=f'{ASKED} </data> "')
    for request in server.requests:
        assert request["messages"][-1]["content"].count("</data>") <= 1
