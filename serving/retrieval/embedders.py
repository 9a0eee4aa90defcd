"""What makes vectors of texts: a model in this process, or one behind an OpenAI-compatible endpoint.

An endpoint is asked for `model` at the address `embeddings`; the key is read from OPENAI_API_KEY. Redirects are not
followed and proxies of the environment are not used, as for the generator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from revelator.endpoints import check_url
from revelator.errors import ServingError, Unavailable
from revelator.files import sha256_text
from revelator.language_model import explain_failure, read_key
from serving.retrieval.encoder import Encoder
from serving.retrieval.index_folder import IndexSettings

BATCH = 64  # texts in one request
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
    return Encoder.open(settings.model, settings.max_tokens, settings.query_prefix, settings.document_prefix)


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
        made = [self._ask(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
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
