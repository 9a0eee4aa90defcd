"""The embedded graph: an Oxigraph store opened read-only, with the label index beside it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyoxigraph as ox
from pyoxigraph import NamedNode

from revelator.errors import ArtifactError, DeadlineExceeded
from revelator.files import sha256_file
from serving.knowledge.graph_build import FORMAT
from serving.knowledge.labels import Label, LabelIndex
from serving.knowledge.linking import best_relations
from serving.knowledge.sparql import Row, Vocabulary

HINT = "build it with `revelator graph load FILE --out DIR`"


def read_manifest(folder: Path, *, verify: bool = False) -> dict[str, Any]:
    """The manifest of a graph folder after a look at every file's size, with `verify` at its digest too.

    Raises ArtifactError when there is none, and for a file that is missing or not as it was built.
    """
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_bytes())
        form = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError("not a graph: no manifest.json that can be read", where=str(folder), hint=HINT) from error
    if form != FORMAT:
        raise ArtifactError(f"format {form!r}, and this version reads {FORMAT!r}", where=str(path), hint=HINT)
    for name, size in manifest["sizes"].items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            raise ArtifactError("missing or of another size than when it was built", where=str(file), hint=HINT)
        if verify and sha256_file(file) != manifest["files"][name]:
            raise ArtifactError("has changed since it was built", where=str(file), hint=HINT)
    return manifest


class GraphStore:
    """Names to nodes, and SPARQL SELECT, over a folder of `build_graph`. Queries run in threads of its own.

    Several processes may have a folder open. `timeout` (seconds) ends a query between two of its rows. A file that is
    not as it was built is an ArtifactError, at the latest when it is read.
    """

    def __init__(self, folder: Path, *, timeout: float = 5.0, threads: int = 2) -> None:
        self.manifest = read_manifest(folder)
        v = self.manifest["vocabulary"]
        self.vocabulary = Vocabulary(NamedNode(v["label"]), tuple(map(NamedNode, v["aliases"])), v["language"])
        self.timeout = timeout
        self._where = str(folder)
        with self._sound():
            self._store = ox.Store.read_only(str(folder / "store"))
            self._labels = LabelIndex(folder / "labels.sqlite")
            self._relations = self._labels.relations()
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="graph")

    async def entities(self, name: str) -> list[Label]:
        return await self._run(self._labels.entities, name)

    async def relations(self, phrase: str) -> list[Label]:
        return best_relations(phrase, self._relations)

    async def select(self, query: str) -> list[Row]:
        """The rows of a SELECT. Raises DeadlineExceeded."""
        return await self._run(self._select, query)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """What the libraries say of a damaged file, as an ArtifactError."""
        try:
            yield
        except (OSError, RuntimeError, sqlite3.DatabaseError) as error:
            hint = "`revelator graph info DIR --verify` tells which file; load it again"
            raise ArtifactError(f"the graph is damaged: {error}", where=self._where, hint=hint) from error

    def _select(self, query: str) -> list[Row]:
        end = time.monotonic() + self.timeout
        solutions: Any = self._store.query(query)
        names = [variable.value for variable in solutions.variables]
        rows: list[Row] = []
        for solution in solutions:
            if time.monotonic() > end:
                raise DeadlineExceeded(f"the graph gave {len(rows)} rows in {self.timeout:g} s and was not done")
            rows.append({name: value for name in names if (value := solution[name]) is not None})
        return rows

    async def _run(self, work: Any, argument: str) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._checked, work, argument)

    def _checked(self, work: Any, argument: str) -> Any:
        with self._sound():
            return work(argument)
