"""A graph folder: an Oxigraph store, a label index, and a manifest that is written last; how it is built and opened.

Graphs are built from N-Triples or TSV, gzipped or not. TSV lines are `head <tab> relation <tab> tail`, names as they
are read: equal names are one node, whose label is the name. Of N-Triples the labels are those of the vocabulary's
predicates, in its language or none; a relation without a label is called by the last part of its IRI.
"""

from __future__ import annotations

import asyncio
import gzip
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

from revelator.errors import ArtifactError, DataError, DeadlineExceeded
from revelator.files import sha256_file, staged_folder
from serving.built_folder import FolderKind
from serving.knowledge.labels import Label, LabelIndex, choose_relations, fold_label, write_labels
from serving.knowledge.sparql import RDFS_LABEL, Row, Vocabulary, find_local_name

GRAPH = FolderKind("a graph", "revelator-graph-2", ("revelator-graph-",), "revelator graph load FILE --out DIR")
ENTITY, RELATION = "urn:revelator:entity:", "urn:revelator:relation:"
THREADS = 2  # of queries
GZIP_MAGIC = b"\x1f\x8b"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def build_graph(
    inputs: Sequence[Path], out: Path, *, vocabulary: Vocabulary | None = None, aliases: Path | None = None
) -> dict[str, Any]:
    """Loads `inputs` (`.nt` or `.tsv`, `.gz` or not) into the folder `out`, whole or not at all; gives its manifest.

    `aliases` is a TSV of `relation name <tab> other name`. Raises DataError for a broken line, a relation that an alias
    names and the graph has not, or no triple at all; ArtifactError when `out` exists and is no graph.
    """
    GRAPH.check_place(out)
    vocabulary = vocabulary or Vocabulary()
    with staged_folder(out) as stage:
        store = ox.Store(str(stage / "store"))
        named: set[str] = set()
        for path in inputs:
            _load(store, path, named)
        store.flush()
        store.optimize()
        if not len(store):
            raise DataError("no triple in the files", where=", ".join(map(str, inputs)))
        relations = _label_relations(store, vocabulary)
        relations += _read_aliases(aliases, relations) if aliases else []
        labels = write_labels(stage / "labels.sqlite", _list_labels(store, vocabulary, relations))
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
        with _open(path) as file:
            if kind == "nt":
                store.bulk_load(file, RdfFormat.N_TRIPLES)
            else:
                store.bulk_extend(_read_quads(file, path, named))
    except (OSError, EOFError, SyntaxError, UnicodeDecodeError) as error:
        raise DataError(f"the graph cannot be read: {error}", where=str(path)) from error


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as raw:
        gzipped = raw.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if gzipped else path.open("rb")  # type: ignore[return-value]


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


def _label_relations(store: ox.Store, v: Vocabulary) -> list[Label]:
    """Returns each predicate's main label and its aliases, except for predicates that only name things."""
    naming = {v.label, *v.aliases}
    found: list[Label] = []
    solutions: Any = store.query("SELECT DISTINCT ?p WHERE { ?s ?p ?o }")
    for solution in solutions:
        predicate = solution["p"]
        if predicate in naming:
            continue
        texts = _list_names(store, predicate, [v.label], v)
        main = texts[0] if texts else make_readable(find_local_name(predicate.value))
        found.append(Label(predicate.value, main, "relation"))
        others = _list_names(store, predicate, v.aliases, v)
        found += [Label(predicate.value, other, "relation", False) for other in others]
    return sorted(found, key=lambda label: (label.iri, not label.main, label.text))


def _list_names(store: ox.Store, node: NamedNode, by: Sequence[NamedNode], v: Vocabulary) -> list[str]:
    terms = [quad.object for predicate in by for quad in store.quads_for_pattern(node, predicate, None)]
    return [term.value for term in terms if isinstance(term, Literal) and _is_in_language(term, v)]


def _read_aliases(path: Path, relations: Sequence[Label]) -> list[Label]:
    by_key = {fold_label(label.text): label.iri for label in relations}
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, other = line.partition("\t")
        if not line.strip():
            continue
        if fold_label(name) not in by_key or not other.strip():
            raise DataError("not a relation of the graph, a tab and another name for it", where=f"{path}:{number}")
        found.append(Label(by_key[fold_label(name)], other.strip(), "relation", False))
    return found


def _list_labels(store: ox.Store, v: Vocabulary, relations: Sequence[Label]) -> Iterator[Label]:
    yield from relations
    known = {label.iri for label in relations}
    for main, predicate in ((True, v.label), *((False, node) for node in v.aliases)):
        for quad in store.quads_for_pattern(None, predicate, None):
            node, name = quad.subject, quad.object
            if (
                isinstance(node, NamedNode)
                and isinstance(name, Literal)
                and _is_in_language(name, v)
                and node.value not in known
            ):
                yield Label(node.value, name.value, "entity", main)


def _is_in_language(name: Literal, v: Vocabulary) -> bool:
    return (name.language or "") in ("", v.language)


class GraphStore:
    """Names to nodes, and SPARQL SELECT, over a folder of `build_graph`. Queries run in threads of its own.

    Several processes may have a folder open. `timeout` (seconds) ends a query between two of its rows. Raises
    ArtifactError for a damaged file, at the latest when it is read.
    """

    def __init__(self, folder: Path, *, timeout: float = 5.0) -> None:
        self.manifest = GRAPH.read_manifest(folder)
        v = self.manifest["vocabulary"]
        self.vocabulary = Vocabulary(NamedNode(v["label"]), tuple(map(NamedNode, v["aliases"])), v["language"])
        self.timeout = timeout
        self._where = str(folder)
        with self._refuse_damage():
            self._store = ox.Store.read_only(str(folder / "store"))
            self._labels = LabelIndex(folder / "labels.sqlite")
            self._relations = self._labels.find_relations()
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="graph")

    async def find_entities(self, name: str) -> list[Label]:
        """Finds labels that equal the name, else those with the same folded text, else those with all of its words."""
        return await self._run(self._labels.find_entities, name)

    async def find_relations(self, phrase: str) -> list[Label]:
        """Finds labels with the same folded text, else the most similar ones, if they share enough words."""
        return choose_relations(phrase, self._relations)

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
            hint = "`revelator graph info DIR --verify` names the file; load it again"
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
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run_checked, work, argument)

    def _run_checked(self, work: Any, argument: str) -> Any:
        with self._refuse_damage():
            return work(argument)
