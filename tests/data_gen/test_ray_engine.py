"""A cluster of several processes on this machine: a head without a CPU, and two nodes with an object store each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.engines import choose_engine
from data_gen.prepare import CHUNK
from data_gen.world.generate import generate
from revelator.errors import DataError

ray = pytest.importorskip("ray", reason="needs the extra `ray`")
from ray.cluster_utils import Cluster  # noqa: E402

ROOT = Path(__file__).parents[2]
STORE = 80_000_000  # bytes of a node's object store; Ray's least is 75 MiB
HEARTBEATS = {"health_check_initial_delay_ms": 1_000, "health_check_period_ms": 500}  # a lost node is noticed sooner


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "_system_config": HEARTBEATS}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            made.add_node(num_cpus=1, object_store_memory=STORE)
        ray.init(address=made.address, log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@pytest.mark.timeout(900)  # three nodes start a dozen processes, which takes long where the cores are shared
def test_a_cluster_that_loses_a_node_builds_the_set_of_the_local_engine(cluster: Cluster, tmp_path: Path) -> None:
    generate(3 * CHUNK, 1, tmp_path / "world")
    source = {"format": "world", "path": str(tmp_path / "world")}
    config = SetConfig.model_validate({"name": "t", "sources": [source] * 3})
    alone = build(config, tmp_path / "alone")
    arrived: list[int] = []

    def lose_a_node(source: str, rows: int) -> None:
        arrived.append(rows)
        if len(arrived) == 1:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            while all(node["Alive"] for node in ray.nodes()):  # the head notices by the heartbeats that are missing
                time.sleep(0.1)

    (tmp_path / "t.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    command = [sys.executable, "-m", "revelator", "data", "build", str(tmp_path / "t.yaml"), "--engine", "ray"]
    named = {**os.environ, "RAY_ADDRESS": cluster.address, "PYTHONPATH": str(ROOT)}
    by_command = subprocess.run(
        [*command, "--json", "--out", str(tmp_path / "named")], env=named, stdout=subprocess.PIPE, check=True
    )
    assert json.loads(by_command.stdout)["digest"] == alone["digest"]
    together = build(config, tmp_path / "together", lose_a_node, engine=choose_engine("ray"))
    assert [node["Alive"] for node in ray.nodes()].count(False) == 1
    assert {**together, "created": ""} == {**alone, "created": ""}
    assert sorted(arrived) == sorted(3 * [*range(CHUNK, 3 * CHUNK + 1, CHUNK)])

    absent = config.sources[0].model_copy(update={"path": str(tmp_path / "absent.jsonl")})
    broken = config.model_copy(update={"sources": (config.sources[0], absent)})
    with pytest.raises(DataError, match="no such file"):
        build(broken, tmp_path / "together", engine=choose_engine("ray"))
