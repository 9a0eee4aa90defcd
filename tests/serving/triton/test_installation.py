"""Which Triton server is run where the wheel and another one are there."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from revelator.errors import ConfigError
from serving.triton import installation
from serving.triton.installation import find_installation
from tests.triton_wheel import MISSING


@pytest.mark.skipif(not find_spec("pytriton"), reason=MISSING)
def test_the_wheel_s_server_is_run_then_that_on_the_path_and_without_one_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "opt" / "tritonserver"
    for folder in ("bin", "backends/python"):
        (image / folder).mkdir(parents=True)
    program = image / "bin" / "tritonserver"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    wheel = find_installation(tmp_path / "links")
    assert "pytriton" in str(wheel.binary)
    assert {path.name for path in (wheel.backends / "python").iterdir()} >= {"triton_python_backend_stub"}
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)
    found = find_installation(tmp_path / "links")
    assert (found.binary, found.backends) == (program, image / "backends")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="no Triton server") as missing:
        find_installation(tmp_path / "links")
    assert "revelator[server]" in missing.value.hint
