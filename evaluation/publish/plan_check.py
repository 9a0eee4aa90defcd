"""Does an export plan as its adapter does? Both write plans for the same questions, greedily and held to nothing.

The adapter is run by the engine that serves it, an export in transformers' layout by the same engine, a GGUF by
llama.cpp's own `llama-server`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from revelator.artifact import read_manifest
from revelator.errors import ConfigError, ServingError
from revelator.rows import Row, read_split, sample_rows, verify_set
from revelator.tasks import TASKS

if TYPE_CHECKING:
    from serving.models.engine import Engine

SERVER = "llama-server"
SERVER_VARIABLE = "REVELATOR_LLAMA_SERVER"
START_SECONDS = 300.0
CALL_SECONDS = 600.0
POLL_SECONDS = 0.1  # no event tells of a port that opens
CONTEXT = 4096  # tokens of a prompt and its plan

WritePlans = Callable[[Sequence[Row]], list[str]]


@dataclass(frozen=True)
class Difference:
    """A question whose plans differ."""

    task: str
    question: str
    adapter: str
    export: str


@dataclass(frozen=True)
class PlanCheck:
    """How many questions were asked, and those whose plans differ."""

    asked: int
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        return f"{self.asked - len(self.differences)} of {self.asked} plans are word for word those of the adapter"

    def to_json(self) -> dict[str, Any]:
        return {"asked": self.asked, "differences": [asdict(difference) for difference in self.differences]}


def read_questions(set_folder: Path, adapter: Path, count: int) -> list[Row]:
    """Reads at most `count` dev rows of each task that writes plans and that the adapter has learned, the first by the
    hash of their id. Raises ConfigError for a set without any."""
    verify_set(set_folder)
    tasks = read_manifest(adapter).tasks or list(TASKS)
    rows = read_split(set_folder, "dev", {name for name in tasks if TASKS[name].language})
    if not rows:
        hint = "give a set with dev rows of a translate task"
        raise ConfigError("no dev row asks for a plan", where=f"--check {set_folder}", hint=hint)
    return sample_rows(rows, count)


def compare_plans(rows: Sequence[Row], adapter: WritePlans, export: WritePlans) -> PlanCheck:
    pairs = zip(rows, adapter(rows), export(rows), strict=True)
    found = [
        Difference(row.task, TASKS[row.task].read_question(row.prompt), ours, theirs)
        for row, ours, theirs in pairs
        if ours != theirs
    ]
    return PlanCheck(len(rows), tuple(found))


def write_by_engine(engine: Engine) -> WritePlans:
    from serving.models.local import complete

    def write(rows: Sequence[Row]) -> list[str]:
        """One prompt at a time: what others pad a batch with moves the last digits of its numbers."""
        return [_cut(complete(engine, row.task, [row.prompt], decoding="free")[0].text) for row in rows]

    return write


def write_by_server(url: str) -> WritePlans:
    import httpx

    def write(rows: Sequence[Row]) -> list[str]:
        with httpx.Client(timeout=CALL_SECONDS, trust_env=False) as client:
            return [_cut(_complete(client, url, row)) for row in rows]

    return write


def _complete(client: Any, url: str, row: Row) -> str:
    language = TASKS[row.task].language
    assert language is not None
    asked = {"prompt": row.prompt, "temperature": 0, "max_tokens": language.token_limit}
    reply = client.post(f"{url}/v1/completions", json=asked)
    if not reply.is_success:
        raise ServingError(f"{SERVER} answered {reply.status_code}: {reply.text[:300]}", where=url)
    return str(reply.json()["choices"][0]["text"])


def _cut(text: str) -> str:
    """The line that is read as the plan."""
    return text.strip().partition("\n")[0]


def find_server(given: Path | None) -> Path:
    """The llama-server that is given, else the one on PATH. Raises ConfigError where there is none."""
    found = shutil.which(str(given or SERVER))
    if found is None:
        message = f"no {SERVER} to check the export with"
        hint = f"install llama.cpp, or name its program: --llama-server FILE or {SERVER_VARIABLE}"
        raise ConfigError(message, where=str(given or "PATH"), hint=hint)
    return Path(found)


@contextmanager
def serve_gguf(server: Path, file: Path, adapter: Path | None = None) -> Iterator[str]:
    """The address of a llama-server over `file`, with an adapter for it, once it answers. Raises ServingError with its
    last words if it ends before."""
    port = _find_port()
    command = [str(server), "-m", str(file), "--host", "127.0.0.1", "--port", str(port), "-c", str(CONTEXT)]
    command += ["-np", "1", "-t", str(len(os.sched_getaffinity(0))), *(["--lora", str(adapter)] if adapter else [])]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process, log)
            yield url
        finally:
            process.kill()


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(url: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    import httpx

    until = time.monotonic() + START_SECONDS
    with httpx.Client(trust_env=False) as client:
        while time.monotonic() < until and process.poll() is None:
            try:
                if client.get(f"{url}/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(POLL_SECONDS)
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()[-3:]
    raise ServingError(f"{SERVER} does not serve the export: {' / '.join(said) or 'no word'}", where=url)
