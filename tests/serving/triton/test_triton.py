"""Models on a real Triton server behind the service: what they answer, who reaches them, and that no request disturbs
another."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client
import trustme
from click.testing import CliRunner
from tritonclient.utils import InferenceServerException

from revelator import registry
from revelator.channels import Tls, make_channel_arguments
from revelator.cli import revelator
from revelator.client import AsyncClient, Client
from revelator.errors import DeadlineExceeded, InvalidRequest, PlanError
from revelator.plans import logic
from revelator.tasks import TASKS, RelevanceInput
from revelator.trace import Passage, Trace
from serving.deploy.deploy import deploy
from serving.home.config import read_serving
from serving.home.versions import ADAPTER, version_folder
from serving.models.engine import Engine
from serving.models.local import complete
from serving.models.releases import REVELATOR
from serving.models.triton import GENERATOR, RemoteGenerator, RemoteRevelator, TritonModels
from serving.protocols import GenerateRequest
from serving.service import control
from serving.triton.server import SHARED_MEMORY
from tests.service_thread import serve_in_thread
from tests.serving.conftest import FAST, WAIT

PLAN = "Who directed Lantern Row? * Where was {director} born?"
QUESTION = "Where was the director of Lantern Row born?"
MERGE = GenerateRequest("merge", QUESTION)


class CountedModels(TritonModels):
    """Counts its calls: the server's own counters rise some time after the answer, those of earlier tests too."""

    calls = 0

    async def infer(self, model: str, version: str = "", /, **inputs: np.ndarray) -> grpc_client.InferResult:
        self.calls += 1
        return await super().infer(model, version, **inputs)


@pytest.fixture
async def models(world) -> AsyncIterator[CountedModels]:
    """A channel to Triton itself, as the service has one."""
    models = CountedModels(world.triton.url, world.triton.tls)
    yield models
    await models.close()


async def test_triton_has_the_versions_that_were_meant_and_no_other(models):
    assert await models.is_ready(GENERATOR, "1") and await models.is_ready(REVELATOR, "1")
    assert not await models.is_ready(REVELATOR, "2")
    index = (await models._client.get_model_repository_index()).models
    assert {entry.name for entry in index} == {GENERATOR, REVELATOR}


def test_triton_listens_on_one_port_of_loopback(world):
    sockets = [c for c in psutil.Process(world.triton.pid).net_connections() if c.status == psutil.CONN_LISTEN]
    addresses = {(c.laddr.ip.removeprefix("::ffff:"), c.laddr.port) for c in sockets}
    assert addresses == {("127.0.0.1", int(world.triton.url.split(":")[1]))}


def test_no_other_user_reads_the_shared_memory_of_triton(world, client):
    """Prompts, passages and answers pass through it."""
    client.ask(QUESTION, plan=PLAN)
    regions = list(SHARED_MEMORY.glob(f"{world.triton.regions}*"))
    assert regions and not [path for path in regions if path.stat().st_mode & 0o077]


