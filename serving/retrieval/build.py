"""Files → an index folder: surveyed, sharded, merged; resumable, and for corpora larger than memory.

Held in memory are a shard, the vocabulary, and 8 bytes a passage.

1. The files are read once for faults, ids that are used twice, digests and the number of passages: a broken last line
   is found before the first vector is made. A document that cannot be read is left out, and the manifest says why.
2. Shards are written one by one; those that a killed build left are not made again.
3. The shards are merged through memory maps into a staged folder, the manifest is written last, and the folder takes
   its place in one step: who has the old index open keeps it, and a service takes up the new one
   (`serving.retrieval.retriever`).

Where an index stands already, the passages and vectors of files that have not changed since come from there.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from os.path import lexists
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from revelator.errors import ArtifactError, DataError
from revelator.files import lock_work_folder, stage_folder
from revelator.trace import Passage
from serving.retrieval import bm25, columns, dense
from serving.retrieval.corpora import ROWS, ReadPassage, find_files, is_document, read_corpus
from serving.retrieval.documents import DOCUMENTS, PartlyRead
from serving.retrieval.embedders import Embedder, is_made_by, open_embedder
from serving.retrieval.fields import derive_fields, digest_source
from serving.retrieval.index import Index
from serving.retrieval.index_folder import INDEX, IndexSettings, Shard, read_settings, write_passages, write_shard
from serving.retrieval.milvus_collection import MilvusAddress
from serving.retrieval.neighbours import check_factory
from serving.retrieval.places import IndexAddress, read_index_manifest
from serving.retrieval.words import hash_word

SHARD = 20_000  # passages
DENSE_SHARD = 512  # about half a minute of a small model on one core: what a kill may cost
_DEFAULTS = IndexSettings()


@dataclass(frozen=True)
class Part:
    """The passages of one file: where they are read from, and their vectors where an older index has them.

    `path` is absolute. `read` gives its passages; `ids` only their ids, where that is less work; `vectors` has one row
    a passage. `note` says what of the file could not be read, if it was read before. A broken file ends the build if
    it `must_be_whole`, and is left out otherwise."""

    name: str
    path: str
    sha256: str
    read: Callable[[], Iterator[ReadPassage]]
    vectors: np.ndarray | None = None
    note: str = ""
    must_be_whole: bool = False
    ids: Callable[[], Iterator[str]] | None = None


def build_index(
    paths: Sequence[Path],
    out: IndexAddress,
    settings: IndexSettings = _DEFAULTS,
    *,
    progress: Progress | None = None,
    shard_size: int | None = None,
) -> dict[str, Any]:
    """Indexes files and folders into the folder `out`, whole or not at all, or into a collection, and returns its
    manifest.

    The same files and settings give the same index; a build that was killed goes on from its last whole shard. What has
    not changed since the index that stands at `out` was built with these settings is taken from there. Raises DataError
    for a broken row, an id that is used twice, or no passage at all; ArtifactError when `out` exists and is not an
    index, and when the model cannot be read; ConfigError while another process builds there.
    """
    build = _start_build(out, settings, progress, shard_size)
    build.old = build.old if build.knows_fields else {}
    files, left = find_files(paths, build.folder)
    digests = _take_digests(files, paths, left)
    if not digests:
        hint = f"read are {', '.join((*DOCUMENTS, *ROWS))}"
        raise DataError("nothing there can be read", where=", ".join(map(str, paths)), hint=hint)
    return build.write(build.open_parts(files, digests, paths), left)


def add_to_index(
    paths: Sequence[Path], out: IndexAddress, *, sync: bool = False, progress: Progress | None = None
) -> dict[str, Any]:
    """Adds files and folders to an index, or reads those anew that have changed, as `build_index` would. What the index
    holds already under another name is left out. With `sync`, files that are gone from the folders are removed. Returns
    the manifest, which has the version that it had if nothing has changed."""
    build = _open_build(out, progress)
    files, left = find_files(paths, build.folder)
    digests = _take_digests(files, paths, left)
    folders = [path.absolute() for path in paths]
    if sync:
        for name, part in list(build.old.items()):
            if is_gone(part.path) and any(map(Path(part.path).is_relative_to, folders)):
                del build.old[name]
    known = {part.sha256: name for name, part in build.old.items()}
    for name, digest in list(digests.items()):
        other = known.get(digest, name)
        if other not in files:
            left[name] = f"it is in the index as {other}"
            del digests[name]
    return build.write(build.old | build.open_parts(files, digests, paths), left, folders)


def _take_digests(files: Mapping[str, Path], given: Sequence[Path], left: dict[str, str]) -> dict[str, str]:
    """The digest of each file; what cannot be read any more goes into `left`. Raises DataError for one of `given`."""
    digests = {}
    for name, path in files.items():
        try:
            digests[name] = digest_source(path)
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
            if path in given:
                raise DataError(reason, where=str(path)) from error
            left[name] = reason
    return digests


def remove_from_index(names: Sequence[str], out: IndexAddress, *, progress: Progress | None = None) -> dict[str, Any]:
    """Removes files, by their names in the index, or all below a folder's name."""
    build = _open_build(out, progress)
    kept = dict(build.old)
    for name in names:
        gone = [each for each in build.old if each == name or each.startswith(f"{name.rstrip('/')}/")]
        if not gone:
            hint = f"`revelator index info {out}` lists its files"
            if meant := [each for each in build.old if name.endswith(f"/{each}")]:
                hint = f"files are named from the folder that was indexed: {max(meant, key=len)}"
            raise DataError(f"{name} is not in the index", where=str(out), hint=hint)
        for each in gone:
            kept.pop(each, None)
    return build.write(kept, {}, [])


