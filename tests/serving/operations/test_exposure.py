"""Who may reach a service: mutual TLS, loopback or another address, and limits on what is sent."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from revelator.channels import Tls
from revelator.client import AsyncClient, Client
from revelator.errors import ConfigError, InvalidRequest, PlanError, RevelatorError, Unavailable
from serving.home.config import read_serving
from serving.home.configure import configure
from serving.models.endpoint_revelator import PlannerConfig
from serving.service.addresses import Exposure
from tests.conftest import Endpoint
from tests.service_thread import serve_in_thread
from tests.serving.operations.conftest import Operated

QUESTION = "When was Sarnath founded?"


async def test_a_client_with_a_certificate_of_the_authority_is_answered_all_the_way_over_tls(operated: Operated):
    with Client(operated.running.grpc, 30, tls=operated.tls) as client:
        answer = client.ask(QUESTION, strategy="single")
    async with AsyncClient(operated.running.grpc, 30, tls=operated.tls) as client:
        again = await client.ask(QUESTION, strategy="single")
    assert answer.answer == again.answer and answer.trace.versions["revelator"] == "1"


@pytest.mark.parametrize("who", ["of another authority", "under another name"])
def test_everyone_else_is_turned_away(operated: Operated, who: str):
    tls = operated.tls
    files = {
        "of another authority": operated.stranger,
        "under another name": Tls(tls.ca, tls.cert, tls.key, "else.test"),
    }
    with Client(operated.running.grpc, 10, tls=files[who]) as client, pytest.raises(Unavailable) as refused:
        client.ask(QUESTION)
    assert operated.running.grpc in str(refused.value)


def find_listening(process: psutil.Process) -> dict[int, str]:
    """The address of each port that a process listens on."""
    found = [connection for connection in process.net_connections() if connection.status == psutil.CONN_LISTEN]
    return {connection.laddr.port: connection.laddr.ip.removeprefix("::ffff:") for connection in found}


def test_it_listens_on_loopback_and_so_does_the_triton_server_behind_it(operated: Operated):
    service = psutil.Process(operated.running.pid)
    children = [process for process in service.children(recursive=True) if find_listening(process)]
    assert len(children) == 1 and len(find_listening(children[0])) == 1, "Triton's gRPC: no HTTP, no metrics"
    ports = {urlsplit(f"//{operated.running.grpc}").port, urlsplit(operated.running.http).port}
    assert find_listening(service).keys() == ports
    addresses = [*find_listening(service).values(), *find_listening(children[0]).values()]
    assert all(ip_address(address).is_loopback for address in addresses)


def test_both_ports_listen_at_the_address_that_is_named(authority, index: Path, endpoint: Endpoint, tmp_path: Path):
    reader = {"generator": endpoint.url, "generator_model": "m", "text": False, "judge": "none"}
    planner = PlannerConfig(url=endpoint.url, model="m")  # no model is loaded
    config = configure(tmp_path, index=index, planner=planner, **reader)
    with serve_in_thread(tmp_path, config, Exposure("0.0.0.0", authority[0], mutual=True)) as (_, running):
        listening = find_listening(psutil.Process())
        for url in (running.http, f"//{running.grpc}"):
            assert ip_address(listening[urlsplit(url).port or 0]).is_unspecified


@pytest.mark.parametrize(
    ("asked", "error", "named"),
    [
        ({"question": "Where? " * 100}, InvalidRequest, "question_characters is 200"),
        ({"question": QUESTION, "plan": "Who is A? + Who is B? + Who is C?"}, PlanError, "limit leaves is 2"),
        ({"question": QUESTION, "plan": "Who is A? + " * 3_000}, InvalidRequest, "plan_characters is 20000"),
        ({"question": QUESTION, "plan": "Who is A? + " * 30_000}, InvalidRequest, "options_bytes is 100000"),
    ],
)
def test_what_is_too_long_or_too_large_is_refused_by_name(
    operated: Operated, asked: dict[str, str], error: type[RevelatorError], named: str
):
    with Client(operated.running.grpc, 30, tls=operated.tls) as client, pytest.raises(error, match=named):
        client.ask(**asked)


def test_a_deployment_s_limits_are_recorded_and_a_request_cannot_raise_them(operated: Operated):
    recorded = {"question_characters": 200, "leaves": 2, "options_bytes": 100_000}
    assert read_serving(operated.home).limits == recorded
    with Client(operated.running.grpc, 30, tls=operated.tls) as client, pytest.raises(PlanError, match="leaves is 2"):
        client.ask(QUESTION, plan="Who is A? + Who is B? + Who is C?", limits={"leaves": 30})


def test_files_that_are_half_named_or_absent_are_refused_before_anything_starts(monkeypatch, tmp_path):
    monkeypatch.setenv("REVELATOR_TLS_CERT", "cert.pem")
    with pytest.raises(ConfigError, match="not named"):
        Client("127.0.0.1:1")
    with pytest.raises(ConfigError, match="No such file"):
        Client("127.0.0.1:1", tls=Tls(tmp_path / "ca.pem"))
