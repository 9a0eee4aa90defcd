"""Cards of a node: which of them a load names, and what is refused. No GPU is needed."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf import json_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from revelator.errors import ConfigError
from serving.commands.deploy import deploy
from serving.home.config import ServingConfig
from serving.models.releases import REVELATOR
from serving.models.triton import GENERATOR
from serving.retrieval.dense import VECTORS, Vectors
from serving.triton import repository


def read_group(model: str, settings: ServingConfig) -> ModelInstanceGroup:
    """What a load of a model says of its instances."""
    config = json_format.Parse(repository.make_config(model, ["3"], settings), ModelConfig())
    assert list(config.version_policy.specific.versions) == [3]
    [group] = config.instance_group
    return group


def test_the_revelator_has_instances_on_each_card_and_the_reader_one_on_the_cpu() -> None:
    placed, on_cpu = ServingConfig(gpus=(0, 1), instances=2), ServingConfig(instances=3)
    group = read_group(REVELATOR, placed)
    assert (group.kind, group.count, list(group.gpus)) == (ModelInstanceGroup.KIND_GPU, 2, [0, 1])
    group = read_group(REVELATOR, on_cpu)
    assert (group.kind, group.count, list(group.gpus)) == (ModelInstanceGroup.KIND_CPU, 3, [])
    group = read_group(GENERATOR, placed)
    assert (group.kind, group.count) == (ModelInstanceGroup.KIND_CPU, 1)


@pytest.mark.parametrize(
    ("asked", "says"), [("64", "there is no GPU 64"), ("0,0", "names no cards"), ("x", "no cards")]
)
def test_a_card_that_is_not_there_is_refused_before_anything_is_fetched(asked: str, says: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(deploy, ["--gpus", asked, "--home", str(tmp_path)])
    assert done.exit_code != 0 and says in done.output + str(done.exception)
    assert isinstance(done.exception, ConfigError | SystemExit) and not list(tmp_path.iterdir())


def test_without_a_faiss_for_gpus_the_cpu_searches_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.save(tmp_path / VECTORS, np.eye(4, dtype=np.float32))
    with caplog.at_level(logging.WARNING):
        vectors = Vectors(tmp_path, "cuda:1")
    assert "searched on the CPU" in caplog.text and "the extra `gpu`" in caplog.text
    assert vectors.search(np.eye(4, dtype=np.float32)[2:3], 1)[1].tolist() == [[2]]