def is_gone(path: str) -> bool:
    """Whether there is no file at a path that an index was built from."""
    return not Path(path).is_file()


def has_changed(path: str, sha256: str) -> bool:
    """Whether a file is there and is another one than that of the digest, or what is known of it is."""
    return not is_gone(path) and digest_source(Path(path)) != sha256


def _open_build(out: IndexAddress, progress: Progress | None) -> Build:
    """A build over the index at `out`, as it was built before."""
    verify = isinstance(out, Path)  # a change of a collection that was cut short goes on
    build = _start_build(out, read_settings(read_index_manifest(out, verify=verify)), progress)
    if not build.old:
        hint = "build the index anew"
        raise ArtifactError("it cannot be changed: another model or version built it", where=str(out), hint=hint)
    return build


def _start_build(
    out: IndexAddress, settings: IndexSettings, progress: Progress | None, shard_size: int | None = None
) -> Build:
    if isinstance(out, Path):
        return FolderBuild(out, settings, progress, shard_size)
    from serving.retrieval.milvus_build import MilvusBuild

    return MilvusBuild(MilvusAddress.read(out), settings, progress)


class Build(ABC):
    """A change of the index at `folder`, or at an address whose engine has its files there. `old` are the parts by name
    of the index that stands there, none where it was built otherwise, or cannot be read. It `knows_fields` unless an
    earlier version built it: then a file that is named is read anew."""

    format: str

    def __init__(self, folder: Path, settings: IndexSettings, progress: Progress | None) -> None:
        self.folder = folder
        self.settings = settings
        self.progress = progress or Progress(disable=True)
        self.encoder = open_embedder(settings) if settings.dense else None
        self.unread: dict[str, str] = {}  # why the build of the index that stands there left files out, by name
        self.knows_fields = True
        self.old = self._open_old()

    @abstractmethod
    def _open_old(self) -> dict[str, Part]: ...

    @abstractmethod
    def _check_place(self) -> dict[str, Any]:
        """The manifest of what is replaced, {} where nothing stands. Raises ConfigError where something else does."""

    @abstractmethod
    def _store(
        self, plan: Mapping[str, Any], parts: Sequence[Part], counts: Mapping[str, int], version: int
    ) -> dict[str, Any]:
        """Writes what is planned, and returns its manifest."""

    def describe_model(self) -> dict[str, Any]:
        """What the manifest says of the model that makes the vectors."""
        assert self.encoder
        return {"name": self.encoder.name, "digest": self.encoder.digest, "dimensions": self.encoder.dimensions}

    def describe_probe(self) -> dict[str, Any]:
        """The vector by which a model at an endpoint is known again."""
        if self.encoder is None or self.encoder.probe is None:
            return {}
        return {"probe": [round(float(number), 5) for number in self.encoder.probe]}

    def open_parts(
        self, files: Mapping[str, Path], digests: Mapping[str, str], given: Sequence[Path]
    ) -> dict[str, Part]:
        """The parts of the files that have digests, from the old index where they are as they were. Rows of a `given`
        file must be whole: who names a corpus wants all of it. Documents, and what a folder holds beside them, need not
        be."""
        parts, named = {}, set(given)
        for name, digest in digests.items():
            path = files[name]
            new = Part(name, str(path.absolute()), digest, partial(read_file, path, name, self.settings))
            known = self.old.get(name)
            if known and known.sha256 == new.sha256 and self.knows_fields:
                parts[name] = replace(known, path=new.path)
            else:
                parts[name] = replace(new, must_be_whole=path in named and not is_document(path))
        return parts

    def write(
        self, parts: Mapping[str, Part], left: dict[str, str], folders: Sequence[Path] | None = None
    ) -> dict[str, Any]:
        """Writes the index of these parts and returns its manifest; `left` says why files were left out, by name.

        With `folders`, the index that stands there is changed by what they hold: files that were left out before stay
        named, and nothing is written if all is as it was."""
        before = self._check_place()
        counts, unread, notes = _survey(list(parts.values()), self.progress)
        unread |= left
        if folders is not None:
            unread = self._name_unread(unread, {parts[name].path for name in counts}, folders)
        read = [parts[name] for name in counts]
        corpora = [
            {"name": part.name, "path": part.path, "sha256": part.sha256, "passages": counts[part.name]}
            | ({"note": notes[part.name]} if notes[part.name] else {})
            for part in read
        ]
        plan: dict[str, Any] = {"format": self.format, "count": sum(counts.values()), "corpora": corpora}
        plan |= {"settings": asdict(self.settings), "unread": dict(sorted(unread.items()))}
        if self.encoder:
            plan["model"] = self.describe_model()
        is_same = "fields" in before and all(before.get(name) == value for name, value in plan.items())
        if folders is not None and is_same:
            return before
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartlyRead)  # said already, when the files were read first
            return self._store(plan, read, counts, 1 + before.get("version", 0))

    def _name_unread(self, unread: dict[str, str], read: set[str], folders: Sequence[Path]) -> dict[str, str]:
        """`unread`, and what was left out before of what is still there; a file keeps the name that it had."""
        named = dict(unread)
        places = {str(folder / name): name for name in unread for folder in folders}
        roots = {part.path.removesuffix(f"/{part.name}") for part in self.old.values()}
        for name, reason in self.unread.items():
            paths = {path for root in roots if lexists(path := f"{root}/{name}")}
            if not paths or paths & read:
                continue
            again = next((places[path] for path in paths if path in places), name)
            named[name] = named.pop(again, reason)
        return named


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
        with lock_work_folder(self.folder, resumed, "*.npz", "building this index") as work:
            shards = self._write_shards(work, parts, counts)
            with stage_folder(self.folder) as stage:
                return INDEX.write_manifest(stage, {**plan, **self._merge(stage, shards), "version": version})

    def _write_shards(self, work: Path, parts: Sequence[Part], counts: Mapping[str, int]) -> list[Shard]:
        """All shards in order; those that are there already, and whole, are kept. `counts` are passages by part."""
        count = sum(counts.values())
        passages = _read_passages(parts, counts)
        task = self.progress.add_task("embedding" if self.encoder else "counting terms", total=count)
        shards = []
        for number in range(-(-count // self.shard_size)):
            here = list(islice(passages, self.shard_size))
            shard = Shard(work / f"{number:06}.npz")
            if not shard.is_whole():
                vectors = embed([(one.passage, vector) for one, vector in here], self.encoder) if self.encoder else None
                passages_here, fields = [one.passage for one, _ in here], [one.fields for one, _ in here]
                write_shard(shard.path, passages_here, fields, self.settings, vectors)
            shards.append(shard)
            self.progress.update(task, completed=min(count, (number + 1) * self.shard_size))
        return shards

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


def _read_old(index: Index, places: range, where: str, name: str) -> Iterator[ReadPassage]:
    for place in places:
        passage = index.passages[place]
        yield ReadPassage(where, passage, {**derive_fields(name, passage), **index.columns.read(place)})


def read_file(path: Path, name: str, settings: IndexSettings) -> Iterator[ReadPassage]:
    return read_corpus(path, name, chunk=settings.chunk, overlap=settings.overlap)


def _survey(parts: Sequence[Part], progress: Progress) -> tuple[dict[str, int], dict[str, str], dict[str, str]]:
    """Reads every passage once. Returns, by name, how many each part has, why documents were left out, and what of
    those that were read could not be.

    8 bytes a passage are held to find an id that is used twice."""
    seen = array("Q")
    counts: dict[str, int] = {}
    unread: dict[str, str] = {}
    notes: dict[str, str] = {}
    task = progress.add_task("reading", total=len(parts))
    for done, part in enumerate(parts, 1):
        before = len(seen)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", PartlyRead)
                seen.extend(map(hash_word, part.ids() if part.ids else (one.passage.id for one in part.read())))
            notes[part.name] = "; ".join(
                [part.note] * bool(part.note) + [str(each.message) for each in said if each.category is PartlyRead]
            )
            counts[part.name] = len(seen) - before
        except DataError as error:
            if part.must_be_whole:
                raise
            del seen[before:]
            unread[part.name] = error.message
        progress.update(task, completed=done)
    if not seen:
        reasons = "".join(f"; {name}: {reason}" for name, reason in list(unread.items())[:3])
        raise DataError(f"no passage in the corpus{reasons}", where=", ".join(part.name for part in parts[:3]))
    ids = np.frombuffer(seen, np.uint64)
    distinct, times = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        _refuse_duplicate_ids([part for part in parts if part.name in counts], frozenset(distinct[times > 1].tolist()))
    return counts, unread, notes


def _refuse_duplicate_ids(parts: Sequence[Part], suspects: frozenset[int]) -> None:
    """Names both places of an id that is used twice. Ids of one hash that differ pass."""
    places: dict[str, str] = {}
    for part in parts:
        for where, passage, _ in part.read():
            if hash_word(passage.id) in suspects:
                if passage.id in places:
                    message = f"id {passage.id!r} was used already at {places[passage.id]}"
                    raise DataError(message, where=where, hint="leave the ids out, or make each the only one")
                places[passage.id] = where


def _read_passages(parts: Sequence[Part], counts: Mapping[str, int]) -> Iterator[tuple[ReadPassage, np.ndarray | None]]:
    """Every passage, with its vector where it is known. Raises DataError for a file that has fewer than were
    counted."""
    for part in parts:
        count = 0
        for count, one in enumerate(islice(part.read(), counts[part.name]), 1):
            yield one, None if part.vectors is None else part.vectors[count - 1]
        if count < counts[part.name]:
            raise DataError("it changed while it was read", where=part.path, hint="build the index again")


def embed(passages: Sequence[tuple[Passage, np.ndarray | None]], encoder: Embedder) -> np.ndarray:
    """A vector for each passage: the one that it has, or a new one."""
    new = [f"{passage.title}\n{passage.text}".strip() for passage, vector in passages if vector is None]
    made = iter(encoder.encode_documents(new) if new else ())
    return np.stack([next(made) if vector is None else vector for _, vector in passages])
