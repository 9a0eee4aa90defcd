"""`revelator serve` and `revelator ask` as processes: addresses, answers, clear refusals, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from revelator import registry
from revelator.cli import revelator as program
from revelator.errors import ConfigError
from serving.deploy.deploy import deploy
from serving.home.running import find_running_server
from serving.triton.server import Ports, read_error_lines, read_ports
from tests.serving.triton.test_faults import shared_memory

REVELATOR = str(Path(sys.executable).parent / "revelator")
WAIT = 150.0  # a start takes 10 s of processor time; how busy the machine is must not decide


@pytest.fixture
def home(registered, tmp_path) -> Path:
    """A home folder with version 1 deployed and no server."""
    registry.connect(registered)
    deploy(tmp_path, registry.resolve(registry.NAME, 1))
    return tmp_path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([REVELATOR, *map(str, arguments)], capture_output=True, text=True, timeout=WAIT)


def start(home: Path, index: Path) -> subprocess.Popen[str]:
    command = [REVELATOR, "serve", "--home", str(home), "--index", str(index)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_until(is_so: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + WAIT
    while not is_so():
        assert time.monotonic() < end, "not within the time"
        assert process is None or process.poll() is None, process.stdout.read() if process.stdout else ""
        time.sleep(0.1)


def below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_a_server_says_where_it_is_and_answers_and_one_that_dies_ends_the_command_and_leaves_nothing(home, index):
    process = start(home, index)
    try:
        wait_until((home / "serve.json").exists, process)
        running = find_running_server(home)
        assert running is not None and running.pid == process.pid
        models = {"retriever": 1, "generator": 1, "executor": 1, "executor_stream": 1, "revelator": 1}
        assert running.models == models
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
        again = run("serve", "--home", home, "--index", index)
        assert again.returncode == 2 and "is being served already" in again.stderr
        [generator] = [child for child in below(process) if "/generator/" in " ".join(child.cmdline())]
        generator.kill()
        wait_until(lambda: run("ask", "When was Sarnath founded?", "--url", running.grpc).returncode == 0, process)
        assert shared_memory(home) != []
        children = below(process)
        assert len(children) >= 5  # the server and a stub for each model
        psutil.Process(running.server_pid).kill()
        output, _ = process.communicate(timeout=WAIT)
    finally:
        process.kill()
    assert process.returncode == 1 and "the Triton server was ended by SIGKILL" in output
    assert running.grpc in output and running.metrics in output and "revelator version 1: ready" in output
    _, alive = psutil.wait_procs(children, timeout=WAIT)
    assert alive == []
    assert shared_memory(home) == []
    assert not (home / "serve.json").exists() and find_running_server(home) is None


def test_no_process_survives_a_parent_that_is_killed(home, index):
    process = start(home, index)
    wait_until(lambda: len(below(process)) >= 3, process)  # the server, and stubs that are loading their models
    children = below(process)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=WAIT)
    assert alive == []
    assert find_running_server(home) is None


def test_a_model_that_does_not_load_ends_the_start_with_its_reason(home, index, tmp_path):
    (broken := tmp_path / "broken").mkdir()
    (broken / "manifest.json").write_text("{}")
    result = run("serve", "--home", home, "--index", broken)
    assert result.returncode == 1
    assert "model retriever: does not load" in result.stderr and "this is not an index" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (home / "serve.json").exists()
    assert shared_memory(home) == []


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
        "model deploy --rollback",
        "model deploy --canary 10%",
    ],
)
def test_a_mistyped_home_folder_is_refused_and_nothing_is_made(command, tmp_path):
    with pytest.raises(ConfigError, match=r"mistyped.*: nothing stands there") as caught:
        program.main([*command.split(), "--home", str(tmp_path / "mistyped")], standalone_mode=False)
    assert "--home" in str(caught.value) and list(tmp_path.iterdir()) == []


def test_ports_are_checked_before_the_server_starts(served):
    taken = int(served.url.split(":")[1])
    with pytest.raises(ConfigError, match=f"port {taken} is in use"):
        read_ports(f"18000,{taken},18002")
    wrong = dict.fromkeys(("8000", "a,b,c", "1,,2", "1,2,3,4", "²,2,3"), "three numbers")
    wrong |= dict.fromkeys(("1,2,99999", "0,1,2", "-1,2,3"), "a port is a number from 1 to 65535")
    wrong |= dict.fromkeys(("9000,9000,9001", "9000,9001,9000"), "port 9000 is named twice")
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
