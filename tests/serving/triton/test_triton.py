"""The four models on a real Triton server: what they answer, how they fail, and that no request disturbs another."""

from __future__ import annotations

import asyncio
import json
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client
from click.testing import CliRunner
from serving.triton.serve import Watchdog

from revelator.cli import revelator
from revelator.client import AsyncClient, Client
from revelator.errors import (
    ArtifactError,
    DeadlineExceeded,
    InvalidRequest,
    PlanError,
    Unavailable,
)
from revelator.files import sha256_text
from revelator.plans import logic
from revelator.tasks import TASKS, RelevanceInput
from revelator.trace import Passage, Trace
from serving.home.config import read_serving
from serving.models.triton import RemoteGenerator, RemoteRetriever, RemoteRevelator, TritonModels
from serving.protocols import GenerateRequest
from serving.service import control
from serving.service.addresses import INNER, read_secret
from serving.triton import repository
from serving.triton.server import SHARED_MEMORY
from tests.serving.conftest import FAST, WAIT

PLAN = "Who directed Lantern Row? * Where was {director} born?"
QUESTION = "Where was the director of Lantern Row born?"
MERGE = GenerateRequest("merge", QUESTION)


def test_every_model_version_that_was_meant_is_ready_and_no_other(triton):
    assert all(
        triton.is_model_ready(name, "1") for name in (*repository.PLAIN_MODELS, "revelator") if name != "generator"
    )
    assert not triton.is_model_ready("revelator", "2")


