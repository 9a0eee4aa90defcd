"""`revelator serve --triton local` and `revelator ask` as processes: addresses, answers, refusals, nothing left."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import tritonclient.grpc as grpc_client

from revelator import registry
from revelator.cli import revelator as program
from revelator.client import Client
from revelator.errors import ConfigError, Unavailable
from revelator.files import sha256_text
from serving.deploy.deploy import deploy
from serving.home.running import RunningServer, find_running_server
from serving.home.versions import ADAPTER, version_folder
from serving.service.addresses import Ports, read_ports
from serving.triton.server import SHARED_MEMORY, read_error_lines
from tests.serving.conftest import SLOW, WAIT, wait_until
from tests.triton_wheel import needs_triton

REVELATOR = str(Path(sys.executable).parent / "revelator")
pytestmark = [needs_triton, pytest.mark.timeout(600)]  # starts of processes; how busy the machine is must not decide


@pytest.fixture
def home(registered, tmp_path) -> Path:
    """A home folder with version 1 deployed and no server."""
    registry.connect(registered)
    deploy(tmp_path, registry.resolve(registry.NAME, 1))
    return tmp_path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([REVELATOR, *map(str, arguments)], capture_output=True, text=True, timeout=SLOW)


@contextmanager
def serving(home: Path, index: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """`revelator serve --triton local`."""
    command = [REVELATOR, "serve", "--triton", "local", "--home", str(home), "--index", str(index), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def await_running(home: Path, process: subprocess.Popen[str]) -> RunningServer:
    def is_there() -> bool:
        assert process.poll() is None, process.stdout and process.stdout.read()
        return find_running_server(home) is not None

    wait_until(is_there)
    running = find_running_server(home)
    assert running
    return running


def below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def find_shared_memory(home: Path) -> list[Path]:
    return list(SHARED_MEMORY.glob(f"revelator-{sha256_text(str((home / 'model_repo').resolve()))[:16]}-*"))


def test_a_service_says_where_it_is_and_answers_and_is_told_to_stop_and_leaves_nothing(home, index):
    with serving(home, index) as process:
        running = await_running(home, process)
        assert running.pid == process.pid and running.models == {"executor": 1, "revelator": 1}
        plan = "Who directed Lantern Row? * Where was {director} born?"
        asked = run("ask", "Where was the director of Lantern Row born?", "--home", home, "--plan", plan, "--steps")
        assert asked.returncode == 0, asked.stderr
        assert "Ines Calloway" in asked.stdout and "Port Velm" in asked.stdout and plan in asked.stdout
        as_json = run("ask", "When was Sarnath founded?", "--strategy", "single", "--json", "--url", running.grpc)
        assert json.loads(as_json.stdout)["answers"] == ["1388"]
        (home / "trace.json").write_text(as_json.stdout)
        again = ("ask", "When was Sarnath founded?", "--plan", "When was Sarnath founded?", "--url", running.grpc)
        reused = run(*again, "--reuse", home / "trace.json", "--steps")
        assert "1388" in reused.stdout and "from the earlier trace" in reused.stdout, reused.stderr
        (home / "trace.json").write_text("{}")
        broken = run(*again, "--reuse", home / "trace.json")
        assert broken.returncode == 1 and "trace.json: this is no trace" in broken.stderr
        refused = run("ask", "Where?", "--home", home, "--plan", "Where was {director} born?")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "^^^^^^^^^^" in refused.stderr and "hint:" in refused.stderr
        second = run("serve", "--home", home, "--index", index)
        assert second.returncode == 2 and "is being served already" in second.stderr
        assert find_shared_memory(home) != []
        children = below(process)
        assert len(children) >= 3  # the server and a process for each model
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=SLOW)
    assert process.returncode == 0 and output.endswith("stopped\n")
    assert running.grpc in output and running.http in output and "revelator version 1: ready" in output
    assert "Triton  127.0.0.1:" in output
    assert psutil.wait_procs(children, timeout=SLOW)[1] == [] and find_shared_memory(home) == []
    assert not (home / "serve.json").exists() and find_running_server(home) is None


def test_told_to_stop_it_answers_what_it_has_begun_and_triton_ends_after_that(home, index, endpoint):
    held = "Where was Lantern Row shot?"
    endpoint.gate(held, "Tessaly")
    endpoint.knowledge["Which film was shot in Tessaly?"] = ["Lantern Row"]
    reader = ("--generator", endpoint.url, "--generator-model", "m")
    (home / "serving.yaml").write_text("text: false")
    with serving(home, index, *reader) as process:
        url = await_running(home, process).grpc
        children = below(process)
        with Client(url, timeout=WAIT) as client:
            pending = client.submit(held, plan=f"{held} * Which film was shot in {{it}}?")
            assert endpoint.started[held].wait(WAIT)
            process.terminate()
            with grpc_client.InferenceServerClient(url) as service:
                wait_until(lambda: not service.is_server_ready())
            with pytest.raises(Unavailable):
                client.ask("Where is Sarnath?", strategy="single")
            endpoint.gates[held].set()  # its second leaf is searched, judged and read after the stop
            answer = pending.result(WAIT)
        assert (answer.answers, answer.outcome) == (("Lantern Row",), "answered")
        assert all(node.detail.get("judge") != "none" and not node.error for node in answer.trace.nodes)
        process.communicate(timeout=SLOW)
    assert process.returncode == 0
    assert psutil.wait_procs(children, timeout=SLOW)[1] == [] and find_shared_memory(home) == []


def test_no_process_survives_a_service_that_is_killed_and_the_next_start_clears_the_shared_memory(home, index):
    with serving(home, index) as process:
        wait_until(lambda: len(below(process)) >= 3)  # the server, and processes that are loading their models
        children = below(process)
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(children, timeout=SLOW)
        assert alive == []
    assert find_running_server(home) is None
    left = find_shared_memory(home)
    with serving(home, index) as process:
        await_running(home, process)
        assert not set(left) & set(find_shared_memory(home))
        process.terminate()
        process.communicate(timeout=SLOW)
    assert find_shared_memory(home) == []


@pytest.mark.parametrize("fault", ["index", "version"])
def test_what_does_not_load_ends_the_start_with_its_reason(home, index, tmp_path, fault):
    says = "model revelator: does not load"
    if fault == "index":
        (index := tmp_path / "broken").mkdir()
        (index / "manifest.json").write_text("{}")
        says = "this is not an index"
    else:
        (version_folder(home, 1) / ADAPTER / "adapter_model.safetensors").write_bytes(b"no weights")
    result = run("serve", "--triton", "local", "--home", home, "--index", index)
    assert result.returncode == 1 and says in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and "At:" not in result.stderr
    if fault == "version":
        [line] = [line for line in result.stderr.splitlines() if says in line]
        assert "adapter_model.safetensors" in line
    assert not (home / "serve.json").exists()
    assert find_shared_memory(home) == []


def test_asking_without_a_server_says_how_to_start_one(tmp_path):
    (tmp_path / "serve.json").write_text("{}")  # left by a process that was killed: its lock is free
    result = run("ask", "Who?", "--home", tmp_path)
    assert result.returncode == 1 and "revelator serve" in result.stderr
    result = run("ask", "Who?", "--home", tmp_path, "--json")
    said = json.loads(result.stdout)
    assert (result.returncode, said["error"], said["code"]) == (1, "Unavailable", "UNAVAILABLE")
    result = run("ask", "Who?", "--url", "127.0.0.1:1")
    assert result.returncode == 1 and "127.0.0.1:1" in result.stderr


def test_a_home_folder_that_cannot_be_written_is_refused_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("serve", "--home", tmp_path / "file")
    assert result.returncode == 2 and "cannot be written" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        "serve",
        "model promote",
        "model rollback",
        "model grade",
        "model deploy",
        "model rollback --served",
        "model deploy --canary 10%",
    ],
)
def test_a_mistyped_home_folder_is_refused_and_nothing_is_made(command, tmp_path):
    with pytest.raises(ConfigError, match=r"mistyped.*: nothing stands there") as caught:
        program.main([*command.split(), "--home", str(tmp_path / "mistyped")], standalone_mode=False)
    assert "--home" in str(caught.value) and list(tmp_path.iterdir()) == []


def test_ports_are_checked_before_the_service_starts():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken = listening.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {taken} is in use"):
            read_ports(f"18000,{taken}")
    wrong = dict.fromkeys(("8000", "a,b", "1,", "1,2,3", "²,2"), "two numbers")
    wrong |= dict.fromkeys(("1,99999", "0,1", "-1,2"), "a port is a number from 1 to 65535")
    wrong["9000,9000"] = "port 9000 is named twice"
    for text, said in wrong.items():
        with pytest.raises(ConfigError, match=said):
            read_ports(text)
    free = read_ports("auto")
    assert not free.find_taken() and (free == Ports()) == (not Ports().find_taken())


def test_the_server_log_is_read_for_errors_without_the_noise_of_a_machine_that_lacks_a_gpu(tmp_path):
    log = tmp_path / "triton.log"
    log.write_text(
        'I1121 09:10:24.2 7 server.cc:1] "all is well"\n'
        'E1121 09:10:24.2 7 pb_stub.cc:7] "failed: a fault\\n\\nAt:\\n  /model.py(1): <module>\\n"\n'
        'E1121 09:10:24.2 7 server.cc:241] "CudaDriverHelper has not been initialized."\n'
        "E1121 09:10:24.3 7 model.cc:6] \"failed to load 'x': no such file\"\n"
    )
    assert read_error_lines(log) == ["failed: a fault", "failed to load 'x': no such file"]
    log.write_text("unrecognised option\nUsage: tritonserver\n")
    assert read_error_lines(log) == ["unrecognised option", "Usage: tritonserver"]
    assert read_error_lines(tmp_path / "none.log") == []
