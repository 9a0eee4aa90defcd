"""Which Triton server is run where the wheel and another one are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from revelator.errors import ConfigError
from serving.triton.installation import find_installation


def test_a_server_is_taken_that_has_the_backend_which_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"pytriton/.*: no Triton server on this machine has the backend vllm"):
        find_installation(tmp_path / "links", "vllm")
    image = tmp_path / "opt" / "tritonserver"
    for folder in ("bin", "backends/python", "backends/vllm"):
        (image / folder).mkdir(parents=True)
    program = image / "bin" / "tritonserver"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    found = find_installation(tmp_path / "links", "vllm")
    assert (found.binary, found.backends) == (program, image / "backends")
    assert "pytriton" in str(find_installation(tmp_path / "links").binary)


def test_nvidia_s_vllm_backend_may_be_named_beside_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = tmp_path / "backend"
    backend.mkdir()
    monkeypatch.setenv("TRITON_VLLM_BACKEND", str(backend))
    with pytest.raises(ConfigError, match=r"TRITON_VLLM_BACKEND=.*it has no model.py"):
        find_installation(tmp_path / "triton", "vllm")
    (backend / "model.py").write_text("")
    found = find_installation(tmp_path / "triton", "vllm")
    assert "pytriton" in str(found.binary)
    assert sorted(path.name for path in found.backends.iterdir()) == ["python", "vllm"]
    monkeypatch.delenv("TRITON_VLLM_BACKEND")
    assert [path.name for path in find_installation(tmp_path / "triton").backends.iterdir()] == ["python"]
