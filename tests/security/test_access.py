"""Who may change a served home, and who may ask its inner models: those who can read its 0600 files, nobody else."""

from __future__ import annotations

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from revelator.channels import ControlToken
from revelator.client import Client
from revelator.errors import ConfigError
from serving.models.triton import SECRET_PARAMETER
from serving.service import control
from serving.service.addresses import CONTROL, INNER, read_secret

CODE = "import pathlib\npathlib.Path({mark!r}).touch()\nclass TritonPythonModel:\n    def execute(self, r): return []\n"
FAST = "Where is Sarnath?"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- model control ---


@pytest.mark.parametrize("token", [None, "guessed" * 10, "", "é"])
def test_without_the_home_s_token_nothing_of_the_server_can_be_changed(
    served, tmp_path: Path, token: str | None
) -> None:
    """A model loaded from a request's own files would be code of the caller's in the server."""
    mark = tmp_path / "ran"
    with grpc_client.InferenceServerClient(served.url) as client:
        headers = {"triton-grpc-protocol-authorization": f"Bearer {token}"} if token and token.isascii() else None
        code = {"file:1/model.py": CODE.format(mark=str(mark)).encode()}
        config = json.dumps({"backend": "python", "max_batch_size": 0})
        for change in (
            lambda: client.load_model("mine", headers=headers, config=config, files=code),
            lambda: client.load_model("executor", headers=headers),
            lambda: client.unload_model("executor", headers=headers),
            lambda: client.get_model_repository_index(headers=headers),
            lambda: client.register_system_shared_memory("mine", "/mine", 64, headers=headers),
            lambda: client.get_system_shared_memory_status(headers=headers),
            lambda: client.unregister_system_shared_memory(headers=headers),
            lambda: client.update_trace_settings(settings={"trace_level": "TIMESTAMPS"}, headers=headers),
            lambda: client.update_log_settings({"log_file": str(mark)}, headers=headers),
        ):
            with pytest.raises(InferenceServerException, match="authorization"):
                change()
        assert client.is_model_ready("executor")
    assert not mark.exists()


def test_the_token_of_the_home_lets_in_and_stands_in_a_file_of_its_owner(served) -> None:
    assert mode(served.home / CONTROL) == mode(served.home / INNER) == 0o600
    with grpc_client.InferenceServerClient(served.url) as client:
        client.register_plugin(ControlToken((served.home / CONTROL).read_text().strip()))
        names = {model.name for model in client.get_model_repository_index().models}
    assert names >= {"executor", "retriever", "generator", "revelator"}
    control.load(served.home, served.url, "executor", 1)


def test_the_token_stands_in_no_command_line_which_every_user_of_the_machine_could_read(served) -> None:
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (served.pid, *_children(served.pid))]
    assert "authorization=Bearer *" in lines[0]
    assert not any(read_secret(served.home, name) in line for name in (CONTROL, INNER) for line in lines)


def test_another_token_than_the_server_s_is_refused_with_what_to_do(served, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another control token") as refused:
        control.load(tmp_path, served.url, "executor", 1)  # which has drawn its own
    assert "start `revelator serve` again" in (refused.value.hint or "")
    assert read_secret(tmp_path, CONTROL) not in str(refused.value)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# --- the files ---


def test_of_many_that_draw_a_secret_at_once_one_does_and_all_have_it(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def draw(_: int) -> str:
        start.wait()
        return read_secret(tmp_path, CONTROL)

    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(draw, range(8)))
    assert len(found) == 1 and len(found.pop()) == 64
    assert [path.name for path in tmp_path.iterdir()] == [CONTROL]


def test_a_secret_is_never_readable_by_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        read_secret(tmp_path, INNER)
    finally:
        os.umask(before)
    assert mode(tmp_path / INNER) == 0o600


@pytest.mark.parametrize(
    ("mend", "says"), [(lambda p: p.chmod(0o644), "644"), (lambda p: p.write_text(""), "no secret")]
)
def test_a_file_that_others_could_read_or_that_is_empty_is_refused(tmp_path: Path, mend, says: str) -> None:
    read_secret(tmp_path, CONTROL)
    mend(tmp_path / CONTROL)
    with pytest.raises(ConfigError, match=says):
        read_secret(tmp_path, CONTROL)


# --- inner models ---


def strings(name: str, *values: str) -> grpc_client.InferInput:
    tensor = grpc_client.InferInput(name, [1, len(values)], "BYTES")
    return tensor.set_data_from_numpy(np.array([[value.encode() for value in values]], dtype=np.object_))


def inputs(model: str, text: str) -> list[grpc_client.InferInput]:
    if model == "revelator":
        warm = grpc_client.InferInput("temperature", [1, 1], "FP32")
        warm.set_data_from_numpy(np.zeros((1, 1), dtype=np.float32))
        return [strings("task", "end"), strings("prompt", text), warm]
    if model == "retriever":
        k = grpc_client.InferInput("k", [1, 1], "INT32").set_data_from_numpy(np.array([[3]], dtype=np.int32))
        return [strings("query", text), k]
    return [strings("request", text)]


@pytest.fixture(scope="module")
def inner(served) -> str:
    """The address of a server with all inner models."""
    return served.url


@pytest.mark.parametrize("model", ["revelator", "retriever", "generator"])
@pytest.mark.parametrize(
    "sent",
    [None, {SECRET_PARAMETER: "guessed" * 9}, {SECRET_PARAMETER: 1}, {SECRET_PARAMETER: True}, {SECRET_PARAMETER: ""}],
)
def test_an_inner_model_answers_nobody_who_does_not_know_the_secret(inner, model: str, sent: dict | None) -> None:
    raises = pytest.raises(InferenceServerException, match="answers the executor alone")
    with grpc_client.InferenceServerClient(inner) as client, raises as refused:
        client.infer(model, inputs(model, "Is it known?"), parameters=sent)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_the_secrets_stand_in_no_log_no_metric_and_no_answer(served) -> None:
    hidden = [read_secret(served.home, INNER), read_secret(served.home, CONTROL)]
    with Client(served.url, 30) as client:
        answer = client.ask(FAST, strategy="single")
    texts = [json.dumps(answer.trace.to_json())]
    texts += [path.read_text(errors="replace") for path in served.home.glob("logs/*")]
    texts += [path.read_text() for path in served.home.glob("*.json")]
    texts += [path.read_text() for path in served.home.rglob("config.pbtxt")]
    assert not any(one in text for one in hidden for text in texts)


def test_a_request_that_points_into_the_server_s_memory_is_refused(served) -> None:
    """Shared memory cannot be registered, so a request that names a region names none."""
    with grpc_client.InferenceServerClient(served.url) as client:
        tensor = grpc_client.InferInput("question", [1], "BYTES")
        tensor.set_shared_memory("mine", 64)
        with pytest.raises(InferenceServerException, match="shared memory region"):
            client.infer("executor", [tensor, grpc_client.InferInput("options", [1], "BYTES")])
        stub = service_pb2_grpc.GRPCInferenceServiceStub(client._channel)
        assert stub.ServerLive(service_pb2.ServerLiveRequest()).live
