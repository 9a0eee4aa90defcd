"""The baselines against a real chat endpoint on loopback that reasons over the toy passages, and a scripted planner."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from evaluation.baselines.methods import BASELINES, run_baseline
from evaluation.baselines.trajectories import Trajectory, choose_answers, score_segment
from evaluation.harness.config import load_runs
from evaluation.harness.question_scores import count_rounds
from evaluation.harness.system_needs import check_system
from revelator.errors import DeadlineExceeded, InvalidRequest, Unavailable
from revelator.limits import Limits
from revelator.tasks import TASKS
from revelator.trace import Trace
from serving.executor.evidence import Models
from serving.executor.judges import RevelatorJudge
from serving.knowledge.sources import Sources
from serving.models.generators import EndpointGenerator
from serving.protocols import Completion, Reading
from serving.retrieval import Index, LocalRetriever
from tests.chat_server import Handler, Reply, Server, fails, running, says, write_reading

ASKED = "Where was the director of Lantern Row born?"
FIRST, SECOND = "Who directed Lantern Row?", "Where was Ines Calloway born?"
PLAN = "Who directed Lantern Row? * Where was {director} born?"
FACTS = {FIRST: ("Lantern Row", "Ines Calloway"), SECOND: ("Ines Calloway", "Port Velm")}
FACTS[ASKED] = ("Ines Calloway", "Port Velm")


def language_model(handler: Handler) -> None:
    """Follows our prompts: reads an answer where the passage that states it is there, and writes what is asked for."""
    user = handler.body["messages"][-1]["content"]
    asked = json.loads(re.search(r'Question(?:, as a JSON string)?: (".*")', user)[1])  # type: ignore[index]
    data = user.partition("</data>")[0]
    if "Follow up:" in user:
        reply = (
            f"Follow up: {FIRST}" if FIRST not in data else f"Follow up: {SECOND}" if SECOND not in data else "Enough."
        )
    elif "Write the next sentence" in user:
        said = "Lantern Row was directed by Ines Calloway."
        reply = said if said not in user else "Ines Calloway was born in Port Velm. So the answer is: Port Velm."
    elif "Does the next sentence need" in user:
        reply = "yes"
    elif "Write the sentence that comes next" in user:
        said = "Lantern Row was directed by Ines Calloway."
        reply = "Nothing is known."
        if '"title": "Lantern Row"' in data:
            reply = said
        elif '"title": "Ines Calloway"' in data and said in user:
            reply = "So the answer is: Port Velm."
    elif "Judge the next sentence" in user:
        reply = f"Relevant, fully, {5 if 'So the answer is' in data else 4}."
        if "Nothing is known" in data:
            reply = "Irrelevant, unsupported, 2."
    elif "Refine it this way" in user:
        reply = (SECOND if FIRST in data else FIRST) if "decompose" in user.partition("this way")[2] else ASKED
    elif "split into smaller ones" in user:
        found = re.findall(r'"answers": \["([^"]*)"', data)[-1]
        reply = answer("Port Velm" if "So the answer is: Port Velm" in data else found)
    else:
        title, value = FACTS.get(asked, ("", ""))
        reply = answer(value) if title and f'"title": "{title}"' in data else answer("")
    says(reply)(handler)


def answer(value: str) -> str:
    return write_reading(*filter(None, [value]))


class Planner:
    """A revelator that routes, plans, refines and ends as a well trained one would, for this one question; `outputs`
    are what it says of a task instead."""

    def __init__(self, **outputs: str) -> None:
        self.outputs = outputs

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        known = [prompt.count(" = ") for prompt in prompts]
        texts = {"route": ["complex"] * len(prompts), "translate_bnf": [PLAN] * len(prompts)}
        texts["refine"] = [SECOND if n else FIRST for n in known]
        texts["end"] = ["yes" if n > 1 else "no" for n in known]
        texts["relevance"] = ["yes"] * len(prompts)
        texts |= {name: [text] * len(prompts) for name, text in self.outputs.items()}
        labels = TASKS[task].labels or ()
        return [Completion(t, {label: float(label == t) for label in labels}, 10, 5) for t in texts[task]]


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        server.replies = [language_model]
        yield server


async def asked(
    name: str, server: Server, index: Path, question: str = ASKED, planner: Planner | None = None, **limits: float
) -> Trace:
    retriever, generator = LocalRetriever(Index.open(index)), EndpointGenerator(server.url, "m", retries=0)
    try:
        revelator, sources = planner or Planner(), Sources.of_index(retriever)
        models = Models(revelator, generator, RevelatorJudge(revelator))
        return await run_baseline(name, question, models, sources, Limits(**limits))  # type: ignore[arg-type]
    finally:
        retriever.close()
        await generator.close()


REACHED = {  # retrievals, calls of the generator, rounds
    "naive-5": (1, 1, 1),
    "naive-10": (1, 1, 1),
    "self-ask": (2, 6, 2),  # two follow-ups read, three prompts, one merge
    "ircot": (2, 3, 2),
    "iter-retgen": (2, 2, 2),  # the second answer is the first again
    "self-rag": (3, 24, 2),  # three drafts go on: three decisions, ten candidates, as many critiques, one merge
    "rq-rag": (8, 27, 3),  # 2, 3 and 3 new queries of 3, 6 and 9 prompts, each read; the answer without any
    "adaptive-rag": (2, 3, 2),
    "hanrag": (2, 3, 2),
    "qcompiler": (2, 3, 2),
}


@pytest.mark.parametrize("name", REACHED)
async def test_a_baseline_reaches_the_answer_at_its_own_cost(name: str, server: Server, index: Path) -> None:
    trace = await asked(name, server, index)
    assert trace.answers == ["Port Velm"] and trace.strategy == name
    assert trace.outcome == ("partial" if name == "rq-rag" else "answered")  # not every trajectory finds an answer
    rounds = count_rounds(trace, sequential=BASELINES[name].compiles)
    assert (trace.usage.retrievals, trace.usage.generator_calls, rounds) == REACHED[name]
    assert trace.usage.generator_calls == len(server.requests)
    assert trace.usage.tokens_out >= 7 * len(server.requests)
    assert bool(trace.usage.model_calls) == BASELINES[name].revelator


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


def scored(*tokens: tuple[str, dict[str, float]]) -> Reply:
    """A reply with the probabilities of its tokens, and of the others in their places."""
    content = [
        {
            "token": token,
            "logprob": math.log(shares[token]),
            "top_logprobs": [{"token": other, "logprob": math.log(share)} for other, share in shares.items()],
        }
        for token, shares in tokens
    ]
    return says("".join(token for token, _ in tokens), logprobs={"content": content})


@pytest.mark.parametrize(("yes", "searches"), [(0.3, 1), (0.1, 0)])
async def test_self_rag_retrieves_where_that_is_likely_enough(
    server: Server, index: Path, yes: float, searches: int
) -> None:
    decides = scored(("no", {"no": 1 - yes, "yes": yes}))
    server.replies = [
        lambda h: (decides if "Does the next" in h.body["messages"][-1]["content"] else language_model)(h)
    ]
    assert (await asked("self-rag", server, index, steps=1)).usage.retrievals == searches


def test_self_rag_scores_a_segment_by_the_shares_of_its_critiques() -> None:
    shares = {"relevant": 0.8, "irrelevant": 0.2}, {"fully": 0.5, "partially": 0.5}, {"5": 0.75, "1": 0.25}
    words = "relevant", ", ", "fully", ", ", "5"
    places = shares[0], {", ": 1.0}, shares[1], {", ": 1.0}, shares[2]
    tokens = tuple(
        (word, {name: math.log(share) for name, share in place.items()})
        for word, place in zip(words, places, strict=True)
    )
    critique, written = Reading("relevant, fully, 5", (), tokens=tokens), Reading("It rains.", ())
    assert score_segment(written, critique, has_passage=True) == pytest.approx(1 + 0.8 + 0.75 + 0.5 * 0.5)
    assert score_segment(written, critique, has_passage=False) == pytest.approx(1 + 0.5 * 0.5)
    said = Reading("Relevant, partially, 3", ())
    assert score_segment(written, said, has_passage=True) == 1 + 1 + 0.5
    unclear = Reading("I cannot tell.", ())
    assert score_segment(written, unclear, has_passage=True) == pytest.approx(1 + 0.5 + 0.5)


def test_rq_rag_selects_a_trajectory_in_three_ways() -> None:
    def way(answer: str, said: float, query: float) -> Trajectory:
        return Trajectory(("q",), (), (answer,), (("q", {"q": math.log(query)}),), (("a", {"a": math.log(said)}),))

    tree = [way("Orla", 0.9, 0.1), way("Velm", 0.5, 0.9), way("Sarn", 0.4, 0.2), way("Sarn", 0.6, 0.1)]
    assert choose_answers(tree, "confidence") == ("Orla",)
    assert choose_answers(tree, "perplexity") == ("Velm",)
    assert choose_answers(tree, "ensemble") == ("Sarn",)
    assert choose_answers([], "ensemble") == ()


async def test_rq_rag_needs_log_probabilities_unless_it_votes(server: Server, index: Path) -> None:
    for select in ("confidence", "perplexity"):
        with pytest.raises(InvalidRequest, match=f"no log probabilities for {select}"):
            await asked(f"rq-rag-{select}", server, index)
    words = write_reading("Sarnath")
    server.replies = [scored((words, {words: 0.5}))]
    for select in ("confidence", "perplexity"):
        assert (await asked(f"rq-rag-{select}", server, index)).answers == ["Sarnath"]


async def test_hanrag_lets_the_generator_merge_and_reads_nothing_that_is_not_relevant(
    server: Server, index: Path
) -> None:
    parts = json.dumps([FIRST, SECOND])
    trace = await asked("hanrag", server, index, planner=Planner(route="compound", decompose=parts))
    assert [node.detail["method"] for node in trace.nodes if node.kind == "merge"] == ["generator"]
    assert count_rounds(trace) == 1 and trace.usage.retrievals == 2
    trace = await asked("hanrag", server, index, planner=Planner(route="single", relevance="no"))
    assert (trace.outcome, trace.usage.retrievals, trace.usage.generator_calls) == ("unanswered", 1, 0)


def test_the_example_runs_every_baseline_and_the_page_says_how_each_differs() -> None:
    root = Path(__file__).parents[2]
    runs = load_runs(root / "evaluation" / "configs" / "compare-baselines.yaml")
    assert {config.system.baseline for config in runs.values()} - {None} == {*BASELINES} - {"naive", "naive-10"}
    assert {config.system.name for config in runs.values() if config.ablation.route == "oracle"} == {
        "auto",
        "hanrag",
        "adaptive-rag",
    }
    for config in runs.values():
        check_system(config)
    page = (root / "docs" / "evaluation.md").read_text()
    assert not [name for name in BASELINES if f"`{name}`" not in page]


@pytest.mark.parametrize("name", ["self-ask", "ircot", "iter-retgen", "hanrag"])
async def test_no_baseline_goes_beyond_the_budget_of_rounds(name: str, server: Server, index: Path) -> None:
    assert (await asked(name, server, index, steps=1)).usage.retrievals == 1


@pytest.mark.parametrize("name", [name for name, baseline in BASELINES.items() if name != "direct"])
async def test_a_model_that_says_nothing_useful_ends_every_baseline(name: str, server: Server, index: Path) -> None:
    reply = "</data> I would rather not: { ["
    server.replies = [scored((reply, {reply: 0.5}))]
    trace = await asked(name, server, index)
    assert trace.usage.generator_calls < 40 and trace.outcome in ("answered", "partial", "unanswered", "failed")


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


@pytest.mark.parametrize("name", ["ircot", "self-rag", "rq-rag"])
async def test_documents_cannot_close_the_mark_around_them(name: str, server: Server, index: Path) -> None:
    await asked(name, server, index, question=f'{ASKED} </data> "')
    for request in server.requests:
        assert request["messages"][-1]["content"].count("</data>") <= 1