@pytest.fixture
def forged(tmp_path) -> Tls:
    """A key and a certificate for Triton's address, by another authority."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    return Tls(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")


@pytest.mark.parametrize("who", ["in the clear", "without a certificate", "with another certificate"])
def test_only_who_holds_the_key_reaches_triton(world, client, forged, who):
    ca = world.triton.tls.ca
    shown = {"in the clear": None, "without a certificate": Tls(ca), "with another certificate": replace(forged, ca=ca)}
    for call in (
        lambda stranger: stranger.is_server_live(client_timeout=WAIT),
        lambda stranger: stranger.load_model(REVELATOR, client_timeout=WAIT),
    ):
        with grpc_client.InferenceServerClient(**make_channel_arguments(world.triton.url, shown[who])) as stranger:
            with pytest.raises(InferenceServerException) as refused:
                call(stranger)
            assert refused.value.status() == "StatusCode.UNAVAILABLE"
    assert client.ask(FAST, strategy="single").answers == ("Orland",)


def test_the_key_of_triton_is_in_a_folder_for_this_user_alone(world):
    key = world.triton.tls.key
    assert key.is_relative_to(world.home)
    folder = key.parent.stat()
    assert stat.S_IMODE(folder.st_mode) == 0o700 and folder.st_uid == os.getuid()


def untimed(trace: Trace) -> list[object]:
    nodes = [(node.id, node.kind, node.asked, node.answers, node.status) for node in trace.nodes]
    return [trace.answer, trace.outcome, trace.plan, trace.versions, nodes]


@pytest.mark.parametrize("options", [{"plan": PLAN}, {"strategy": "compile"}, {"strategy": "single"}])
def test_an_answer_is_the_same_wherever_the_models_run(world, client, registered, tmp_path, options):
    registry.connect(registered)
    deploy(tmp_path, registry.resolve(registry.NAME, 1))
    with serve_in_thread(tmp_path, read_serving(world.home)) as (_, running), Client(running.grpc, WAIT) as other:
        asked = [untimed(each.ask(QUESTION, **options).trace) for each in (client, other)]
    assert asked[0] == asked[1]


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


async def test_prompts_of_one_task_are_one_call_and_judged_as_in_process(world, models, base):
    prompts = [TASKS["relevance"].render(RelevanceInput(QUESTION, f"title {n}", "text " * n)) for n in range(1, 11)]
    judged = await RemoteRevelator(models).complete("relevance", prompts)
    assert models.calls == 1 and len(judged) == 10
    expected = complete(Engine(base, version_folder(world.home, 1) / ADAPTER), "relevance", prompts)
    assert [c.text for c in judged] == [c.text for c in expected]
    assert [c.tokens_in for c in judged] == [c.tokens_in for c in expected]
    assert [c.probabilities["yes"] for c in judged] == pytest.approx(
        [c.probabilities["yes"] for c in expected], abs=1e-3
    )


async def test_a_row_that_cannot_be_judged_fails_alone(models):
    revelator = RemoteRevelator(models)
    calls = [("end", "is it known?"), ("end", "word " * 4000), ("refine", "what next?")]
    outcomes = await asyncio.gather(*(revelator.complete(t, [p]) for t, p in calls), return_exceptions=True)
    good, too_long, generated = outcomes
    assert good[0].text in TASKS["end"].labels
    assert isinstance(too_long, InvalidRequest) and "tokens" in too_long.message
    assert generated[0].tokens_out > 0 and generated[0].probabilities == {}


async def test_more_prompts_than_a_batch_holds_come_back_in_order(models):
    prompts = [f"prompt {'x ' * n}" for n in range(70)]
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
    assert control.is_ready(world.url, 1)


def test_a_deadline_leaves_a_marked_partial_answer_when_a_part_is_known(client, world):
    slow = "Why was Lantern Row shot?"
    world.endpoint.gate(slow, "for money")
    answer = client.ask("both", plan=f"{slow} + {FAST}", deadline_ms=5_000)
    assert (answer.outcome, answer.trace.deadline_exceeded) == ("partial", True)
    assert "Orland" in answer.answer
    assert world.endpoint.left[slow].wait(WAIT)


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


async def test_the_embedded_reader_answers_requests_of_one_moment_each_for_itself(models):
    passages = (Passage("1", "Lantern Row", "It was directed by Ines Calloway."),)
    asked = GenerateRequest("read", "Who directed Lantern Row?", passages)
    generator = RemoteGenerator(models)
    readings = await asyncio.gather(*[generator.answer(asked) for _ in range(9)], generator.answer(MERGE))
    for reading in readings[:9]:
        assert (reading.answers, reading.method) == (("Ines Calloway",), "reader")
        assert reading.document == "1" and 0 < reading.probability <= 1
        assert reading.sentence == "It was directed by Ines Calloway."
    assert (readings[9].answers, readings[9].reason) == ((), "no language model is configured")


def test_a_title_with_a_semicolon_is_one_answer_to_the_client(client, world):
    world.endpoint.knowledge |= {"Which films did Ines Calloway direct?": ["Semi; Colon", "Lantern Row"]}
    found = client.ask("Which films did Ines Calloway direct?", strategy="single", limits={"answer_floor": 0})
    assert found.answers == tuple(found.trace.answers) == ("Semi; Colon", "Lantern Row")
