"""A build that is killed goes on to the same set."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.prepare import CHUNK, Chunk, PreparedChunk
from data_gen.world.generate import generate
from revelator.errors import ConfigError


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> SetConfig:
    """A world of several chunks, read twice: everything in the second reading is a repeat."""
    folder = tmp_path_factory.mktemp("world")
    generate(3 * CHUNK, 1, folder)
    source = {"format": "world", "path": str(folder)}
    return SetConfig.model_validate({"name": "t", "sources": [source, {**source, "limit": CHUNK}]})


def built(config: SetConfig, target: Path) -> tuple[dict, int]:
    """The manifest of a build here, and the first chunk that it prepared itself."""
    first: list[int] = []

    def engine(prepare: Callable[[Chunk], PreparedChunk], chunks: Iterable[Chunk]) -> Iterator[PreparedChunk]:
        for chunk in chunks:
            first.append(chunk.number)
            yield prepare(chunk)

    return {**build(config, target, engine=engine), "created": ""}, first[0]


@pytest.fixture(scope="module")
def alone(config: SetConfig, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The manifest of a build that nothing interrupts."""
    shown: list[int] = []
    manifest = build(config, tmp_path_factory.mktemp("alone") / "set", lambda source, rows: shown.append(rows))
    assert shown == [*range(CHUNK, 3 * CHUNK + 1, CHUNK), CHUNK]
    return {**manifest, "created": ""}


BUILD = """
import sys
from pathlib import Path
from data_gen.build import build
from data_gen.config import SetConfig
def tell(source, rows):
    print(rows, flush=True)
    if rows == int(sys.argv[3]):
        sys.stdin.read()
build(SetConfig.model_validate_json(sys.argv[1]), Path(sys.argv[2]), tell)
"""


@pytest.fixture(scope="module")
def killed(config: SetConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the build of `set` was killed with two chunks kept."""
    target = tmp_path_factory.mktemp("killed") / "set"
    command = [sys.executable, "-c", BUILD, config.model_dump_json(), str(target), str(2 * CHUNK)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as driver:
        assert driver.stdout is not None
        for _ in range(2):
            driver.stdout.readline()
        with pytest.raises(ConfigError, match=f"another process .{driver.pid}. is building this set"):
            build(config, target)
        driver.send_signal(signal.SIGKILL)
    assert not target.exists()
    return target.parent


@pytest.fixture
def target(killed: Path, tmp_path: Path) -> Path:
    """Where a build was killed."""
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "set"


def test_a_question_that_is_read_twice_stands_once_in_the_set(alone: dict) -> None:
    assert alone["dropped"]["id seen before"] == CHUNK


def test_a_killed_build_goes_on_from_its_last_chunk_to_the_same_set(
    config: SetConfig, alone: dict, target: Path
) -> None:
    assert built(config, target) == (alone, 2)
    names = sorted(path.name for path in target.iterdir())
    assert names == [
        "README.md", "dev.parquet", "fingerprints.npz", "manifest.json", "test.parquet", "train.parquet"
    ]  # fmt: skip
    assert [path.name for path in target.parent.iterdir()] == ["set"]


def test_what_was_kept_of_other_inputs_is_thrown_away(config: SetConfig, target: Path) -> None:
    plan = target.with_name(".set.building") / "plan.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"inputs": {}}))
    assert built(config, target)[1] == 0


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_kept_chunk_that_was_damaged_is_prepared_again(
    config: SetConfig, alone: dict, target: Path, damage: str
) -> None:
    _, second = sorted(target.with_name(".set.building").glob("*.json.gz"))
    whole = second.read_bytes()
    middle = len(whole) // 2
    second.write_bytes(whole[:middle] if damage == "cut" else whole[:middle] + b"\xff\x00" + whole[middle + 2 :])
    assert built(config, target) == (alone, 1)


def test_sigterm_ends_a_build_and_leaves_nothing(tmp_path: Path) -> None:
    fifo, config = tmp_path / "in.jsonl", tmp_path / "set.yaml"
    os.mkfifo(fifo)
    config.write_text(f"name: t\nsources: [{{format: world, path: {fifo}}}]\n")
    command = [sys.executable, "-c", "from revelator.cli import main; main()", "data", "build", str(config)]
    command += ["--out", str(tmp_path / "sets/a")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with fifo.open("w"):  # returns once the build reads, which is after its folder was staged
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143
        assert process.stderr is not None and "Traceback" not in process.stderr.read()
    assert not list((tmp_path / "sets").iterdir())
