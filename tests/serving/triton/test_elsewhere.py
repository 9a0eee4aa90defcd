"""Services over one Triton server that somebody else runs (`--triton grpc://host:port`), and one that is not there."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import tritonclient.grpc as grpc_client
from click.testing import CliRunner
from tritonclient.utils import InferenceServerException

from revelator import registry
from revelator.client import Client
from revelator.errors import ConfigError, Unavailable
from serving.commands.serve import serve
from serving.deploy.deploy import deploy
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.home.running import find_running_server
from serving.home.versions import REVELATOR, repository_folder
from serving.triton.installation import find_installation
from tests.service_thread import serve_in_thread
from tests.serving.conftest import WAIT, wait_until
from tests.triton_wheel import require_triton

QUESTION, ANSWER = "When was Sarnath founded?", ("1388",)
pytestmark = pytest.mark.timeout(600)  # loads of models; how busy the machine is must not decide


def find(version: int) -> registry.Version:
    return registry.resolve(registry.NAME, version)


@pytest.fixture
def home(registered: Path, tmp_path: Path) -> Path:
    registry.connect(registered)
    deploy(tmp_path, find(1))
    return tmp_path


@pytest.fixture
def config(home: Path, index: Path) -> ServingConfig:
    """The release judges, and the embedded reader reads, for every question."""
    return configure(home, index=index, answer_cache=False)


@contextmanager
def running_triton(home: Path, url: str) -> Iterator[None]:
    """A server over the models of a home folder, as its operator starts it."""
    require_triton()
    installation = find_installation(home / "triton")
    command = [installation.binary, f"--model-repository={repository_folder(home)}"]
    command += [f"--backend-directory={installation.backends}", f"--grpc-port={url.split(':')[1]}"]
    command += ["--model-control-mode=explicit", "--allow-http=false", "--allow-metrics=false"]
    environment = installation.make_environment(os.environ)
    with (home / "elsewhere.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        with grpc_client.InferenceServerClient(url) as triton:

            def is_live() -> bool:
                assert process.poll() is None, (home / "elsewhere.log").read_text()
                with suppress(InferenceServerException):
                    return triton.is_server_live()
                return False

            wait_until(is_live)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def url() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def ask_for_version(client: Client) -> str:
    answer = client.ask(QUESTION, strategy="single")
    assert answer.answers == ANSWER
    return answer.trace.versions[REVELATOR]


def test_two_services_over_one_triton_answer_follow_a_deploy_and_outlive_each_other(
    home: Path, config: ServingConfig, url: str
):
    with running_triton(home, url), ExitStack() as first, ExitStack() as second:
        clients = []
        for stack in (first, second):
            _, running = stack.enter_context(serve_in_thread(home, config, place=f"grpc://{url}"))
            clients.append(stack.enter_context(Client(running.grpc, timeout=WAIT)))
        assert [ask_for_version(client) for client in clients] == ["1", "1"]
        for version in (2, 1):
            deploy(home, find(version))
            assert [ask_for_version(client) for client in clients] == [f"{version}"] * 2
        first.close()
        assert find_running_server(home) is None, "deploys go to the first"
        assert ask_for_version(clients[1]) == "1"


def test_questions_are_unavailable_while_triton_is_gone_and_answered_when_it_is_back(
    home: Path, config: ServingConfig, url: str
):
    with ExitStack() as service:
        with running_triton(home, url):
            _, running = service.enter_context(serve_in_thread(home, config, place=f"grpc://{url}"))
            client = service.enter_context(Client(running.grpc, timeout=WAIT))
            assert ask_for_version(client) == "1"
        with pytest.raises(Unavailable):
            client.ask(QUESTION, strategy="single")
        with running_triton(home, url):

            def is_answered() -> bool:
                with suppress(Unavailable):
                    return ask_for_version(client) == "1"
                return False

            wait_until(is_answered)


def start(home: Path, config: ServingConfig, place: str) -> None:
    with serve_in_thread(home, config, place=place):
        pass


@pytest.mark.parametrize("is_silent", [False, True], ids=["nobody listens", "who listens says nothing"])
def test_where_no_triton_answers_a_start_ends_with_what_to_do(home: Path, config: ServingConfig, is_silent: bool):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"127.0.0.1:{listening.getsockname()[1]}"
        if not is_silent:
            listening.close()
        with pytest.raises(Unavailable, match="no Triton server answers") as refused:
            start(home, config, f"grpc://{url}")
    assert refused.value.where == url and "--model-control-mode=explicit" in (refused.value.hint or "")
    assert find_running_server(home) is None


@pytest.mark.parametrize("place", ["elsewhere", "grpc://", "grpc://127.0.0.1", "http://127.0.0.1:8001", ""])
def test_a_place_that_is_none_is_refused_with_those_that_are(tmp_path: Path, index: Path, place: str):
    asked = ["--home", str(tmp_path / "home"), "--index", str(index), "--triton", place]
    refused = CliRunner().invoke(serve, asked).exception
    assert isinstance(refused, ConfigError) and "not where models can be hosted" in refused.message
    assert refused.where == "--triton" and "grpc://HOST:PORT" in (refused.hint or "")
    assert not (tmp_path / "home").exists(), "nothing is left behind"
