"""What a base must be before a training begins, on real folders that are wrong in one way each."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig

from revelator.artifact import digest_base, split_revision
from revelator.errors import ArtifactError
from tests import hub_server
from tests.training.toy import write_base
from training.base_model import load_base
from training.config import FineTuneConfig
from training.export import use_lasting_names
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


REVISIONS = ("a" * 40, "b" * 40)
FETCH = "import sys; from revelator.artifact import find_base; print(find_base(sys.argv[1]))"


def fetch(name: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """In a process of its own: huggingface_hub reads the environment when it is imported."""
    command = [sys.executable, "-c", FETCH, name]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_base_of_the_hub_is_fetched_at_the_revision_that_its_name_says(tmp_path: Path) -> None:
    """A hub on loopback that has two revisions of one base, and no third."""
    for seed, revision in enumerate(REVISIONS):
        write_base(tmp_path / "hub" / "owner" / f"tiny@{revision}", seed=seed)
    digests = {revision: digest_base(tmp_path / "hub" / "owner" / f"tiny@{revision}") for revision in REVISIONS}
    with hub_server.running(tmp_path / "hub") as hub:
        environment = hub.environment(tmp_path / "home")
        for revision, digest in digests.items():
            done = fetch(f"owner/tiny@{revision}", environment)
            assert digest_base(Path(done.stdout.strip())) == digest, done.stderr
        done = fetch(f"owner/tiny@{'c' * 40}", environment)
        assert "neither a folder nor a base that can be had from the hub" in done.stderr
    assert len(set(digests.values())) == 2


@pytest.mark.parametrize("name", ["mini", "owner/tiny", "owner/tiny@", "runs/bases/x@2", "../me@host/b", "/abs/b@2"])
def test_a_name_that_pins_nothing_is_whole(name: str) -> None:
    assert split_revision(name) == (name, None)


def test_a_folder_with_an_at_sign_in_its_name_is_no_pinned_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_revision("bases/x@2") == ("bases/x", "2")
    (tmp_path / "bases" / "x@2").mkdir(parents=True)
    assert split_revision("bases/x@2") == ("bases/x@2", None)


def test_peft_has_the_id_of_a_pinned_base_and_its_revision(tmp_path: Path) -> None:
    peft = LoraConfig(target_modules=["b", "a"])
    use_lasting_names(peft, f"owner/tiny@{REVISIONS[0]}")
    assert (peft.base_model_name_or_path, peft.revision) == ("owner/tiny", REVISIONS[0])
    use_lasting_names(peft, str(tmp_path))
    assert (peft.base_model_name_or_path, peft.revision) == (str(tmp_path.resolve()), None)
