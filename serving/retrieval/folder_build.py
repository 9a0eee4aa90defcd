"""The parts of a build → an index folder: in shards, merged; resumable, and for corpora larger than memory.

Held in memory are a shard, the vocabulary, and 8 bytes a passage.

1. Shards are written one by one; those that a killed build left are not made again. An engine (`revelator.cluster`)
   makes them; this process cuts the blocks of passages and writes the shards.
2. They are merged through memory maps into a staged folder, the manifest is written last, and the folder takes its
   place in one step: who has the old index open keeps it, and a service takes up the new one
   (`serving.retrieval.retriever`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rich.progress import Progress

from revelator.artifact import explain_full_disk
from revelator.errors import ArtifactError
from revelator.files import lock_work_folder, stage_folder, write_bytes
from serving.retrieval import bm25, columns, dense
from serving.retrieval.build import Build
from serving.retrieval.corpora import ReadPassage
from serving.retrieval.embedders import Embedder, is_made_by
from serving.retrieval.fields import derive_fields
from serving.retrieval.index import Index
from serving.retrieval.index_folder import INDEX, IndexSettings, Shard, write_passages
from serving.retrieval.logical_recall import measure_logical_recall
from serving.retrieval.neighbours import check_factory
from serving.retrieval.parts import Part, open_passages
from serving.retrieval.shard_work import Block, KnownPassage, make_block_shard

SHARD = 20_000  # passages
DENSE_SHARD = 512  # about half a minute of a small model on one core: what a kill may cost


class FolderBuild(Build):
    """A build into a folder."""

    format = INDEX.format

    def __init__(
        self, folder: Path, settings: IndexSettings, progress: Progress | None, shard_size: int | None = None
    ) -> None:
        super().__init__(folder, settings, progress)
        if self.encoder and settings.faiss:
            check_factory(settings.faiss, self.encoder.dimensions)
        self.shard_size = shard_size or (DENSE_SHARD if self.encoder else SHARD)

    def _open_old(self) -> dict[str, Part]:
        try:
            old = Index.open(self.folder)
            INDEX.read_manifest(self.folder, verify=True)  # a damaged passage would be in the new index as a whole one
        except (ArtifactError, OSError):
            return {}
        if old.settings != self.settings or (self.encoder and not is_made_by(old.manifest, self.encoder)):
            return {}
        self.unread = old.manifest["unread"]
        self.knows_fields = "fields" in old.manifest
        parts, first = {}, 0
        for corpus in old.manifest["corpora"]:
            places = range(first, first := first + corpus["passages"])
            read = partial(_read_old, old, places, str(self.folder), corpus["name"])
            vectors = old.vectors.matrix[places.start : places.stop] if old.vectors else None
            parts[corpus["name"]] = Part(
                corpus["name"], corpus["path"], corpus["sha256"], read, vectors, corpus.get("note", "")
            )
        return parts

    def _check_place(self) -> dict[str, Any]:
        return INDEX.check_place(self.folder)

    def _store(
        self, plan: Mapping[str, Any], parts: Sequence[Part], counts: Mapping[str, int], version: int
    ) -> dict[str, Any]:
        resumed = {**plan, "shard": self.shard_size, "spellings": True, "fields": True}
        building = lock_work_folder(self.folder, resumed, "*.npz", "building this index")
        with explain_full_disk(self.folder), building as work:
            shards = self._write_shards(work, parts, counts)
            with stage_folder(self.folder) as stage:
                manifest = {**plan, **self._merge(stage, shards), "version": version}
                if self.encoder:
                    manifest["faiss"]["logical_recall"] = self._measure_logical_recall(stage, manifest, self.encoder)
                return INDEX.write_manifest(stage, manifest)

    def _write_shards(self, work: Path, parts: Sequence[Part], counts: Mapping[str, int]) -> list[Shard]:
        """All shards in order; those that are there already, and whole, are kept. `counts` are passages by part."""
        count = sum(counts.values())
        shards = [Shard(work / f"{number:06}.npz") for number in range(-(-count // self.shard_size))]
        passages = self._list_passages(parts, counts)

        def cut() -> Iterator[Block]:
            for number, shard in enumerate(shards):
                here = list(islice(passages, self.shard_size))
                if not shard.is_whole():
                    yield Block(number, here)

        task = self.progress.add_task("embedding" if self.encoder else "counting terms", total=count)
        make = partial(make_block_shard, self.settings, self.open_passage_embedder())
        for number, made in self.engine(make, cut()):
            write_bytes(shards[number].path, made)
            self.progress.update(task, completed=min(count, (number + 1) * self.shard_size))
        self.progress.update(task, completed=count)
        return shards

    def _list_passages(self, parts: Sequence[Part], counts: Mapping[str, int]) -> Iterator[KnownPassage]:
        for part, passages in open_passages(parts, counts, self.engine):
            for place, one in enumerate(passages):
                yield one, None if part.vectors is None else part.vectors[place]

    def _merge(self, stage: Path, shards: list[Shard]) -> dict[str, Any]:
        """The files of the index; returns what the manifest says of them."""
        task = self.progress.add_task("merging", total=None)
        write_passages(stage, ((shard.read("lines").tobytes(), shard.read("sizes")) for shard in shards))
        more: dict[str, Any] = {"fields": columns.write(stage, shards)}
        if self.settings.sparse:
            more["terms"] = bm25.write(stage, shards)
        if self.encoder:
            indexing = self.progress.add_task("indexing vectors", total=None)
            more["faiss"] = dense.write(
                stage,
                shards,
                self.encoder.dimensions,
                self.settings.faiss,
                lambda done, count: self.progress.update(indexing, completed=done, total=count),
            )
            self.progress.update(indexing, total=1, completed=1)
            more |= self.describe_probe()
        self.progress.update(task, total=1, completed=1)
        return more

    def _measure_logical_recall(self, stage: Path, manifest: dict[str, Any], encoder: Embedder) -> float:
        """The recall of logical queries in the index that is staged, which `manifest` describes."""
        task = self.progress.add_task("asking logical queries", total=None)
        index = Index(stage, manifest, None)
        index.encoder = encoder
        recall = measure_logical_recall(index)
        self.progress.update(task, total=1, completed=1)
        return round(recall, 4)


def _read_old(index: Index, places: range, where: str, name: str) -> Iterator[ReadPassage]:
    for place in places:
        passage = index.passages[place]
        yield ReadPassage(where, passage, {**derive_fields(name, passage), **index.columns.read(place)})