def test_the_server_listens_on_loopback_alone(world):
    sockets = [c for c in psutil.Process(world.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    assert len(sockets) >= 2  # gRPC, and metrics for our own page
    assert all(ip_address(c.laddr.ip.removeprefix("::ffff:")).is_loopback for c in sockets)


def test_no_other_user_reads_the_shared_memory_of_the_server(world, client):
    """Questions, answers and the inner token pass through shared memory."""
    client.ask(QUESTION, plan=PLAN)
    regions = list(SHARED_MEMORY.glob(f"revelator-{sha256_text(str((world.home / 'model_repo').resolve()))[:16]}-*"))
    written = [*regions, *(world.home / "triton" / "metrics").iterdir()]
    assert regions and len(written) > len(regions)
    assert not [path for path in written if path.stat().st_mode & 0o077]


def test_a_plan_is_run_and_its_answer_comes_back_typed_with_its_trace(client):
    answer = client.ask(QUESTION, plan=PLAN)
    assert (answer.answer, answer.answers, answer.outcome) == ("Port Velm", ("Port Velm",), "answered")
    leaves = [node for node in answer.trace.nodes if node.kind == "atomic"]
    assert [node.asked for node in leaves] == ["Who directed Lantern Row?", "Where was Ines Calloway born?"]
    assert leaves[0].documents[0].title == "Lantern Row"
    assert answer.trace.versions.items() >= {"revelator": "1", "retriever": "1"}.items()


async def test_an_edited_plan_takes_what_did_not_change_from_the_earlier_trace(world, client):
    world.endpoint.knowledge["What is Ines Calloway known for?"] = ["ferries"]
    trace = client.ask(QUESTION, plan=PLAN).trace
    edited = PLAN.replace("Where was {director} born?", "What is {director} known for?")
    async with AsyncClient(world.url, timeout=WAIT) as other:
        asked = [client.ask(QUESTION, plan=edited, reuse=trace), await other.ask(QUESTION, plan=edited, reuse=trace)]
    for answer in asked:
        first, second = (node for node in answer.trace.nodes if node.kind == "atomic")
        assert answer.answers == ("ferries",) and answer.trace.usage.retrievals == 1
        assert first.detail["reused_from"] == "2" and "reused_from" not in second.detail
        assert first.documents[0].title == "Lantern Row"


async def test_the_async_client_gives_the_same_answer(world):
    async with AsyncClient(world.url, timeout=WAIT) as client:
        answers = await asyncio.gather(*(client.ask(QUESTION, plan=PLAN) for _ in range(3)))
    assert {answer.answer for answer in answers} == {"Port Velm"}


class CountedModels(TritonModels):
    """Counts its calls: the server's own counters rise some time after the answer, those of earlier tests too."""

    calls = 0

    async def infer(self, model: str, version: str = "", /, **inputs: np.ndarray) -> grpc_client.InferResult:
        self.calls += 1
        return await super().infer(model, version, **inputs)


async def test_prompts_of_one_task_are_one_call_and_judged_as_in_process(world, base):
    from serving.models.engine import Engine
    from serving.models.local import complete

    prompts = [TASKS["relevance"].render(RelevanceInput(QUESTION, f"title {n}", "text " * n)) for n in range(1, 11)]
    async with CountedModels(world.url, read_secret(world.home, INNER)) as models:
        judged = await RemoteRevelator(models).complete("relevance", prompts)
    assert models.calls == 1 and len(judged) == 10
    folder = repository.repository_folder(world.home) / "revelator" / "1" / "adapter"
    expected = complete(Engine(base, folder), "relevance", prompts)
    assert [c.text for c in judged] == [c.text for c in expected]
    assert [c.tokens_in for c in judged] == [c.tokens_in for c in expected]
    assert [c.probabilities["yes"] for c in judged] == pytest.approx(
        [c.probabilities["yes"] for c in expected], abs=1e-3
    )


async def test_a_row_that_cannot_be_judged_fails_alone(world):
    async with TritonModels(world.url, read_secret(world.home, INNER)) as models:
        revelator = RemoteRevelator(models)
        calls = [("end", "is it known?"), ("end", "word " * 4000), ("refine", "what next?")]
        outcomes = await asyncio.gather(*(revelator.complete(t, [p]) for t, p in calls), return_exceptions=True)
    good, too_long, generated = outcomes
    assert good[0].text in TASKS["end"].labels
    assert isinstance(too_long, InvalidRequest) and "tokens" in too_long.message
    assert generated[0].tokens_out > 0 and generated[0].probabilities == {}


async def test_more_prompts_than_a_batch_holds_come_back_in_order(world):
    prompts = [f"prompt {'x ' * n}" for n in range(70)]
    async with TritonModels(world.url, read_secret(world.home, INNER)) as models:
        judged = await RemoteRevelator(models).complete("end", prompts)
    assert [c.tokens_in for c in judged] == sorted(c.tokens_in for c in judged)
    assert len(judged) == 70


def test_a_fast_question_is_answered_while_a_slow_one_is_at_work(client, world):
    slow = "What is shown in Lantern Row?"
    world.endpoint.gate(slow, "a ferry")
    pending = client.submit(slow, strategy="single")
    assert world.endpoint.started[slow].wait(WAIT)
    assert client.ask(FAST, strategy="single").answers == ("Orland",)
    assert not pending.done()
    world.endpoint.gates[slow].set()
    assert pending.result(WAIT).answers == ("a ferry",)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(world, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Client(world.url, timeout=WAIT) as client:
        assert client.ask(FAST, strategy="single").answers == ("Orland",)
    assert control.is_ready(world.url, "executor", 1)


def test_a_deadline_ends_a_question_that_has_no_answer_yet(client, world):
    slow = "Why was Lantern Row shot?"
    world.endpoint.gate(slow, "for money")
    with pytest.raises(DeadlineExceeded, match="within 3000 ms"):
        client.ask(slow, strategy="single", deadline_ms=3_000)
    assert world.endpoint.left[slow].wait(WAIT)


def test_a_deadline_leaves_a_marked_partial_answer_when_a_part_is_known(client, world):
    slow = "Why was Lantern Row shot?"
    world.endpoint.gate(slow, "for money")
    answer = client.ask("both", plan=f"{slow} + {FAST}", deadline_ms=5_000)
    assert (answer.outcome, answer.trace.deadline_exceeded) == ("partial", True)
    assert "Orland" in answer.answer
    assert world.endpoint.left[slow].wait(WAIT)


async def test_cancelling_the_task_cancels_the_work_on_the_server(world):
    slow = "How was Lantern Row shot?"
    world.endpoint.gate(slow, "slowly")
    async with AsyncClient(world.url, timeout=WAIT) as client:
        task = asyncio.create_task(client.ask(slow, strategy="single"))
        await asyncio.to_thread(world.endpoint.started[slow].wait, WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(world.endpoint.left[slow].wait, WAIT)


def test_cancelling_the_future_cancels_the_work_on_the_server(client, world):
    slow = "When was Lantern Row shot?"
    world.endpoint.gate(slow, "then")
    pending = client.submit(slow, strategy="single")
    assert world.endpoint.started[slow].wait(WAIT)
    assert pending.cancel()
    assert world.endpoint.left[slow].wait(WAIT)


def test_a_client_that_stops_waiting_cancels_the_work_on_the_server(world):
    slow = "Where was Lantern Row shot?"
    world.endpoint.gate(slow, "there")
    with Client(world.url, timeout=4.0) as hasty, pytest.raises(DeadlineExceeded):
        hasty.ask(slow, strategy="single")
    assert world.endpoint.started[slow].is_set()
    assert world.endpoint.left[slow].wait(WAIT)


def test_a_generator_that_is_down_makes_the_question_unavailable(client, world):
    question = "Whose is Lantern Row?"
    world.endpoint.knowledge[question] = ["nobody's"]
    world.endpoint.down.add(question)
    with pytest.raises(Unavailable, match="503"):
        client.ask(question, strategy="single")
    world.endpoint.down.clear()
    assert client.ask(question, strategy="single").answers == ("nobody's",)


def test_a_model_whose_process_died_makes_questions_unavailable_until_it_is_brought_back(client, world):
    model = "retriever"
    said: list[str] = []
    watch = Watchdog(world.home, world.pid, world.url, (*repository.PLAIN_MODELS, "revelator"), said.append)
    watch.check_processes()
    assert said == []
    processes = [p for p in psutil.Process(world.pid).children() if p.status() != psutil.STATUS_ZOMBIE]
    mine = [p for p in processes if any(f"/{model}/" in argument for argument in p.cmdline())]
    for process in mine:  # one that was unloaded before may still be on its way out
        process.kill()
    try:
        with pytest.raises(Unavailable, match=model):
            client.ask(FAST, strategy="single")
    finally:
        watch.check_processes()
    assert said == [f"{model}: its process died; loading it again", f"{model} version 1: ready"]
    assert client.ask(FAST, strategy="single").answers == ("Orland",)


async def test_the_retriever_refuses_a_wrong_k_and_searches_on(world):
    async with TritonModels(world.url, read_secret(world.home, INNER)) as models:
        retriever = RemoteRetriever(models)
        with pytest.raises(InvalidRequest, match="k must be 1 or more"):
            await retriever.search("Sarnath", 0)
        found = await retriever.search("Sarnath", 2)
    assert [passage.title for passage in found] == ["Sarnath", "Tobias Renn"]


def test_a_logical_query_finds_the_documents_of_a_question(world, client):
    plan = '"Sarnath" AND NOT "Tobias"'
    trace = client.ask("Where does the Sarnath rise?", plan=plan, strategy="logic").trace
    assert (trace.plan, trace.plan_language) == (plan, "logic")
    titles = [passage.title for passage in trace.nodes[0].documents]
    assert "Sarnath" in titles and "Tobias Renn" not in titles
    with pytest.raises(PlanError, match="no document can match"):
        client.ask("q", plan='"a" AND NOT "a"', strategy="logic")


def test_the_model_writes_the_logical_query_where_none_is_given(world):
    """The served adapter has learnt nothing: what it writes is a query that was run, or the trace says why none was."""
    asked = ["ask", "Where does the Sarnath rise?", "--strategy", "logic", "--url", world.url, "--json"]
    result = CliRunner().invoke(revelator, asked)
    trace = Trace.from_json(json.loads(result.stdout))
    assert [node.kind for node in trace.nodes] == ["translate", "atomic"] and trace.nodes[1].documents
    if trace.plan:
        assert (trace.plan_source, trace.plan_language) == ("model", "logic") and not logic.check(
            logic.parse(trace.plan)
        )
    else:
        assert trace.degraded and "no query that the model wrote could be run" in trace.reason


async def test_searches_of_one_moment_may_be_one_batch_and_have_an_outcome_each(world, triton):
    config = triton.get_model_config("retriever").config
    assert config.HasField("dynamic_batching") and config.max_batch_size > 1
    async with TritonModels(world.url, read_secret(world.home, INNER)) as models:
        searches = [RemoteRetriever(models).search("Sarnath", n % 3) for n in range(24)]
        found = await asyncio.gather(*searches, return_exceptions=True)
    for n, passages in enumerate(found):
        assert isinstance(passages, InvalidRequest) if n % 3 == 0 else len(passages) == n % 3


async def test_the_embedded_reader_answers_requests_of_one_moment_each_for_itself(world):
    passages = (Passage("1", "Lantern Row", "It was directed by Ines Calloway."),)
    asked = GenerateRequest("read", "Who directed Lantern Row?", passages)
    async with TritonModels(world.url, read_secret(world.home, INNER)) as models:
        generator = RemoteGenerator(models)
        readings = await asyncio.gather(*[generator.answer(asked) for _ in range(9)], generator.answer(MERGE))
    for reading in readings[:9]:
        assert (reading.answers, reading.method) == (("Ines Calloway",), "reader")
        assert reading.document == "1" and 0 < reading.probability <= 1
        assert reading.sentence == "It was directed by Ines Calloway."
    assert (readings[9].answers, readings[9].reason) == ((), "no language model is configured")


def test_a_model_that_does_not_load_says_why_in_one_line(world):
    config = read_serving(world.home)
    repository.lay_out(world.home, config.model_copy(update={"index": Path("/nowhere")}))
    try:
        with pytest.raises(ArtifactError) as refused:
            control.load(world.home, world.url, "retriever", 1)
    finally:
        repository.lay_out(world.home, config)
        control.load(world.home, world.url, "retriever", 1)
    assert "no manifest.json" in refused.value.message
    assert "Traceback" not in str(refused.value) and "At:" not in str(refused.value)


def test_a_title_with_a_semicolon_is_one_answer_to_the_client(client, world):
    world.endpoint.knowledge |= {"Which films did Ines Calloway direct?": ["Semi; Colon", "Lantern Row"]}
    found = client.ask("Which films did Ines Calloway direct?", strategy="single", limits={"answer_floor": 0})
    assert found.answers == tuple(found.trace.answers) == ("Semi; Colon", "Lantern Row")
