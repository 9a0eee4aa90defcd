"""A service on a Triton server of its own, of which a part dies or fails while questions are in flight.

Each question ends with an answer or a typed error, and later ones are answered again, by the same service.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import tritonclient.grpc as grpc_client

from revelator import registry
from revelator.channels import LONGEST_PAUSE_MS, make_channel_arguments
from revelator.client import Client
from revelator.errors import Overloaded, Unavailable
from serving.deploy.deploy import deploy
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.models.endpoint_revelator import PlannerConfig
from serving.models.releases import REVELATOR, Traffic
from serving.models.triton import GENERATOR, TritonModels
from serving.service import control
from serving.service.questions import Questions
from serving.triton.host import TritonHost
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer
from tests.service_thread import serve_in_thread
from tests.serving.conftest import FAST, SLOW, WAIT, wait_until
from tests.triton_wheel import needs_triton

QUESTION, ANSWER = "When was Sarnath founded?", ("1388",)
TRITON = "tritonserver"
pytestmark = pytest.mark.timeout(600)  # loads of models; how busy the machine is must not decide


@dataclass
class Hosted:
    """A service whose release judges and whose embedded reader reads, both on Triton."""

    home: Path
    url: str
    questions: Questions

    @property
    def host(self) -> TritonHost:
        assert self.questions.models.host
        return self.questions.models.host

    @property
    def server(self) -> TritonServer:
        assert self.host.server
        return self.host.server

    def find_process(self, name: str) -> psutil.Process:
        """Triton's own process, or that of a model."""
        server = psutil.Process(self.server.pid)
        if name == TRITON:
            return server
        commands = [(child, child.as_dict(["cmdline"], ad_value=[])["cmdline"]) for child in server.children()]
        [process] = [child for child, command in commands if f"/{name}/" in " ".join(command)]
        return process

    def count_calls(self, model: str) -> int:
        return len(self.host.generator._models._calls[model])


@pytest.fixture(scope="module")
def hosted(registered: Path, index: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    home = tmp_path_factory.mktemp("faults")
    registry.connect(registered)
    deploy(home, registry.resolve(registry.NAME, 1))
    with serve_in_thread(home, configure(home, index=index, answer_cache=False), place="local") as (questions, running):
        yield Hosted(home, running.grpc, questions)


def is_answered(client: Client, question: str = QUESTION, answers: tuple[str, ...] = ANSWER) -> bool:
    with suppress(Unavailable):
        return client.ask(question, strategy="single").answers == answers
    return False


def is_gone(process: psutil.Process) -> bool:
    """Triton waits for no process of a model: a dead one stays as a zombie."""
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


@pytest.mark.parametrize("killed", [GENERATOR, REVELATOR, TRITON])
def test_no_question_is_lost_when_a_process_is_killed(hosted: Hosted, killed: str):
    model = REVELATOR if killed == TRITON else killed
    with (
        Client(hosted.url, timeout=SLOW) as client,
        Client(hosted.url, timeout=SLOW, retries=50) as patient,
        ThreadPoolExecutor(3) as threads,
    ):
        wait_until(lambda: is_answered(client))
        process, held = hosted.find_process(killed), hosted.find_process(model)
        held.suspend()  # so that calls are inside when the process dies
        asked: list[Future] = [client.submit(QUESTION, strategy="single") for _ in range(2)]
        asked += [threads.submit(lambda: [*client.stream(QUESTION, strategy="single")]) for _ in range(1)]
        retried = threads.submit(patient.ask, QUESTION, strategy="single")
        wait_until(lambda: hosted.count_calls(model) == min(4, hosted.questions.admission.at_once))
        process.kill()
        later: list[Future] = []

        def is_answered_again() -> bool:
            later.append(client.submit(QUESTION, strategy="single"))
            return any(future.done() and not future.exception() for future in later)

        wait_until(is_answered_again)
        errors = [future.exception(WAIT) for future in (*asked, *later)]
        assert retried.result(WAIT).answers == ANSWER
        wait_until(lambda: is_answered(client))
    assert not [error for error in errors if error and not isinstance(error, Unavailable | Overloaded)]
    assert is_gone(process) and is_gone(held) and hosted.find_process(killed) != process


def test_the_service_is_not_ready_while_triton_is_started_anew(hosted: Hosted):
    with grpc_client.InferenceServerClient(hosted.url) as service:
        wait_until(service.is_server_ready)
        hosted.find_process(TRITON).kill()
        wait_until(lambda: not service.is_server_ready())
        assert service.is_server_live()
        wait_until(service.is_server_ready)


def test_a_deploy_that_meets_an_outage_waits_until_the_server_is_back(hosted: Hosted):
    with Client(hosted.url, timeout=WAIT) as client:
        wait_until(lambda: is_answered(client))
        hosted.find_process(TRITON).kill()
        control.load(hosted.home, hosted.url, [1])
        wait_until(lambda: is_answered(client))


@needs_triton
async def test_a_server_that_is_back_is_used_although_the_channel_still_pauses_after_failed_attempts(tmp_path: Path):
    config = ServingConfig(planner=PlannerConfig(url="http://127.0.0.1:9/v1", model="none"), judge="none")
    server = TritonServer(find_installation(tmp_path / "triton"), tmp_path / "model_repo", tmp_path / "triton.log")
    models = TritonModels(server.url, server.tls)
    host = TritonHost(tmp_path, config, Traffic(tmp_path), models, server)
    end = time.monotonic() + 1.5 * LONGEST_PAUSE_MS / 1000
    while time.monotonic() < end:  # each failed attempt makes the pause longer
        assert not await models.is_live()
    try:
        await host.start()
        assert await host.is_ready()
    finally:
        await models.close()
        server.stop()


def test_a_model_that_somebody_unloads_is_loaded_again(hosted: Hosted):
    with Client(hosted.url, timeout=WAIT) as client:
        wait_until(lambda: is_answered(client))
        before = hosted.find_process(GENERATOR)
        with grpc_client.InferenceServerClient(
            **make_channel_arguments(hosted.server.url, hosted.server.tls)
        ) as triton:
            triton.unload_model(GENERATOR)
        wait_until(lambda: is_gone(before))
        wait_until(lambda: is_answered(client))


def test_an_endpoint_that_fails_leaves_the_other_parts_of_a_question_and_is_asked_again(world, client):
    bad = "Who sank the ferry of Port Velm?"
    world.endpoint.knowledge |= {bad: ["nobody"]}
    world.endpoint.down.add(bad)
    answer = client.ask("Both?", plan=f"{FAST} + {bad}", strategy="compile")
    assert answer.outcome == "partial" and answer.answers == ("Orland",)
    assert "503" in next(node.error for node in answer.trace.nodes if node.asked == bad)
    for _ in range(6):  # more than the circuit breaker lets through
        with pytest.raises(Unavailable):
            client.ask(bad, strategy="single")
    world.endpoint.down.clear()
    wait_until(lambda: is_answered(client, bad, ("nobody",)))
    wait_until(lambda: is_answered(client, FAST, ("Orland",)))
