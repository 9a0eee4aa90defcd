"""The embedded base at servers of others, `transformers serve` and the real vLLM of `make vllm`.

The base knows no chat: its template turns the data of the last message into the prompt of `translate_bnf`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from revelator.tasks import TASKS
from tests.causal import TINY
from tests.loopback import find_port

TEMPLATE = "{% set asked = messages[-1]['content'].split('\"question\": \"')[1].split('\"}')[0] %}"
VLLM = Path(os.environ.get("REVELATOR_VLLM", Path(__file__).parents[1] / ".venv" / "vllm"))  # `make vllm` makes it
START_SECONDS = 900  # a busy machine takes five minutes for what an idle one does in one
MOST_ADAPTERS = 4


@pytest.fixture(scope="session")
def served_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    shutil.copytree(TINY, folder)
    prompt = TASKS["translate_bnf"].template.replace("$question", "{{ asked }}")
    (folder / "chat_template.jinja").write_text(TEMPLATE + prompt)
    return folder


@pytest.fixture(scope="module")
def transformers_url(served_base: Path) -> Iterator[str]:
    """`transformers serve`, once it answers."""
    program = Path(sys.executable).with_name("transformers")
    with serve([str(program), "serve", "--device", "cpu"], {"OMP_NUM_THREADS": "1"}) as url:
        yield url


@pytest.fixture(scope="session")
def vllm() -> Path:
    """The environment of vLLM."""
    if not (VLLM / "complete").is_file():
        pytest.skip(f"no vLLM in {VLLM}: `make vllm` installs it")
    return VLLM


@pytest.fixture(scope="session")
def vllm_url(served_base: Path, vllm: Path) -> Iterator[str]:
    with serve_vllm(served_base, vllm) as url:
        yield url


@contextmanager
def serve_vllm(served_base: Path, vllm: Path) -> Iterator[str]:
    """vLLM over the base, under the name `tiny`, once it answers; it loads adapters while it runs."""
    program = vllm / "bin"
    command = [str(program / "vllm"), "serve", str(served_base), "--served-model-name", "tiny", "--dtype", "float32"]
    paths = f"{program}{os.pathsep}{os.environ['PATH']}"
    command += ["--enforce-eager", "--max-model-len", "1024", "--logprobs-mode", "processed_logprobs"]
    command += ["--enable-lora", "--max-loras", str(MOST_ADAPTERS), "--max-lora-rank", "16"]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "PATH": paths}
    with serve(command, environment | {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}) as url:
        yield url


@contextmanager
def serve(command: list[str], environment: Mapping[str, str]) -> Iterator[str]:
    """The address of a server on a free port, once it answers."""
    port = find_port()
    command = [*command, "--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
    with subprocess.Popen(command, env=environment, process_group=0) as process:
        try:
            until = time.monotonic() + START_SECONDS
            while time.monotonic() < until and process.poll() is None:
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                        break
                except httpx.TransportError:
                    time.sleep(0.2)  # no event tells of a port that opens
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
