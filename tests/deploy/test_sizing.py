"""The calculation of sizes: what follows from service times, in numbers that can be worked out by hand."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "sizing.py"
TIMES = {
    "core_seconds": {"revelator": 1.0, "retriever": 0.01},
    "private_bytes": {"revelator": 500_000_000},
    "index": {"passages": 100_000, "bytes": 1_000_000_000},
    "cores": 2,
}


def test_searches_grow_with_the_corpus_and_replicas_with_the_rate():
    specification = importlib.util.spec_from_file_location("sizing", SCRIPT)
    sizing = importlib.util.module_from_spec(specification)
    sys.modules["sizing"] = sizing
    specification.loader.exec_module(sizing)
    assumed = sizing.Assumptions(cores=2, busy=0.6, core_month=10, gb_month=1, disk_gb_month=0)
    few = sizing.size(TIMES, 1, assumed, 100_000)
    assert (few.core_seconds, few.replicas, few.memory_gb) == (1.01, 2, 3.0)
    many = sizing.size(TIMES, 100, assumed, 1_000_000)
    assert (
        round(many.core_seconds, 6) == 1.1 and many.replicas == 92
    )  # 100 questions/s at 1.1 core seconds, of 1.2 that a replica gives
    assert (many.disk_gb, many.cost) == (920, 92 * (2 * 10 + 10.5))


def test_it_runs_with_python_alone_and_prints_its_tables(tmp_path):
    (tmp_path / "times.json").write_text(json.dumps(TIMES))
    command = [sys.executable, "-I", "-S", SCRIPT, tmp_path / "times.json", "--passages", "5000000", "--shard-gb", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "5,000,000 passages: index 50.0 GB, shards of at most 20 GB: 3" in done.stdout, done.stderr
    assert done.stdout.count("| 10,000 |") == 2


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("{}", [], "not what benchmarks/service_times.py writes: KeyError('index')"),
        ("[", [], "not what benchmarks/service_times.py writes"),
        (json.dumps(TIMES), ["--cores", "0"], "cores: a positive number is needed"),
    ],
)
def test_a_foreign_file_or_a_machine_without_cores_is_refused_in_one_line(
    tmp_path: Path, text: str, options: list[str], says: str
) -> None:
    (tmp_path / "times.json").write_text(text)
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "times.json", *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
