"""Cards of a node: what config.pbtxt says, which device an instance takes, and what is refused. No GPU is needed."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig, ModelInstanceGroup

from revelator.errors import ConfigError
from serving.commands.deploy import deploy
from serving.home.config import read_serving, write_serving
from serving.home.configure import configure
from serving.retrieval.dense import VECTORS, Vectors
from serving.triton import repository


def read_group(home: Path, name: str) -> ModelInstanceGroup:
    text = (home / "model_repo" / name / "config.pbtxt").read_text()
    [group] = text_format.Parse(text, ModelConfig()).instance_group
    return group


def test_models_that_use_cards_have_instances_on_each_and_keep_them(index: Path, tmp_path: Path) -> None:
    place(tmp_path, (0, 1), 2)
    for _ in range(2):  # as the next start of a server does
        repository.lay_out(tmp_path, configure(tmp_path, index=index))
        repository.write_config(tmp_path, "revelator", [3])
        for name in repository.PLACED:
            group = read_group(tmp_path, name)
            assert (group.kind, group.count, list(group.gpus)) == (ModelInstanceGroup.KIND_GPU, 2, [0, 1])
        for name in (*repository.EXECUTORS, "generator"):
            assert read_group(tmp_path, name).kind == ModelInstanceGroup.KIND_CPU
    place(tmp_path, (), 3)
    repository.lay_out(tmp_path, configure(tmp_path, index=index))
    group = read_group(tmp_path, "retriever")
    assert (group.kind, group.count, list(group.gpus)) == (ModelInstanceGroup.KIND_CPU, 3, [])


def place(home: Path, gpus: tuple[int, ...], instances: int) -> None:
    write_serving(home, read_serving(home).model_copy(update={"gpus": gpus, "instances": instances}))


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
    assert "searched on the CPU, not on GPU 1" in caplog.text
    assert vectors.search(np.eye(4, dtype=np.float32)[2:3], 1)[1].tolist() == [[2]]
