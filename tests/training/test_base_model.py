"""What a base must be before a training begins, on real folders that are wrong in one way each."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from revelator.errors import ArtifactError
from training.base_model import load_base
from training.config import FineTuneConfig
from training.sft import read_inputs


def _set(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def _without_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_without_tokenizer, "the base's tokenizer cannot be loaded"),
        (lambda folder: _set(folder, architectures=["BertForMaskedLM"]), "BertForMaskedLM is no causal language model"),
        (lambda folder: _set(folder, vocab_size=300), r"gives token \d+, but its embeddings end at 299"),
        (lambda folder: _set(folder, max_position_embeddings=20), "reads 20 tokens at most, but rows have up to"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be loaded|cannot be read"),
    ],
)
def test_a_base_that_cannot_be_trained_is_refused_before_the_first_step(
    spoil: Callable[[Path], object], says: str, base: Path, set_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(base, tmp_path / "spoilt")
    spoil(folder)
    config = FineTuneConfig(base=str(folder), sets=(set_folder,), out=tmp_path / "out", steps=1, learning_rate=1e-3)
    with pytest.raises(ArtifactError, match=says) as caught:
        read_inputs(config)
    assert str(folder) in str(caught.value) and "--base" in str(caught.value)


@pytest.mark.parametrize("weights", [b"torn", b"", None])
def test_weights_that_are_torn_empty_or_misshapen_are_one_error(weights: bytes | None, base: Path, tmp_path: Path):
    folder = shutil.copytree(base, tmp_path / "spoilt")
    if weights is not None:
        (folder / "model.safetensors").write_bytes(weights)
    else:
        _set(folder, hidden_size=32)
    with pytest.raises(ArtifactError, match="the base cannot be loaded"):
        load_base(FineTuneConfig(steps=1, learning_rate=1e-3), folder, torch.float32)
