"""Corpora → an index folder: surveyed, sharded, merged; resumable, and for corpora larger than memory.

Held in memory are a shard, the vocabulary, 8 bytes a passage, and what FAISS trains on (`dense.TRAINING` vectors at
most). `hnsw` is the exception: its graph is made in memory, with all vectors; of `pq` the codes are held.

1. The corpora are read once for faults, ids that are used twice, digests and the number of passages: a broken last
   line is found before the first vector is made.
2. Shards are written one by one (`shards.py`); those that a killed build left are not made again.
3. The shards are merged through memory maps into a staged folder, the manifest is written last, and the folder takes
   its place by one rename: who has the old index open keeps it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress, TaskID

from revelator.errors import DataError
from revelator.files import sha256_file, staged_folder, work_folder
from revelator.trace import Passage
from serving.retrieval import bm25, dense
from serving.retrieval.corpora import measure_corpus, read_corpus
from serving.retrieval.encoder import Encoder
from serving.retrieval.index_folder import INDEX, IndexSettings, Shard, write_passages, write_shard
from serving.retrieval.words import detokenize, hash_word

SHARD = 20_000  # passages
DENSE_SHARD = 512  # about half a minute of a small model on one core: what a kill may cost
_DEFAULTS = IndexSettings()


def build_index(
    corpora: Sequence[Path],
    out: Path,
    settings: IndexSettings = _DEFAULTS,
    *,
    progress: Progress | None = None,
    shard_size: int | None = None,
) -> dict[str, Any]:
    """Indexes the passages of `corpora` into the folder `out`, whole or not at all, and returns its manifest.

    The same corpora and settings give the same bytes; a build that was killed goes on from its last whole shard. Raises
    DataError for a broken line, an id that is used twice, or no passage at all; ArtifactError when `out` exists and is
    not an index, and when the model cannot be read; ConfigError while another process builds there.
    """
    replaced = INDEX.check_place(out)
    version = 1 + (int(replaced.get("version", 1)) if replaced else 0)
    progress = progress or Progress(disable=True)
    count = _survey(corpora, progress)
    encoder = Encoder.open(settings.model, settings.max_tokens) if settings.dense else None
    described = [{"name": path.name, "sha256": sha256_file(path)} for path in corpora]
    plan: dict[str, Any] = {"format": INDEX.format, "count": count, "corpora": described, "settings": asdict(settings)}
    if encoder:
        plan["model"] = {"name": encoder.name, "digest": encoder.digest, "dimensions": encoder.dimensions}
    size = shard_size or (DENSE_SHARD if encoder else SHARD)
    with work_folder(out, plan | {"shard": size}, "*.npz", "building this index") as work:
        shards = _write_shards(work, corpora, count, size, settings, encoder, progress)
        with staged_folder(out) as stage:
            more = _merge(stage, shards, settings, encoder, progress)
            return INDEX.write_manifest(stage, plan | more | {"version": version})


def _survey(corpora: Sequence[Path], progress: Progress) -> int:
    """Reads every line once; returns the number of passages. 8 bytes a passage are held to find an id used twice."""
    seen = array("Q")
    for path in corpora:
        if not path.is_file():
            raise DataError("no such corpus", where=str(path))
        task = progress.add_task(f"reading {path.name}", total=measure_corpus(path))
        seen.extend(
            hash_word(passage.id) for _, passage in read_corpus(path, progress=partial(_advance, progress, task))
        )
    if not seen:
        raise DataError("no passage in the corpus", where=", ".join(map(str, corpora)))
    ids = np.frombuffer(seen, np.uint64)
    distinct, times = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        _refuse_duplicate_ids(corpora, frozenset(distinct[times > 1].tolist()))
    return len(ids)


def _refuse_duplicate_ids(corpora: Sequence[Path], suspects: frozenset[int]) -> None:
    """Names both places of an id that is used twice. Ids of one hash that differ pass."""
    places: dict[str, str] = {}
    for path in corpora:
        for line, passage in read_corpus(path):
            if hash_word(passage.id) in suspects:
                where = f"{path}:{line}"
                if passage.id in places:
                    raise DataError(f"id {passage.id!r} was used already at {places[passage.id]}", where=where)
                places[passage.id] = where


def _advance(progress: Progress, task: TaskID, done: int) -> None:
    progress.update(task, completed=done)


def _write_shards(
    work: Path,
    corpora: Sequence[Path],
    count: int,
    size: int,
    settings: IndexSettings,
    encoder: Encoder | None,
    progress: Progress,
) -> list[Shard]:
    """All shards in order; those that are there already, and whole, are kept."""
    passages = _read_passages(corpora, settings)
    task = progress.add_task("embedding" if encoder else "counting terms", total=count)
    shards = []
    for number in range(-(-count // size)):
        here = list(islice(passages, size))
        shard = Shard(work / f"{number:06}.npz")
        if not shard.is_whole():
            vectors = encoder.encode_documents([f"{p.title}\n{p.text}".strip() for p in here]) if encoder else None
            write_shard(shard.path, here, settings, vectors)
        shards.append(shard)
        progress.update(task, completed=min(count, (number + 1) * size))
    return shards


def _read_passages(corpora: Sequence[Path], settings: IndexSettings) -> Iterator[Passage]:
    for path in corpora:
        for _, passage in read_corpus(path):
            if settings.detokenize:
                passage = replace(passage, title=detokenize(passage.title), text=detokenize(passage.text))
            yield passage


def _merge(
    stage: Path, shards: list[Shard], settings: IndexSettings, encoder: Encoder | None, progress: Progress
) -> dict[str, Any]:
    """The files of the index; returns what the manifest says of them."""
    task = progress.add_task("merging", total=None)
    write_passages(stage, ((shard.read("lines").tobytes(), shard.read("sizes")) for shard in shards))
    more: dict[str, Any] = {}
    if settings.sparse:
        more["terms"] = bm25.write(stage, shards, settings)
    if encoder:
        more["faiss"] = dense.write(stage, shards, settings, encoder.dimensions, progress)
    progress.update(task, total=1, completed=1)
    return more
