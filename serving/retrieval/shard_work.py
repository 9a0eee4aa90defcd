"""What an engine (`revelator.cluster`) does for the build of an index: vectors and shards of blocks of passages."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from revelator.errors import ArtifactError
from revelator.trace import Passage
from serving.retrieval.corpora import ReadPassage
from serving.retrieval.embedders import Embedder, open_embedder
from serving.retrieval.index_folder import IndexSettings, make_shard

KnownPassage = tuple[ReadPassage, np.ndarray | None]  # with its vector, where an older index has it


class PassageEmbedder:
    """Makes vectors of passages. It travels without its model, which another process opens when it is first used."""

    def __init__(self, settings: IndexSettings, digest: str, encoder: Embedder | None = None) -> None:
        self._settings, self._digest = settings, digest
        if encoder:
            self._encoder = encoder

    def __reduce__(self) -> tuple[Any, ...]:
        return PassageEmbedder, (self._settings, self._digest)

    @cached_property
    def _encoder(self) -> Embedder:
        encoder = open_embedder(self._settings)
        if encoder.digest != self._digest:
            reason = f"{encoder.name!r} is another model here than where the build was started"
            raise ArtifactError(reason, where=platform.node(), hint="all nodes need the same files of the model")
        return encoder

    def __call__(self, passages: Sequence[tuple[Passage, np.ndarray | None]]) -> np.ndarray:
        """A vector for each passage: the one that it has, or a new one."""
        new = [f"{passage.title}\n{passage.text}".strip() for passage, vector in passages if vector is None]
        made = iter(self._encoder.encode_documents(new) if new else ())
        return np.stack([next(made) if vector is None else vector for _, vector in passages])


class Block(NamedTuple):
    """Passages that follow each other, of which a shard is made."""

    number: int
    passages: list[KnownPassage]


def make_block_shard(settings: IndexSettings, embed: PassageEmbedder | None, block: Block) -> tuple[int, bytes]:
    """The number of a block, and the bytes of its shard."""
    known = [(one.passage, vector) for one, vector in block.passages]
    fields = [one.fields for one, _ in block.passages]
    vectors = embed(known) if embed else None
    return block.number, make_shard([passage for passage, _ in known], fields, settings, vectors)
