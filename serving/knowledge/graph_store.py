"""A graph folder: an Oxigraph store, a label index, and a manifest that is written last; how it is built and opened.

Graphs are built from N-Triples or TSV, gzipped or not. TSV lines are `head <tab> relation <tab> tail`, names as they
are read: equal names are one node, whose label is the name. Of N-Triples the labels are those of the vocabulary's
predicates, in its language or none; a relation without a label is called by the last part of its IRI.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import pyoxigraph as ox
from pyoxigraph import Literal, NamedNode, Quad, RdfFormat

from revelator.artifact import explain_full_disk
from revelator.errors import ArtifactError, DataError, DeadlineExceeded
from revelator.files import sha256_file, stage_folder
from revelator.folders import FolderKind, digest_manifest
from revelator.row_files import open_bytes
from serving.knowledge.labels import Label, LabelIndex, LabelKind, write_labels
from serving.knowledge.sparql import RDFS_LABEL, GraphVocabulary, Row, find_local_name

GRAPH = FolderKind("a graph", "revelator-graph-2", "revelator index build FILE --kind graph --out DIR")
ENTITY, RELATION = "urn:revelator:entity:", "urn:revelator:relation:"
THREADS = 2  # of queries
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def build_graph(inputs: Sequence[Path], out: Path, *, vocabulary: GraphVocabulary | None = None) -> dict[str, Any]:
    """Loads `inputs` (`.nt` or `.tsv`, `.gz` or not) into the folder `out`, whole or not at all; gives its manifest.

    Raises DataError for a broken line or no triple at all; ConfigError when `out` exists and is no graph.
    """
    GRAPH.check_place(out)
    vocabulary = vocabulary or GraphVocabulary()
    with explain_full_disk(out), stage_folder(out) as stage:
        store = ox.Store(str(stage / "store"))
        named: set[str] = set()
        for path in inputs:
            _load(store, path, named)
        store.flush()
        store.optimize()
        if not len(store):
            raise DataError("no triple in the files", where=", ".join(map(str, inputs)))
        labels = write_labels(stage / "labels.sqlite", _list_labels(store, vocabulary))
        relations = LabelIndex(stage / "labels.sqlite").relations
        about: dict[str, Any] = {
            "triples": len(store) - len(named),
            "labels": labels,
            "relations": sorted({label.text for label in relations if label.main}),
            "inputs": [{"name": path.name, "sha256": sha256_file(path)} for path in inputs],
            "vocabulary": {
                "label": vocabulary.label.value,
                "aliases": [node.value for node in vocabulary.aliases],
                "language": vocabulary.language,
            },
        }
        del store  # writes its last files, and releases the lock before the folder moves
        return GRAPH.write_manifest(stage, about)


def _load(store: ox.Store, path: Path, named: set[str]) -> None:
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind not in ("nt", "tsv"):
        raise DataError(
            "neither N-Triples nor TSV by its name", where=str(path), hint="name it .nt, .tsv, .nt.gz or .tsv.gz"
        )
    try:
        with open_bytes(str(path)) as file:
            if kind == "nt":
                store.bulk_load(file, RdfFormat.N_TRIPLES)
            else:
                store.bulk_extend(_read_quads(file, path, named))
    except (OSError, EOFError, SyntaxError, UnicodeDecodeError) as error:
        raise DataError(f"the graph cannot be read: {error}", where=str(path)) from error


def _read_quads(file: IO[bytes], path: Path, named: set[str]) -> Iterator[Quad]:
    """Yields each line's quad, and an rdfs:label quad for every new name, whose IRI it adds to `named`."""
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.decode().rstrip("\r\n").split("\t")]
        if len(parts) != 3 or not all(parts):
            hint = "each line is head, relation and tail with a tab between"
            raise DataError(f"{len(parts)} columns, or an empty one", where=f"{path}:{number}", hint=hint)
        head, relation, tail = parts
        nodes = (make_node(head), NamedNode(RELATION + quote(relation, safe="")), make_node(tail))
        yield Quad(*nodes)
        for node, text in zip(nodes, (head, make_readable(relation), tail), strict=True):
            if node.value not in named:
                named.add(node.value)
                yield Quad(node, RDFS_LABEL, Literal(text))


