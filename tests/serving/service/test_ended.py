"""When work ends: with the client, with the deadline, and with the service, which loses no question."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator.channels import TOKEN, Tls
from revelator.client import AsyncClient, Client
from revelator.errors import ConfigError, InvalidRequest, Overloaded, Unavailable
from serving.deploy.deploy import release_embedded_base
from serving.home.config import ServingConfig
from serving.home.running import find_running_server
from serving.models.releases import read_release, write_release
from serving.service import control
from serving.service.addresses import Exposure, read_ports
from serving.service.run import serve_home
from tests.conftest import Endpoint
from tests.serving.service.conftest import FAST, WAIT, Service, serve_in_thread
from tests.serving.service.test_answers import ask


@pytest.fixture
def slow(service: Service, request: pytest.FixtureRequest) -> str:
    """A question that the endpoint does not answer."""
    question = f"Which {request.node.name} is seen in Lantern Row?"
    service.endpoint.gate(question, "the Aune")
    return question


async def test_a_call_that_is_cancelled_ends_the_work_behind_it(service: Service, slow: str):
    async with AsyncClient(service.url, timeout=WAIT) as client:
        call = asyncio.create_task(client.ask(slow, strategy="single"))
        await asyncio.to_thread(service.await_start, slow)
        call.cancel()
        assert await asyncio.to_thread(service.endpoint.left[slow].wait, WAIT)


async def test_a_stream_that_is_left_ends_the_work_behind_it(service: Service, slow: str):
    async with AsyncClient(service.url, timeout=WAIT) as client:
        async with aclosing(client.stream(slow, strategy="single")) as events:
            async for event in events:
                if event.kind == "judged":
                    await asyncio.to_thread(service.await_start, slow)
                    break
        assert await asyncio.to_thread(service.endpoint.left[slow].wait, WAIT)


def test_the_time_that_a_released_client_waits_is_the_question_s_deadline(service: Service, triton, slow: str):
    with pytest.raises(InferenceServerException) as late:
        triton.infer("executor", ask(slow, strategy="single"), client_timeout=1.0)
    assert "DEADLINE_EXCEEDED" in str(late.value.status()) or "DeadlineExceeded" in late.value.message()
    assert service.endpoint.left[slow].wait(WAIT)


def test_a_client_that_closes_its_http_connection_ends_the_work(service: Service, slow: str):
    inputs = [{"name": "question", "datatype": "BYTES", "shape": [1], "data": [slow]}]
    inputs += [{"name": "options", "datatype": "BYTES", "shape": [1], "data": ['{"strategy": "single"}']}]
    with ThreadPoolExecutor(1) as thread:
        url = f"{service.running.http}/v2/models/executor/infer"
        sent = thread.submit(httpx.post, url, json={"inputs": inputs}, timeout=httpx.Timeout(5, read=2))
        service.await_start(slow)
        assert isinstance(sent.exception(WAIT), httpx.ReadTimeout)
    assert service.endpoint.left[slow].wait(WAIT)


@contextmanager
def serving(home: Path, index: Path, endpoint: Endpoint, settings: str = "") -> Iterator[tuple[subprocess.Popen, str]]:
    """`revelator serve --triton none` as a process of its own, and its gRPC address."""
    command = [sys.executable, "-c", "from revelator.cli import main; main()", "serve", "--triton", "none"]
    command += ["--home", str(home), "--index", str(index), "--generator", endpoint.url, "--generator-model", "m"]
    home.mkdir(exist_ok=True)
    (home / "serving.yaml").write_text(f"text: false\njudge: none\n{settings}")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout
            said = ""
            while "stop: Ctrl-C" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            running = find_running_server(home)
            assert running
            yield process, running.grpc
        finally:
            if process.poll() is None:
                process.kill()


def test_a_service_that_is_told_to_stop_answers_what_it_has_begun(tmp_path: Path, index: Path, endpoint: Endpoint):
    question = "Which mill is seen in Lantern Row?"
    endpoint.gate(question, "the Old Mill")
    endpoint.knowledge[FAST] = ["Orland"]
    home = tmp_path / "home"
    with serving(home, index, endpoint) as (process, url), Client(url, timeout=WAIT) as client:
        assert client.ask(FAST, strategy="single").answers == ("Orland",)
        running = find_running_server(home)
        pending = client.submit(question, strategy="single")
        assert endpoint.started[question].wait(WAIT)
        streamed = client.stream(question, strategy="single")
        events = [next(streamed)]
        process.send_signal(signal.SIGTERM)
        with grpc_client.InferenceServerClient(url) as triton:
            while triton.is_server_ready():
                pass
            assert triton.is_server_live() and not triton.is_model_ready("executor")
        assert running and httpx.get(f"{running.http}/health").status_code == 503
        with pytest.raises(Unavailable, match="stopping"):
            client.ask(FAST, strategy="single")
        process.send_signal(signal.SIGTERM)  # a second one changes nothing
        endpoint.gates[question].set()
        assert pending.result(WAIT).answers == ("the Old Mill",)
        events += streamed
        assert events[-1].kind == "finished" and events[-1].changes["answers"] == ["the Old Mill"]
        assert process.wait(WAIT) == 0
        with pytest.raises(Unavailable):
            client.ask(FAST, strategy="single")
    assert find_running_server(home) is None
    assert '"outcome": "answered"' in (home / "logs" / "events.jsonl").read_text()


def test_within_its_shutdown_delay_a_service_is_not_ready_and_answers_until_a_second_signal(
    tmp_path: Path, index: Path, endpoint: Endpoint
):
    endpoint.knowledge[FAST] = ["Orland"]
    home = tmp_path / "home"
    with (
        serving(home, index, endpoint, settings="shutdown_delay: 600") as (process, url),
        Client(url, timeout=WAIT) as client,
    ):
        running = find_running_server(home)
        process.send_signal(signal.SIGTERM)
        with grpc_client.InferenceServerClient(url) as triton:
            while triton.is_server_ready():
                pass
        assert running and httpx.get(f"{running.http}/health").json() == {"status": "stopping"}
        assert client.ask(FAST, strategy="single").answers == ("Orland",)
        process.send_signal(signal.SIGTERM)  # the balancer has noticed
        assert process.wait(WAIT) == 0


def test_a_service_that_is_told_to_stop_before_it_answers_ends_as_if_it_had(tmp_path: Path, index: Path):
    """Told at different moments: while it imports, and while it opens models."""
    for marker in ("release.json", ".control-token"):
        home = tmp_path / marker.strip(".")  # a folder for each: the first service may have left the second's marker
        command = [sys.executable, "-m", "revelator", "serve", "--home", str(home), "--index", str(index)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while not (home / marker).exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        said, wrong = process.communicate(timeout=WAIT)
        assert process.returncode == 0, wrong
        assert said.endswith("stopped\n") and "Traceback" not in wrong
        assert find_running_server(home) is None


def test_files_that_are_no_certificates_are_named(tmp_path: Path, authority: Tls):
    wrong = tmp_path / "c.pem"
    wrong.write_text("no certificate")
    assert authority.cert and authority.key
    for tls in (Tls(wrong, authority.cert, authority.key), Tls(authority.ca, wrong, authority.key)):
        with pytest.raises(ConfigError, match=r"PEM") as refused:
            Exposure(tls=tls)
        assert str(wrong) in str(refused.value.where)


def test_a_process_that_is_killed_fails_its_calls_at_once(tmp_path: Path, index: Path, endpoint: Endpoint):
    question = "Which forge is seen in Lantern Row?"
    endpoint.gate(question, "none")
    endpoint.knowledge[FAST] = ["Orland"]
    with serving(tmp_path / "home", index, endpoint) as (process, url), Client(url, timeout=WAIT, retries=50) as client:
        client.ask(FAST, strategy="single")  # a channel to a port whose server was stopped connects again after a while
        pending = client.submit(question, strategy="single")
        assert endpoint.started[question].wait(WAIT), pending.exception(0)
        process.kill()
        with pytest.raises(Unavailable):
            pending.result(2)
    assert find_running_server(tmp_path / "home") is None


def test_a_home_folder_is_served_once(service: Service, config):
    async def serve() -> None:
        async with serve_home(service.home, read_ports("auto"), config):
            pass

    with pytest.raises(ConfigError, match="being served already"):
        asyncio.run(serve())


def test_a_home_folder_is_served_by_several_where_vllm_runs_its_versions(
    tmp_path: Path, config: ServingConfig, endpoint: Endpoint
):
    endpoint.knowledge[FAST] = ["Orland"]
    release_embedded_base(tmp_path)
    release = read_release(tmp_path)
    assert release
    write_release(tmp_path, replace(release, vllm="http://127.0.0.1:9/v1"))
    with serve_in_thread(tmp_path, config) as (_, first), serve_in_thread(tmp_path, config) as (_, second):
        found = find_running_server(tmp_path)
        assert found and found.grpc == first.grpc, "deploys go to the first"
        for running in (first, second):
            with Client(running.grpc, timeout=WAIT) as client:
                assert client.ask(FAST, strategy="single").answers == ("Orland",)


def test_with_mutual_tls_only_clients_with_a_certificate_are_answered(tmp_path, index, endpoint, config, authority):
    release_embedded_base(tmp_path)
    with serve_in_thread(tmp_path, config, Exposure(tls=authority, mutual=True)) as (_, running):
        endpoint.knowledge[FAST] = ["Orland"]
        with Client(running.grpc, timeout=WAIT, tls=authority) as client:
            assert client.ask(FAST, strategy="single").answers == ("Orland",)
        for stranger in (Tls(authority.ca), None):
            with Client(running.grpc, timeout=3, tls=stranger) as client, pytest.raises((Unavailable, Overloaded)):
                client.ask(FAST, strategy="single")
        trusting = ssl.create_default_context(cafile=str(authority.ca))
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{running.http}/health", verify=trusting)
        trusting.load_cert_chain(str(authority.cert), str(authority.key))
        assert httpx.get(f"{running.http}/health", verify=trusting).json() == {"status": "ready"}


def test_beyond_loopback_clients_need_a_token_or_certificates(tmp_path, config, monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)

    async def serve() -> None:
        async with serve_home(tmp_path, read_ports("auto"), config, Exposure("0.0.0.0")):
            pass

    with pytest.raises(ConfigError, match="clients need a token"):
        asyncio.run(serve())


def test_over_grpc_too_a_token_lets_in_who_sends_it_and_nobody_else(tmp_path, config, endpoint, monkeypatch):
    monkeypatch.setenv(TOKEN, "a-token-of-this-test")
    endpoint.knowledge[FAST] = ["Orland"]
    asked = ServingConfig(**{**dict(config), "planner": {"url": config.generator, "model": "m"}})  # loads no model
    with serve_in_thread(tmp_path, asked) as (_, running):
        with Client(running.grpc, timeout=WAIT) as client:
            assert client.ask(FAST, strategy="single").answers == ("Orland",), "as the environment says"
            assert [*client.stream(FAST, strategy="single")][-1].kind == "finished"
        monkeypatch.delenv(TOKEN)
        for token in (None, "another"):
            with Client(running.grpc, timeout=WAIT, token=token) as client:
                for ask in (client.ask, lambda *asked, client=client: list(client.stream(*asked))):
                    with pytest.raises(InvalidRequest, match="token is missing or wrong") as refused:
                        ask(FAST)
                    assert TOKEN in refused.value.hint
        with Client(running.grpc, timeout=WAIT, token="a-token-of-this-test") as client:
            assert client.ask(FAST, strategy="single").answers == ("Orland",)
        with pytest.raises(ConfigError, match="token is missing") as refused:
            control.is_ready(running.grpc, 1)
        assert TOKEN in (refused.value.hint or "")
        assert not control.is_ready(running.grpc, 1, tmp_path), "the home folder's owner is let in"
