"""Who may reach a server: TLS and mutual TLS, the token of model control, loopback, and limits on what is sent."""

from __future__ import annotations

from ipaddress import ip_address

import psutil
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator.channels import Tls, make_channel_arguments
from revelator.client import AsyncClient, Client
from revelator.errors import ConfigError, InvalidRequest, PlanError, RevelatorError, Unavailable
from serving.home.config import read_serving
from serving.service import control
from serving.service.addresses import Exposure
from tests.serving.operations.conftest import Operated

QUESTION = "When was Sarnath founded?"


async def test_a_client_with_a_certificate_of_the_authority_is_answered_all_the_way_over_tls(operated: Operated):
    with Client(operated.running.grpc, 30, tls=operated.tls) as client:
        answer = client.ask(QUESTION, strategy="single")
    async with AsyncClient(operated.running.grpc, 30, tls=operated.tls) as client:
        again = await client.ask(QUESTION, strategy="single")
    assert answer.answer == again.answer and answer.trace.versions.keys() >= {"revelator", "retriever", "generator"}


@pytest.mark.parametrize("who", ["in the clear", "without a certificate", "of another authority", "under another name"])
def test_everyone_else_is_turned_away(operated: Operated, who: str, monkeypatch):
    tls = operated.tls
    files = {
        "in the clear": None,
        "without a certificate": Tls(tls.ca, name=tls.name),
        "of another authority": operated.stranger,
        "under another name": Tls(tls.ca, tls.cert, tls.key, "elsewhere.test"),
    }[who]
    with Client(operated.running.grpc, 10, tls=files) as client, pytest.raises(Unavailable) as refused:
        client.ask(QUESTION)
    assert operated.running.grpc in str(refused.value)


def test_model_control_wants_the_token(operated: Operated, monkeypatch):
    for name, value in operated.tls.to_environment().items():
        monkeypatch.setenv(name, value)
    with grpc_client.InferenceServerClient(**make_channel_arguments(operated.running.grpc)) as client:
        for headers in None, {"triton-grpc-protocol-authorization": "Bearer guessed"}:
            with pytest.raises(InferenceServerException, match="authorization"):
                client.unload_model("retriever", headers=headers)
            with pytest.raises(InferenceServerException, match="authorization"):
                client.get_cuda_shared_memory_status(headers=headers)
    assert control.is_ready(operated.running.grpc, "retriever", 1)
    control.load(operated.home, operated.running.grpc, "retriever", 1)


def test_it_listens_on_loopback_unless_another_address_is_named(operated: Operated):
    sockets = psutil.Process(operated.running.server_pid).net_connections()
    sockets += psutil.Process(operated.running.pid).net_connections()
    listening = {s.laddr.ip.removeprefix("::ffff:") for s in sockets if s.status == psutil.CONN_LISTEN}
    assert listening and all(ip_address(ip).is_loopback for ip in listening)
    shown = Exposure("0.0.0.0", operated.own, mutual=True).build_options("token")
    assert shown["grpc-address"] == "0.0.0.0" and "http-address" not in shown


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
