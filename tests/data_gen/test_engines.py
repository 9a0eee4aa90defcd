"""Whatever prepares the rows, the set is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.engines import local
from data_gen.prepare import CHUNK
from data_gen.world.generate import generate
from revelator.errors import DataError


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> SetConfig:
    """A world of several chunks, read twice: everything in the second reading is a repeat."""
    folder = tmp_path_factory.mktemp("world")
    generate(3 * CHUNK, 1, folder)
    source = {"format": "world", "path": str(folder)}
    return SetConfig.model_validate({"name": "t", "sources": [source, {**source, "limit": CHUNK}]})


def test_any_number_of_workers_builds_the_same_set(config: SetConfig, tmp_path: Path) -> None:
    alone = build(config, tmp_path / "alone")
    shown: list[int] = []
    together = build(config, tmp_path / "together", lambda source, rows: shown.append(rows), engine=local(workers=2))
    assert together["digest"] == alone["digest"]
    assert together["dropped"]["id seen before"] == CHUNK
    assert {**together, "created": ""} == {**alone, "created": ""}
    assert shown == [*range(CHUNK, 3 * CHUNK + 1, CHUNK), CHUNK]


def test_a_worker_that_is_killed_ends_the_build_with_one_clear_error(config: SetConfig, tmp_path: Path) -> None:
    def kill_workers(source: str, rows: int) -> None:
        for child in psutil.Process().children():
            if "spawn_main" in " ".join(child.cmdline()):
                child.kill()

    longer = config.model_copy(update={"sources": config.sources * 3})  # than what is prepared ahead of the first row
    with pytest.raises(DataError, match="ended from outside") as caught:
        build(longer, tmp_path / "set", kill_workers, engine=local(workers=2))
    assert caught.value.where == "--workers 2" and not list(tmp_path.iterdir())


def test_workers_end_with_the_process_that_started_them(config: SetConfig, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
import psutil
from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.engines import local
def tell(source, rows):
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    sys.stdin.read()
if __name__ == "__main__":
    build(SetConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), tell, engine=local(workers=2))
"""
    script = tmp_path / "killed.py"
    script.write_text(code, encoding="utf-8")
    command = [sys.executable, str(script), config.model_dump_json(), str(tmp_path / "set")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as driver:
        assert driver.stdout is not None
        workers = [psutil.Process(int(number)) for number in driver.stdout.readline().split()]
        driver.send_signal(signal.SIGKILL)
    assert len(workers) >= 2
    assert not psutil.wait_procs(workers, timeout=30)[1]
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_sigterm_ends_a_build_and_leaves_nothing(workers: str, tmp_path: Path) -> None:
    fifo, config = tmp_path / "in.jsonl", tmp_path / "set.yaml"
    os.mkfifo(fifo)
    config.write_text(f"name: t\nsources: [{{format: world, path: {fifo}}}]\n")
    command = [sys.executable, "-c", "from revelator.cli import main; main()", "data", "build", str(config)]
    command += ["--out", str(tmp_path / "sets/a"), "--workers", workers]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with fifo.open("w"):  # returns once the build reads, which is after its folder was staged
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143
        assert process.stderr is not None and "Traceback" not in process.stderr.read()
    assert not list((tmp_path / "sets").iterdir())
