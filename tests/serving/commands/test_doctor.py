"""`revelator doctor`: what a machine has, as a person and as a script ask for it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from serving.triton.installation import is_installed


def examine(home: Path, *options: str, code: int = 0) -> dict[str, dict]:
    said = CliRunner().invoke(revelator, ["doctor", "--home", str(home), "--json", *options], catch_exceptions=False)
    assert said.exit_code == code, said.stdout
    value = json.loads(said.stdout)
    assert value["ok"] is (code == 0)
    return {finding["name"]: finding for finding in value["findings"]}


def test_every_part_is_found_and_what_lacks_says_how_to_get_it(tmp_path: Path) -> None:
    found = examine(tmp_path)
    states = {name: found[name]["state"] for name in ("python", "serve", "disk", "tracking", "triton")}
    assert states == dict.fromkeys(states, "ok") | {"triton": "ok" if is_installed() else "absent"}
    assert all(each["purpose"] and (each["remedy"] or each["state"] == "ok") for each in found.values())


def test_cards_are_what_nvidia_s_program_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H100, 81920, 40960, 570.1, 9.0'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = examine(tmp_path, code=1)  # torch sees no card
    assert found["gpus"]["found"] == "NVIDIA H100, 40 of 80 GiB free; driver 570.1, compute 9.0"
    assert found["cuda"]["state"] == "fault"


def test_of_a_node_only_what_it_needs_is_looked_at_and_a_card_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = examine(tmp_path, "--gpu", code=1)
    assert found["gpus"]["state"] == "absent" and {"triton", "vllm", "faiss-gpu"} <= found.keys()
    assert not {"python", "disk", "data", "triton-vllm"} & found.keys()
    said = CliRunner().invoke(revelator, ["doctor", "--gpu", "--home", str(tmp_path)])
    assert said.stderr == "error: gpus: no NVIDIA card answers `nvidia-smi`\n  hint: install NVIDIA's driver\n"


def test_a_part_that_is_needed_and_absent_is_an_exit_status(tmp_path: Path) -> None:
    assert examine(tmp_path, "--need", "vllm", code=1)["vllm"]["remedy"]
    refused = CliRunner().invoke(revelator, ["doctor", "--need", "coffee"])
    assert refused.exit_code == 2
    assert "parts are python" in refused.output


def test_a_tracking_server_that_is_gone_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free.getsockname()[1]}")
        found = examine(tmp_path, code=1)
    assert found["tracking"]["state"] == "fault"
    assert "MLFLOW_TRACKING_URI" in found["tracking"]["remedy"]


def test_ports_are_those_of_http_and_grpc(tmp_path: Path) -> None:
    said = examine(tmp_path)["ports"]
    assert said["state"] == "ok" and said["found"].startswith(("free: 8000, 8001", "taken: "))


def test_a_person_reads_what_a_part_is_for_where_it_lacks(tmp_path: Path) -> None:
    said = CliRunner().invoke(revelator, ["doctor", "--home", str(tmp_path)])
    assert "absent vllm" in said.stdout
    assert "large bases at high throughput" in said.stdout
