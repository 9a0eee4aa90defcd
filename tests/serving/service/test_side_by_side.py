"""Three executors behind HAProxy over one Triton server: deploys, new starts, kills, streams and traces."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import mlflow
import pytest

from revelator import registry
from revelator.client import Client
from revelator.errors import Unavailable
from revelator.trace import Event, replay
from serving.deploy.deploy import deploy
from serving.home.versions import REVELATOR
from serving.service.addresses import LOOPBACK
from tests.balanced import COUNT, ExecutorProcess, balancing, draw_ports, find_haproxy, running_executors
from tests.conftest import Endpoint
from tests.loopback import find_port
from tests.serving.conftest import SLOW, wait_until
from tests.serving.deploy.test_deploy import asked_all_the_time
from tests.serving.operations import metrics_page
from tests.serving.service.test_mcp import TOOLS, agent_of
from tests.serving.triton.test_elsewhere import running_triton
from tests.triton_wheel import require_triton

QUESTION, ANSWER = "Where is Port Velm?", "Orland"
HELD_ANSWER = "Ines Calloway"
ANY = ("relevance_threshold", "relevance_floor", "answer_floor")  # limits: the toy that judges has learnt nothing
CLIENTS = 2  # that ask all the time
SAID = "haproxy.txt"  # what HAProxy said

pytestmark = [
    pytest.mark.timeout(900),  # starts of services; how busy the machine is must not decide
    pytest.mark.skipif(not find_haproxy(), reason="haproxy is not installed (Debian: apt-get install haproxy)"),
]


@dataclass
class Balanced:
    """The executors, and the addresses (gRPC, HTTP) at which HAProxy spreads questions over them."""

    home: Path
    executors: list[ExecutorProcess]
    url: str
    http: str
    endpoint: Endpoint

    def hold(self, name: str, count: int) -> list[str]:
        """Questions that the endpoint answers once their gates are open."""
        held = [f"What is {name} {n} in Lantern Row?" for n in range(count)]
        for question in held:
            self.endpoint.gate(question, HELD_ANSWER)
        return held

    def await_start(self, *questions: str) -> None:
        for question in questions:
            assert self.endpoint.started[question].wait(SLOW)

    def release(self, *questions: str) -> None:
        for question in questions:
            self.endpoint.gates[question].set()

    def stop(self, executor: ExecutorProcess) -> int:
        """Tells it to stop, and once more when HAProxy sends it nothing more. Returns its exit status."""
        executor.process.send_signal(signal.SIGTERM)
        wait_until(lambda: self.is_left_out(executor))
        executor.process.send_signal(signal.SIGTERM)
        return executor.process.wait(SLOW)

    def is_left_out(self, executor: ExecutorProcess) -> bool:
        said = (self.home / SAID).read_text()
        return re.findall(rf"Server grpc/executor-{executor.number} is (UP|DOWN)", said)[-1:] == ["DOWN"]

    def await_questions(self, executor: ExecutorProcess) -> None:
        """Returns once HAProxy sends questions to an executor that is ready."""
        executor.wait_until_ready()
        with Client(self.url, timeout=SLOW) as client:
            wait_until(lambda: client.ask(QUESTION, strategy="single") and count_answers(executor))


def count_answers(executor: ExecutorProcess) -> float:
    """Questions that this process of the executor has answered."""
    return metrics_page.total(metrics_page.read(f"{executor.http}/metrics"), "revelator_questions_total")


def count_in_flight(executor: ExecutorProcess) -> float:
    return metrics_page.total(metrics_page.read(f"{executor.http}/metrics"), "revelator_in_flight", model="executor")


def find(version: int) -> registry.Version:
    return registry.resolve(registry.NAME, version)


def ask_for_version(client: Client) -> str:
    answer = client.ask(QUESTION, strategy="single")
    assert answer.answers == (ANSWER,)
    return answer.trace.versions[REVELATOR]


@pytest.fixture(scope="module")
def experiment(tracking_server: str) -> str:
    """The experiment to which all executors send their spans."""
    return mlflow.MlflowClient(tracking_server).create_experiment("side by side")


@pytest.fixture(scope="module")
def balanced(
    registered: Path,
    index: Path,
    endpoint: Endpoint,
    tracking_server: str,
    experiment: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Balanced]:
    require_triton()
    home = tmp_path_factory.mktemp("balanced")
    registry.connect(registered)
    deploy(home, find(1))
    endpoint.knowledge[QUESTION] = [ANSWER]
    triton = f"{LOOPBACK}:{find_port()}"
    settings = {
        "index": str(index),
        "triton": f"grpc://{triton}",
        "generator": endpoint.url,
        "generator_model": "m",
        "text": False,
        "answer_cache": False,
        "limits": {"deadline_ms": 1000 * SLOW, **dict.fromkeys(ANY, 0)},
        "shutdown_delay": 10 * SLOW,  # a second signal ends it
    }
    (home / "serving.yaml").write_text(json.dumps(settings))
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": tracking_server,
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-mlflow-experiment-id={experiment}",
    }
    numbered = enumerate(draw_ports(COUNT), start=1)
    executors = [ExecutorProcess(number, home, ports, environment) for number, ports in numbered]
    with ExitStack() as running:
        running.enter_context(running_triton(home, triton))
        running.enter_context(running_executors(executors))
        ports = running.enter_context(balancing(executors, home / SAID))
        found = Balanced(home, executors, f"{LOOPBACK}:{ports.grpc}", f"http://{LOOPBACK}:{ports.http}", endpoint)
        for executor in executors:
            found.await_questions(executor)
        yield found


def test_traces_of_all_executors_arrive_in_one_mlflow(
    balanced: Balanced, tracking_server: str, experiment: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_server)
    registry.connect(balanced.home)
    told = [executor.events.read_text().splitlines() for executor in balanced.executors]
    assert all(told), "each has answered"
    answered = {json.loads(line)["request"] for lines in told for line in lines}

    def read_requests() -> set[str]:
        traces = mlflow.MlflowClient().search_traces([experiment], max_results=500)
        spans = [span for trace in traces for span in trace.data.spans]
        return {span.attributes["request"] for span in spans if "request" in span.attributes}

    wait_until(lambda: answered <= read_requests())


async def test_an_agent_s_session_stays_on_the_executor_that_knows_it(balanced: Balanced):
    async with agent_of(balanced.http, "legacy") as agent:
        for _ in range(2 * COUNT):
            assert [tool.name for tool in (await agent.list_tools()).tools] == TOOLS


def test_the_balancer_shows_the_page_and_no_metrics_of_one_executor_among_many(balanced: Balanced):
    assert httpx.get(f"{balanced.http}/", trust_env=False).status_code == 200
    assert httpx.get(f"{balanced.http}/metrics", trust_env=False).status_code == 403


def refuses(client: Client) -> bool:
    """Whether the executor takes no more questions in."""
    try:
        client.ask(QUESTION, strategy="single")
    except Unavailable:
        return True
    return False


def test_a_stream_ends_on_the_executor_that_is_told_to_stop_meanwhile_and_others_get_the_next_questions(
    balanced: Balanced,
):
    [held] = balanced.hold("quay", 1)
    with Client(balanced.url, timeout=SLOW) as client, ThreadPoolExecutor(1) as thread:
        streamed = client.stream(held, strategy="single")
        events = [next(streamed)]
        balanced.await_start(held)
        [working] = [executor for executor in balanced.executors if count_in_flight(executor)]
        stopped = thread.submit(balanced.stop, working)
        with Client(f"{LOOPBACK}:{working.ports.grpc}", timeout=SLOW) as direct:
            wait_until(lambda: refuses(direct))
        assert working.read_health() == "stopping" and count_in_flight(working) == 1
        for _ in range(2 * COUNT):
            assert client.ask(QUESTION, strategy="single").answers == (ANSWER,)
        assert not stopped.done()
        balanced.release(held)
        events += streamed
        assert stopped.result(SLOW) == 0
    trace = replay(events)
    assert (trace.outcome, trace.answers) == ("answered", [HELD_ANSWER])
    assert json.loads(working.events.read_text().splitlines()[-1])["outcome"] == "answered"
    working.start()
    balanced.await_questions(working)


def test_a_deploy_and_a_new_start_of_each_executor_under_load_fail_no_question_and_none_has_two_versions(
    balanced: Balanced, registered: Path
):
    registry.connect(registered)
    with ExitStack() as asking:
        client = asking.enter_context(Client(balanced.url, timeout=SLOW))
        loads = [asking.enter_context(asked_all_the_time(client, QUESTION)) for _ in range(CLIENTS)]
        deploy(balanced.home, find(2))
        assert [ask_for_version(client) for _ in balanced.executors] == ["2"] * COUNT
        for executor in balanced.executors:
            assert balanced.stop(executor) == 0
            executor.start()
            balanced.await_questions(executor)
    answers = [answer for load in loads for answer in load]
    assert {answer.outcome for answer in answers} == {"answered"}
    assert {answer.trace.versions[REVELATOR] for answer in answers} == {"1", "2"}, "none has both"


def end_of(events: Iterator[Event]) -> str:
    """The kind of the last event of a stream, or the error that ended it."""
    try:
        return [*events][-1].kind
    except Unavailable:
        return "Unavailable"


def test_a_killed_executor_fails_its_own_questions_alone_and_clients_that_retry_get_an_answer(balanced: Balanced):
    written, held, retried = (
        balanced.hold(name, count) for name, count in (("pier", COUNT), ("crane", 2 * COUNT), ("mole", 2 * COUNT))
    )
    every = [*written, *held, *retried]
    killed, *others = balanced.executors
    with (
        Client(balanced.url, timeout=SLOW) as client,
        Client(balanced.url, timeout=SLOW, retries=3) as patient,
        ThreadPoolExecutor(len(retried)) as threads,
    ):
        streams = [client.stream(question, strategy="single") for question in written]
        assert {next(stream).kind for stream in streams} == {"begun"}
        balanced.await_start(*written)
        cut = count_in_flight(killed)
        pending = [client.submit(question, strategy="single") for question in held]
        balanced.await_start(*held)
        lost = count_in_flight(killed) - cut
        asked = [threads.submit(patient.ask, question, strategy="single") for question in retried]
        balanced.await_start(*retried)
        assert cut > 0 and 0 < lost < count_in_flight(killed) - cut, "each kind has questions there"
        killed.process.kill()
        killed.process.wait()
        wait_until(lambda: sum(map(count_in_flight, others)) == len(every) - cut - lost)
        balanced.release(*every)
        assert Counter(map(end_of, streams)) == {"finished": COUNT - cut, "Unavailable": cut}
        errors = [error for future in pending if (error := future.exception(SLOW))]
        assert [type(error) for error in errors] == [Unavailable] * int(lost)
        answers = [future.result(SLOW) for future in [*pending, *asked] if not future.exception(SLOW)]
    assert len(answers) == len(held + retried) - lost
    assert {(answer.outcome, answer.answers) for answer in answers} == {("answered", (HELD_ANSWER,))}
    killed.start()
    balanced.await_questions(killed)
