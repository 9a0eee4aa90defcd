"""Files → a collection of Milvus: passages are written in place, the manifest last.

1. The head says that a change is under way.
2. The passages of files that are new or have changed are written, each by its id: what a killed build wrote is found by
   its id and the digest of its file, and neither embedded nor written again.
3. Passages that no file has any more are removed: those of a file's former digest, and of files that are gone.
4. The engine writes what it has to its disk and counts; the distinct values of all fields are read from there; the
   manifest and then the head are written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import Progress

from revelator.errors import ArtifactError, ConfigError, DataError, ServingError
from revelator.trace import Passage
from serving.retrieval.build import Build
from serving.retrieval.corpora import ReadPassage
from serving.retrieval.embedders import is_made_by
from serving.retrieval.index_folder import IndexSettings, read_settings
from serving.retrieval.milvus_collection import (
    FIELDS,
    FORMAT,
    MilvusAddress,
    MilvusCollection,
    list_ids,
    write_row,
)
from serving.retrieval.milvus_fields import MARKS, MOST, READERS, quote, summarize_fields
from serving.retrieval.parts import Part, has_changed, is_gone, open_passages, read_file
from serving.retrieval.shard_work import PassageEmbedder

BATCH = 256  # passages that are embedded and written at a time


class Batch(NamedTuple):
    """Passages of a file, with their places in it, that are to be written, of `size` that were looked at."""

    name: str
    sha256: str
    passages: list[tuple[int, ReadPassage]]
    size: int


class MilvusBuild(Build):
    """A change of an index in Milvus. `stored` counts the passages that are there, by name and digest of their file."""

    format = FORMAT

    def __init__(self, address: MilvusAddress, settings: IndexSettings, progress: Progress | None) -> None:
        if settings.faiss:
            hint = "leave --faiss out"
            raise ConfigError("Milvus indexes vectors itself", where="--faiss", hint=hint)
        self.collection = MilvusCollection(address, create=True)
        self.where = str(address)
        self.head: dict[str, Any] = {}
        self.before: dict[str, Any] = {}
        self.stored: Counter[tuple[str, str]] = Counter()
        super().__init__(address.folder or Path(self.where), settings, progress)

    def _open_old(self) -> dict[str, Part]:
        self.head = self.collection.read_head()
        has_passages = self.collection.call("has_collection", self.collection.name)
        if not self.head:
            if has_passages:
                reason = "a collection stands there that is not an index"
                raise ConfigError(reason, where=self.where, hint="name another collection")
            return {}
        self._require_same_make()
        if has_passages:
            self.collection.check_fields(self.settings, self.encoder.dimensions if self.encoder else 0)
        self.before = self.collection.read_manifest(self.head)
        self.unread = self.before.get("unread", {})
        corpora = self.before.get("corpora", [])
        self.stored = Counter({(each["name"], each["sha256"]): each["passages"] for each in corpora})
        if self.head["changing"] and has_passages:
            rows = self.collection.read_rows("", ["source", "digest"])
            self.stored = Counter((row["source"], row["digest"]) for row in rows)
        return {each["name"]: self._open_part(each) for each in corpora}

    def _require_same_make(self) -> None:
        """Raises ArtifactError where the index that stands there, finished or not, is of other settings or vectors."""
        old = read_settings(self.head)
        hint = "build it as it was built before, or name another collection"
        for name, value in vars(self.settings).items():
            if (was := getattr(old, name)) != value:
                message = f"the index there was built with {name} {was!r}, not {value!r}"
                raise ArtifactError(message, where=self.where, hint=hint)
        if self.encoder and not is_made_by(self.head, self.encoder):
            message = f"the index there was built with another model called {self.encoder.name!r}"
            raise ArtifactError(message, where=self.where, hint=hint)

    def _open_part(self, corpus: Mapping[str, Any]) -> Part:
        """A file that the manifest names; where a change that was cut short took of its passages, it is read anew."""
        name, path, digest = corpus["name"], corpus["path"], corpus["sha256"]
        note = corpus.get("note", "")
        if self.stored[name, digest] == corpus["passages"]:
            condition = _name_file(name, digest)
            read, ids = partial(self._read_stored, condition), partial(self._list_ids, condition)
            return Part(name, path, digest, read, note=note, ids=ids)
        return Part(name, path, digest, partial(self._read_again, path, name, digest), note=note)

    def _read_stored(self, condition: str) -> Iterator[ReadPassage]:
        for row in self.collection.read_rows(condition, ["id", "title", "text", "fields"]):
            yield ReadPassage(self.where, Passage(row["id"], row["title"], row["text"]), json.loads(row["fields"]))

    def _list_ids(self, condition: str) -> Iterator[str]:
        return (row["id"] for row in self.collection.read_rows(condition, ["id"]))

    def _read_again(self, path: str, name: str, digest: str) -> Iterator[ReadPassage]:
        if is_gone(path) or has_changed(path, digest):
            hint = f"start that change again, or add its folder: revelator index update {self.where} FOLDER"
            raise ConfigError(
                f"a change of {name} was cut short, and the file is another by now", where=path, hint=hint
            )
        return read_file(Path(path), name, self.settings)

    def open_parts(
        self, files: Mapping[str, Path], digests: Mapping[str, str], given: Sequence[Path]
    ) -> dict[str, Part]:
        """As of every build; a passage that is longer than a field is a fault of its file."""
        parts = super().open_parts(files, digests, given)
        for name, part in parts.items():
            if part.ids is None:
                parts[name] = replace(part, read=partial(_check_lengths, part, self.settings))
        return parts

    def _check_place(self) -> dict[str, Any]:
        return {} if self.head.get("changing") else self.before

    def _store(
        self, plan: Mapping[str, Any], parts: Sequence[Part], counts: Mapping[str, int], version: int
    ) -> dict[str, Any]:
        version = max(version, self.head.get("version", 0) + 1)
        self.collection.create_manifest()
        about = {name: plan[name] for name in ("settings", "model") if name in plan} | self.describe_probe()
        unchanged = {"version": self.head.get("version", 0), "parts": self.head.get("parts", 0)}
        self.collection.write_head({"format": FORMAT, **unchanged, "changing": True, **about})
        self.collection.create_passages(self.settings, self.encoder.dimensions if self.encoder else 0)
        new = [part for part in parts if self.stored[part.name, part.sha256] != counts[part.name]]
        task = self.progress.add_task("writing passages", total=sum(counts[part.name] for part in new))
        make = partial(_make_rows, self.settings, self.open_passage_embedder())
        done = 0
        for rows, count in self.engine(make, self._list_batches(new, counts)):
            if rows:
                self.collection.insist("upsert", self.collection.name, rows)
            done += count
            self.progress.update(task, completed=done)
        for name, digest in self.stored.keys() - {(part.name, part.sha256) for part in parts}:
            self.collection.insist("delete", self.collection.name, filter=_name_file(name, digest))
        self.collection.insist("flush", self.collection.name)
        if (count := self.collection.count()) != plan["count"]:
            message = f"the collection holds {count:,} passages, and {plan['count']:,} were written"
            raise ServingError(
                message, where=self.where, hint="did another build write at the same time? start it again"
            )
        fields = summarize_fields(self.collection.read_rows("", ["source", "fields"]))
        manifest = {**plan, **self.describe_probe(), **fields, "version": version}
        self.collection.write_manifest(manifest)
        return manifest

    def _list_batches(self, parts: Sequence[Part], counts: Mapping[str, int]) -> Iterator[Batch]:
        """The passages of files, a batch each, without those that are there. Raises DataError for a file that has fewer
        of them than were counted."""
        for part, passages in open_passages(parts, counts, self.engine):
            numbered = enumerate(passages)
            while batch := list(islice(numbered, BATCH)):
                there = self._find_stored(part, [one.passage.id for _, one in batch])
                missing = [(place, one) for place, one in batch if one.passage.id not in there]
                yield Batch(part.name, part.sha256, missing, len(batch))

    def _find_stored(self, part: Part, ids: Sequence[str]) -> set[str]:
        """Those of the ids that a build which was killed has written of this very file."""
        if not self.stored[part.name, part.sha256]:
            return set()
        condition = f"{list_ids(ids)} and {_name_file(part.name, part.sha256)}"
        how = {"consistency_level": "Strong"}
        return {row["id"] for row in self.collection.insist("query", self.collection.name, condition, ["id"], **how)}


def _make_rows(
    settings: IndexSettings, embed: PassageEmbedder | None, batch: Batch
) -> tuple[list[dict[str, Any]], int]:
    """The rows of a batch, and how many passages were looked at."""
    rows = [write_row(one, batch.name, batch.sha256, place, settings) for place, one in batch.passages]
    if embed and rows:
        vectors = embed([(one.passage, None) for _, one in batch.passages])
        rows = [row | {"vector": vector.tolist()} for row, vector in zip(rows, vectors, strict=True)]
    return rows, batch.size


def _name_file(name: str, digest: str) -> str:
    return f"source == {quote(name)} and digest == {quote(digest)}"


def _check_lengths(part: Part, settings: IndexSettings) -> Iterator[ReadPassage]:
    for one in part.read():
        row = write_row(one, part.name, part.sha256, 0, settings)
        for name, longest in FIELDS.items():
            if (length := len(row.get(name, "").encode())) > longest:
                message = f"`{name}` of passage {one.passage.id[:80]!r} has {length:,} bytes; Milvus holds {longest:,}"
                raise DataError(message, where=one.where, hint="cut it into several passages")
        for name in (MARKS, READERS):
            if (count := len(row[name])) > MOST:
                message = f"{count:,} {name} of passage {one.passage.id[:80]!r}; Milvus holds {MOST:,}"
                raise DataError(message, where=one.where, hint="name fewer groups or fields")
        yield one
