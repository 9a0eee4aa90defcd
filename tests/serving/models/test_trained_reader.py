"""A trained reader on ONNX Runtime: the network that was trained, and folders that are not what they should be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from revelator.errors import ArtifactError
from revelator.fingerprints import Fingerprints
from revelator.folders import MANIFEST
from revelator.minilm import fetch_minilm
from revelator.reading import READER, READER_WEIGHTS, Calibration, Reader
from serving.models.reader import load_reader
from training.config import ReaderConfig
from training.reader import ReaderModel, load_model, make_forward, save_reader

PASSAGE = "Port Velm was founded by Ama Oyelaran; later Rosa Quispe ruled it. "


@pytest.fixture(scope="module")
def model() -> ReaderModel:
    """MiniLM, and scores that are large enough to tell tokens apart."""
    torch.manual_seed(0)
    made = load_model(fetch_minilm()).eval()
    for head in (made.tokens, made.kinds):
        torch.nn.init.normal_(head.weight, std=0.5)
    return made


@pytest.fixture
def folder(model: ReaderModel, tmp_path: Path) -> Path:
    config = ReaderConfig(stage="reader", steps=1, out=tmp_path / "reader")
    save_reader(config, model, Calibration(), {}, Fingerprints(), "")
    assert config.out
    return config.out


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three windows of 60 tokens, the second with 25 of padding."""
    random = np.random.default_rng(0)
    ids, mask, types = random.integers(1000, 20_000, (3, 60)), np.ones((3, 60), int), np.ones((3, 60), int)
    ids[1, 35:] = mask[1, 35:] = 0
    types[:, :12] = 0
    return ids, mask, types


def test_onnx_runtime_gives_the_scores_of_the_network_that_was_trained(model: ReaderModel, folder: Path) -> None:
    rounded = load_model(fetch_minilm())
    rounded.load_state_dict(model.state_dict() | {n: v.float() for n, v in load_file(folder / READER_WEIGHTS).items()})
    theirs = make_forward(rounded)(*inputs())
    ours = load_reader(folder).forward(*inputs())
    seen = inputs()[1] == 1
    np.testing.assert_allclose(ours[0][seen], theirs[0][seen], atol=1e-4)
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-4)


def test_a_window_has_the_same_scores_alone_and_in_a_batch(folder: Path) -> None:
    forward = load_reader(folder).forward
    ids, mask, types = inputs()
    together, alone = forward(ids, mask, types), forward(ids[1:2, :35], mask[1:2, :35], types[1:2, :35])
    np.testing.assert_allclose(together[0][1, :35], alone[0][0], atol=1e-4)
    np.testing.assert_allclose(together[1][1], alone[1][0], atol=1e-4)


def test_answers_stand_in_their_passages_for_any_script(folder: Path) -> None:
    reader: Reader = load_reader(folder)
    passages = [("Velm", PASSAGE * 20), ("", "東京は日本の首都です。"), ("", "القاهرة هي عاصمة مصر"), ("", "")]
    for question in ("Who founded Port Velm?", "首都はどこですか", ""):
        outcome = reader.read(question, passages)
        assert outcome.spans
        assert all(passages[span.passage][1][span.start : span.end] == span.text for span in outcome.spans)
        assert 0 < outcome.probability < 1
    assert reader.read("Who?", [("", "")]).answers == ()


def change_manifest(**values: Any) -> Callable[[Path], object]:
    return lambda folder: READER.write_manifest(folder, json.loads((folder / MANIFEST).read_text()) | values)


def change_weights(name: str, value: torch.Tensor) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        save_file(load_file(folder / READER_WEIGHTS) | {name: value}, folder / READER_WEIGHTS)
        change_manifest()(folder)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: (folder / MANIFEST).unlink(), "this is not a reader"),
        (lambda folder: (folder / "README.md").write_text("other"), r"README\.md: has changed"),
        (change_manifest(minilm="0" * 64), "of another MiniLM"),
        (change_manifest(calibration={"slope": 1.0}), "not whole: .*slope"),
        (change_manifest(calibration={"weight": math.nan, "bias": 0.0}), "numbers that are none"),
        (change_weights("kinds.weight", torch.zeros(2, 7)), r"do not fit MiniLM: kinds\.weight is .*2, 7"),
    ],
)
def test_a_folder_that_is_no_reader_is_refused(folder: Path, change: Callable[[Path], object], reason: str) -> None:
    change(folder)
    with pytest.raises(ArtifactError, match=reason):
        load_reader(folder)


def test_damaged_weights_are_an_error_and_no_answer(folder: Path) -> None:
    change_weights("kinds.bias", torch.full((5,), math.nan))(folder)
    with pytest.raises(ArtifactError, match="no numbers"):
        load_reader(folder).read("Who?", [("", PASSAGE)])
