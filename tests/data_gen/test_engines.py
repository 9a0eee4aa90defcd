"""Whatever prepares the rows, the set is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.engines import choose_engine, run_here
from data_gen.prepare import CHUNK, PreparedChunk, Preparer
from data_gen.world.generate import generate
from revelator.errors import ConfigError, DataError


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
    together = build(
        config, tmp_path / "together", lambda source, rows: shown.append(rows), engine=choose_engine("local", 2)
    )
    assert together["digest"] == alone["digest"]
    assert together["dropped"]["id seen before"] == CHUNK
    assert {**together, "created": ""} == {**alone, "created": ""}
    assert shown == [*range(CHUNK, 3 * CHUNK + 1, CHUNK), CHUNK]


def test_a_worker_that_is_killed_ends_the_build_with_one_clear_error_and_the_next_goes_on(
    config: SetConfig, tmp_path: Path
) -> None:
    def kill_workers(source: str, rows: int) -> None:
        for child in psutil.Process().children():
            if "spawn_main" in " ".join(child.cmdline()):
                child.kill()

    longer = config.model_copy(update={"sources": config.sources * 3})  # than what is prepared ahead of the first row
    with pytest.raises(DataError, match="ended from outside") as caught:
        build(longer, tmp_path / "set", kill_workers, engine=choose_engine("local", 2))
    assert caught.value.where == "--workers 2"
    assert [path.name for path in tmp_path.iterdir()] == [".set.building"]
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / ".set.building").glob("*.json.gz")}
    assert kept

    def still_there(source: str, rows: int) -> None:
        assert {path: path.stat().st_mtime_ns for path in kept} == kept

    manifest = build(longer, tmp_path / "set", still_there)
    assert manifest["digest"] == build(longer, tmp_path / "alone")["digest"]
    assert {path.name for path in tmp_path.iterdir()} == {"set", "alone"}


BUILD = """
import sys
from pathlib import Path
import psutil
from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.engines import choose_engine
def tell(source, rows):
    print(*(child.pid for child in psutil.Process().children()), flush=True)
    if rows == int(sys.argv[4]):
        sys.stdin.read()
if __name__ == "__main__":
    engine = choose_engine("local", int(sys.argv[3]))
    build(SetConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), tell, engine=engine)
"""


def start_build(config: SetConfig, target: Path, workers: int, waits_at: int) -> subprocess.Popen[str]:
    """A process that builds; it prints a line of its workers' numbers for each chunk, and waits for ever at a row."""
    script = target.with_name("killed.py")
    script.write_text(BUILD, encoding="utf-8")
    command = [sys.executable, str(script), config.model_dump_json(), str(target), str(workers), str(waits_at)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def test_workers_end_with_the_process_that_started_them(config: SetConfig, tmp_path: Path) -> None:
    with start_build(config, tmp_path / "set", workers=2, waits_at=CHUNK) as driver:
        assert driver.stdout is not None
        workers = [psutil.Process(int(number)) for number in driver.stdout.readline().split()]
        driver.send_signal(signal.SIGKILL)
    assert len(workers) >= 2
    assert not psutil.wait_procs(workers, timeout=30)[1]
    assert not (tmp_path / "set").exists()


def built(config: SetConfig, target: Path) -> tuple[dict, int]:
    """The manifest of a build here, and the first chunk that it prepared itself."""
    first: list[int] = []

    def engine(prepare: Preparer, start: int) -> Iterator[PreparedChunk]:
        first.append(start)
        return run_here(prepare, start)

    return {**build(config, target, engine=engine), "created": ""}, first[0]


def test_a_killed_build_goes_on_from_its_last_chunk_to_the_same_set(config: SetConfig, tmp_path: Path) -> None:
    alone, _ = built(config, tmp_path / "alone")
    for workers in (1, 2):
        target = tmp_path / f"set{workers}"
        with start_build(config, target, workers, waits_at=2 * CHUNK) as driver:
            assert driver.stdout is not None
            for _ in range(2):
                driver.stdout.readline()
            with pytest.raises(ConfigError, match=f"another process .{driver.pid}. is building this set"):
                build(config, target)
            driver.send_signal(signal.SIGKILL)
        assert not target.exists()
        assert built(config, target) == (alone, 2)
        names = sorted(path.name for path in target.iterdir())
        assert names == ["README.md", "dev.parquet", "manifest.json", "test.parquet", "train.parquet"]
    assert not list(tmp_path.glob(".*"))


def test_what_was_kept_of_other_inputs_is_thrown_away(config: SetConfig, tmp_path: Path) -> None:
    target = tmp_path / "set"
    with start_build(config, target, 1, waits_at=CHUNK) as driver:
        assert driver.stdout is not None
        driver.stdout.readline()
        driver.send_signal(signal.SIGKILL)
    plan = tmp_path / ".set.building" / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"inputs": {}}))
    assert built(config, target)[1] == 0


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
