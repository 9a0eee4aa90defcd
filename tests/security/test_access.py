"""Who may change a served home, and who may ask the Triton server behind it: those who can read its 0600 files, nobody
else."""

from __future__ import annotations

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from revelator.channels import Headers, Tls, make_channel_arguments
from revelator.client import Client
from revelator.errors import ConfigError
from serving.service import control
from serving.service.access import CONTROL, read_control_token
from serving.triton.certificates import draw_certificate

CODE = "import pathlib\npathlib.Path({mark!r}).touch()\nclass TritonPythonModel:\n    def execute(self, r): return []\n"
FAST = "Where is Sarnath?"
REVELATOR = "revelator"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- the service ---


@pytest.mark.parametrize("token", [None, "guessed" * 10, "", "é"])
def test_without_the_home_s_token_no_version_and_no_code_is_loaded(served, tmp_path: Path, token: str | None) -> None:
    """A model loaded from a request's own files would be code of the caller's in the server."""
    mark = tmp_path / "ran"
    headers = {"authorization": f"Bearer {token}"} if token and token.isascii() else None
    code = {"file:1/model.py": CODE.format(mark=str(mark)).encode()}
    config = json.dumps({"backend": "python", "max_batch_size": 0})
    with grpc_client.InferenceServerClient(served.url) as client:
        for model, status in ((REVELATOR, "UNAUTHENTICATED"), ("mine", "UNIMPLEMENTED"), ("executor", "UNIMPLEMENTED")):
            with pytest.raises(InferenceServerException) as refused:
                client.load_model(model, headers=headers, config=config, files=code)
            assert refused.value.status() == f"StatusCode.{status}"
        assert client.is_model_ready("executor") and client.is_model_ready(REVELATOR, "1")
    assert not mark.exists()


def test_not_even_with_the_token_is_code_loaded(served, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    code = {"file:1/model.py": CODE.format(mark=str(mark)).encode()}
    config = json.dumps({"backend": "python", "version_policy": {"specific": {"versions": [1]}}})
    with grpc_client.InferenceServerClient(served.url) as client:
        client.register_plugin(Headers(read_control_token(served.home)))
        client.load_model(REVELATOR, config=config, files=code)
        with pytest.raises(InferenceServerException, match="revelator alone"):
            client.load_model("mine", config=config, files=code)
        assert client.is_model_ready(REVELATOR, "1")
    assert not mark.exists()


def test_the_token_of_the_home_lets_in_and_stands_in_a_file_of_its_owner(served) -> None:
    assert mode(served.home / CONTROL) == 0o600
    control.load(served.home, served.url, [1])


def test_another_token_than_the_service_s_is_refused_with_what_to_do(served, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another control token") as refused:
        control.load(tmp_path, served.url, [1])  # which has drawn its own
    assert "start `revelator serve` again" in (refused.value.hint or "")
    assert read_control_token(tmp_path) not in str(refused.value)


def test_the_secrets_stand_in_no_log_no_metric_no_answer_and_no_command_line(served) -> None:
    hidden = [read_control_token(served.home), *served.triton.tls.key.read_text().splitlines()[1:-1]]
    with Client(served.url, 30) as client:
        answer = client.ask(FAST, strategy="single")
    texts = [json.dumps(answer.trace.to_json())]
    texts += [path.read_text(errors="replace") for path in served.home.glob("logs/*")]
    texts += [path.read_text() for path in served.home.glob("*.json")]
    texts += [path.read_text() for path in served.home.rglob("config.pbtxt")]
    triton = psutil.Process(served.triton.pid)
    texts += [" ".join(process.cmdline()) for process in (triton, *triton.children(recursive=True))]
    assert not any(one in text for one in hidden for text in texts)


# --- the Triton server behind it ---


def test_the_key_to_the_triton_server_stands_in_a_folder_of_its_owner(served) -> None:
    assert mode(served.triton.tls.key.parent) == 0o700


@pytest.mark.parametrize("who", ["in the clear", "without a certificate", "with its own"])
def test_the_triton_server_answers_nobody_without_the_service_s_key(served, tmp_path: Path, who: str) -> None:
    ca, own = served.triton.tls.ca, draw_certificate(tmp_path, "127.0.0.1")
    tls = {
        "in the clear": None,
        "without a certificate": Tls(ca),
        "with its own": Tls(ca, own.cert, own.key),
    }
    with grpc_client.InferenceServerClient(**make_channel_arguments(served.triton.url, tls[who])) as client:
        for ask in (
            client.is_server_live,
            client.get_model_repository_index,
            lambda **at: client.load_model("mine", **at),
        ):
            with pytest.raises(InferenceServerException) as refused:
                ask(client_timeout=5)
            assert refused.value.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED")
    with grpc_client.InferenceServerClient(**make_channel_arguments(served.triton.url, served.triton.tls)) as client:
        assert client.is_server_live()


# --- the files ---


def test_of_many_that_draw_a_secret_at_once_one_does_and_all_have_it(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def draw(_: int) -> str:
        start.wait()
        return read_control_token(tmp_path)

    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(draw, range(8)))
    assert len(found) == 1 and len(found.pop()) == 64
    assert [path.name for path in tmp_path.iterdir()] == [CONTROL]


def test_a_secret_is_never_readable_by_others_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        read_control_token(tmp_path)
        tls = draw_certificate(tmp_path / "tls", "127.0.0.1")
    finally:
        os.umask(before)
    assert mode(tmp_path / CONTROL) == 0o600
    assert mode(tls.key.parent) == 0o700, "whoever may not enter the folder reads no file in it"


@pytest.mark.parametrize(
    ("mend", "says"), [(lambda p: p.chmod(0o644), "644"), (lambda p: p.write_text(""), "no secret")]
)
def test_a_file_that_others_could_read_or_that_is_empty_is_refused(tmp_path: Path, mend, says: str) -> None:
    read_control_token(tmp_path)
    mend(tmp_path / CONTROL)
    with pytest.raises(ConfigError, match=says):
        read_control_token(tmp_path)