def make_node(name: str) -> NamedNode:
    """The node of a name in a graph that was loaded from TSV."""
    return NamedNode(ENTITY + quote(name, safe=""))


def make_readable(name: str) -> str:
    """`directed_by`, `directedBy` → `directed by`."""
    return " ".join(_CAMEL.sub(" ", name.replace("_", " ").replace("-", " ")).split())


def _list_labels(store: ox.Store, v: GraphVocabulary) -> Iterator[Label]:
    """The names of every node; of a predicate without one, the last part of its IRI. A predicate that only names things
    has none."""
    solutions: Any = store.query("SELECT DISTINCT ?p WHERE { ?s ?p ?o }")
    relations = {solution["p"] for solution in solutions} - {v.label, *v.aliases}
    unnamed = set(relations)
    for predicate in (v.label, *v.aliases):
        for quad in store.quads_for_pattern(None, predicate, None):
            node, name = quad.subject, quad.object
            if isinstance(node, NamedNode) and isinstance(name, Literal) and (name.language or "") in ("", v.language):
                kind: LabelKind = "relation" if node in relations else "entity"
                yield Label(node.value, name.value, kind, predicate == v.label)
                if predicate == v.label:
                    unnamed.discard(node)
    for node in sorted(unnamed, key=str):
        yield Label(node.value, make_readable(find_local_name(node.value)), "relation")


class GraphStore:
    """Names to nodes, and SPARQL SELECT, over a folder of `build_graph`. Queries run in threads of its own.

    Several processes may have a folder open. `timeout` (seconds) ends a query between two of its rows. Raises
    ArtifactError for a damaged file, at the latest when it is read.
    """

    def __init__(self, folder: Path, *, timeout: float = 5.0) -> None:
        self.manifest = GRAPH.read_manifest(folder)
        v = self.manifest["vocabulary"]
        self.vocabulary = GraphVocabulary(NamedNode(v["label"]), tuple(map(NamedNode, v["aliases"])), v["language"])
        self.timeout = timeout
        self._where = str(folder)
        with self._refuse_damage():
            self._store = ox.Store.read_only(str(folder / "store"))
            self._labels = LabelIndex(folder / "labels.sqlite")
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="graph")
        self._state = digest_manifest(self.manifest)

    def find_state(self) -> str:
        return self._state

    async def find_entities(self, name: str) -> list[Label]:
        """Finds labels that equal the name, else those with the same folded text, else those with all of its words."""
        return await self._run(self._labels.find_entities, name)

    async def find_relations(self, phrase: str) -> list[Label]:
        """Finds labels with the same folded text, else the most similar ones, if they share enough words."""
        return self._labels.find_relations(phrase)

    async def select(self, query: str) -> list[Row]:
        """The rows of a SELECT. Raises DeadlineExceeded."""
        return await self._run(self._select, query)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def _refuse_damage(self) -> Iterator[None]:
        """Turns what the libraries raise for a damaged file into an ArtifactError."""
        try:
            yield
        except (OSError, RuntimeError, sqlite3.DatabaseError) as error:
            hint = "`revelator index info DIR` names the file; build it again"
            raise ArtifactError(f"the graph is damaged: {error}", where=self._where, hint=hint) from error

    def _select(self, query: str) -> list[Row]:
        end = time.monotonic() + self.timeout
        solutions: Any = self._store.query(query)
        names = [variable.value for variable in solutions.variables]
        rows: list[Row] = []
        for solution in solutions:
            if time.monotonic() > end:
                message = f"the graph gave {len(rows)} rows in {self.timeout:g} s, its timeout, and was not done"
                raise DeadlineExceeded(message, hint="raise its `timeout` in the file of sources")
            rows.append({name: value for name in names if (value := solution[name]) is not None})
        return rows

    async def _run(self, work: Any, argument: str) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run_checked, work, argument)

    def _run_checked(self, work: Any, argument: str) -> Any:
        with self._refuse_damage():
            return work(argument)
