"""What a build of an index does wherever the index is kept: which files are read anew, and what the manifest says."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from os.path import lexists
from pathlib import Path
from typing import Any

from rich.progress import Progress

from revelator.cluster import Engine, work_here
from serving.retrieval.corpora import is_document
from serving.retrieval.documents import PartlyRead
from serving.retrieval.embedders import open_embedder
from serving.retrieval.index_folder import IndexSettings
from serving.retrieval.parts import Part, read_file, survey
from serving.retrieval.shard_work import PassageEmbedder


class Build(ABC):
    """A change of the index at `folder`, or at an address whose engine has its files there. `old` are the parts by name
    of the index that stands there, none where it was built otherwise, or cannot be read. It `knows_fields` unless an
    earlier version built it: then a file that is named is read anew."""

    format: str

    def __init__(self, folder: Path, settings: IndexSettings, progress: Progress | None) -> None:
        self.folder = folder
        self.settings = settings
        self.progress = progress or Progress(disable=True)
        self.engine: Engine = work_here
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

    def open_passage_embedder(self) -> PassageEmbedder | None:
        return PassageEmbedder(self.settings, self.encoder.digest, self.encoder) if self.encoder else None

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
            read = partial(read_file, path, name, self.settings)
            new = Part(name, str(path.absolute()), digest, read, is_document=is_document(path))
            known = self.old.get(name)
            if known and known.sha256 == new.sha256 and self.knows_fields:
                parts[name] = replace(known, path=new.path)
            else:
                parts[name] = replace(new, must_be_whole=path in named and not new.is_document)
        return parts

    def write(
        self, parts: Mapping[str, Part], left: dict[str, str], folders: Sequence[Path] | None = None
    ) -> dict[str, Any]:
        """Writes the index of these parts and returns its manifest; `left` says why files were left out, by name.

        With `folders`, the index that stands there is changed by what they hold: files that were left out before stay
        named, and nothing is written if all is as it was."""
        before = self._check_place()
        counts, unread, notes = survey(list(parts.values()), self.engine, self.progress)
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
