"""An index in a collection of Milvus: its address, its fields, its manifest, and calls whose faults are explained.

A row of the collection NAME is a passage. Its id is the primary key, so that a passage that is written twice is there
once. `words` are the terms that our own BM25 counts, stemmed and without stop words, a title's twice: Milvus weighs
them by its BM25 function, and finds by them what an index folder finds. `source` and `digest` say of which file it is,
and `place` where in it; what is known of it beside its text is in `serving.retrieval.milvus_fields`.

The collection NAME_manifest holds the manifest, in rows of `PART` characters, and one row `head`, which is written
last: it says which version of the manifest counts, and while a change is under way that the passages are not of one
version. So a build that was killed is found unfinished, and goes on.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from revelator.errors import ArtifactError, ConfigError, Unavailable
from serving.retrieval.bm25 import K1, B
from serving.retrieval.corpora import ReadPassage
from serving.retrieval.index_folder import TITLE_WEIGHT, IndexSettings
from serving.retrieval.milvus_faults import NOT_LOADED, TOKEN, explain_faults
from serving.retrieval.milvus_fields import MARKS, MOST, READERS, quote, write_fields
from serving.retrieval.words import extract_terms

FORMAT = "revelator-milvus-1"
ADDRESS = re.compile(
    r"milvus(?P<tls>\+tls)?:(?://(?P<host>[^/@?#\s]+)/|(?P<folder>(?://)?[^?#\s][^?#]*\.db)/)(?P<name>[A-Za-z_]\w{0,200})"
)
OLDEST, NEWEST = (2, 5), 3  # the first server with a BM25 function; the last major version
SECONDS = 10.0  # of a call that searches
PATIENCE = 60.0  # of a build for an engine that is away, and of one of its calls
PAUSE = 0.5  # before a build asks an engine again that was away
OPTIONS = {"grpc.keepalive_permit_without_calls": 0}  # the client would ping an idle server until it is sent away
LONGEST = 65_535  # bytes of a text field
PART = 60_000  # characters of a manifest in one row
HEAD = "head"
GROUP_BYTES = 400  # of a group's name, at most
GRAPH = {"M": 32, "efConstruction": 200}  # of the approximate index of vectors
FIELDS = {"id": LONGEST, "source": 4_096, "digest": 64} | dict.fromkeys(("title", "text", "words", "fields"), LONGEST)


@dataclass(frozen=True)
class MilvusAddress:
    """`uri` is the server's, or the folder of a database of Milvus Lite, which runs in this process; `name` is the
    collection."""

    uri: str
    name: str

    @classmethod
    def read(cls, text: str, base: Path = Path()) -> MilvusAddress:
        """Reads an address. A relative folder starts at `base`. Raises ConfigError."""
        found = ADDRESS.fullmatch(text)
        if found is None:
            hint = f"milvus://HOST:19530/NAME or milvus:FOLDER/FILE.db/NAME; a token comes from {TOKEN}"
            raise ConfigError("not an address of a collection", where=re.sub(r"//.*@", "//…@", text), hint=hint)
        if host := found["host"]:
            return cls(f"{'https' if found['tls'] else 'http'}://{host}", found["name"])
        return cls(str((base / found["folder"].removeprefix("//")).absolute()), found["name"])

    @property
    def folder(self) -> Path | None:
        """The files of Milvus Lite; None of a server."""
        return None if "://" in self.uri else Path(self.uri)

    def __str__(self) -> str:
        if self.folder:
            return f"milvus:{self.folder}/{self.name}"
        scheme, _, host = self.uri.partition("://")
        return f"milvus{'+tls' if scheme == 'https' else ''}://{host}/{self.name}"


def list_ids(ids: Sequence[str]) -> str:
    return f"id in [{', '.join(map(quote, ids))}]"


def write_row(one: ReadPassage, source: str, digest: str, place: int, settings: IndexSettings) -> dict[str, Any]:
    """The row of a passage, without its vector. What UTF-8 cannot hold (lone surrogates) becomes a mark."""
    passage = one.passage
    row = {"id": passage.id, "source": source, "digest": digest, "title": passage.title, "text": passage.text}
    if settings.sparse:
        row["words"] = " ".join(extract_terms(passage.title) * TITLE_WEIGHT + extract_terms(passage.text))
    return {name: text.encode(errors="replace").decode() for name, text in row.items()} | {
        "place": place,
        **write_fields(one.fields),
    }


class MilvusCollection:
    """A connection to a collection and its manifest. Safe to share between threads."""

    def __init__(self, address: MilvusAddress, *, create: bool = False) -> None:
        """Connects. Raises Unavailable and ConfigError; ArtifactError for a server of another version, and where there
        are no files of Milvus Lite, unless they are to be created."""
        if find_spec("pymilvus") is None:
            hint = "pip install 'revelator[milvus]'"
            raise ArtifactError("the package pymilvus is not installed", where=str(address), hint=hint)
        from pymilvus import MilvusClient

        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what it says of a fault is raised, too
        logging.getLogger("milvus_lite").setLevel(logging.CRITICAL)
        self.address, self.name, self.manifest_name = address, address.name, f"{address.name}_manifest"
        self.where = str(address)
        if address.folder and not create and not address.folder.exists():
            raise ArtifactError(
                "there is no such database", where=self.where, hint="revelator index build FILES --to …"
            )
        if address.folder:
            address.folder.parent.mkdir(parents=True, exist_ok=True)
        with explain_faults(self.where, SECONDS):
            token = os.environ.get(TOKEN, "")
            self._client = MilvusClient(address.uri, token=token, timeout=SECONDS, grpc_options=OPTIONS)
        self._check_version()

    def _check_version(self) -> None:
        said = str(self.call("get_server_version"))
        self._is_lite = "lite" in said
        found = re.search(r"(\d{1,4})\.(\d{1,4})", said)
        version = (int(found[1]), int(found[2])) if found else (0, 0)
        if version < OLDEST or version[0] > NEWEST:
            known = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST}"
            raise ArtifactError(f"a server of version {said} answers, and only {known} is known", where=self.where)

    def call(self, method: str, *args: Any, seconds: float = SECONDS, **kwargs: Any) -> Any:
        """A method of the client. Loads the collection that it names first, if a server that was started anew has not.
        Raises what `explain_faults` does."""
        from pymilvus.exceptions import MilvusException

        with explain_faults(self.where, seconds):
            try:
                return getattr(self._client, method)(*args, timeout=seconds, **kwargs)
            except MilvusException as error:
                if error.code != NOT_LOADED:
                    raise
            self._client.load_collection(args[0], timeout=seconds)
            return getattr(self._client, method)(*args, timeout=seconds, **kwargs)

    def insist(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """`call` for a build, which waits up to `PATIENCE` for an engine that is away."""
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                return self.call(method, *args, seconds=PATIENCE, **kwargs)
            except Unavailable as error:
                if error.final or time.monotonic() > ends:
                    error.hint = "once it is back, start the command again: it goes on where it was"
                    raise
            time.sleep(PAUSE)

    # ---- manifest

    def read_head(self) -> dict[str, Any]:
        """The row that is written last; {} where there is no index. Raises ArtifactError for another format."""
        if not self.call("has_collection", self.manifest_name):
            return {}
        row = self._read_manifest_rows(f"id == {quote(HEAD)}")
        head = json.loads(row[0]["text"]) if row else {}
        if head and head.get("format") != FORMAT:
            raise ArtifactError(f"its format is {head.get('format')!r}, not {FORMAT}", where=self.where)
        return head

    def read_manifest(self, head: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest that a head names; {} for one of an index that was never finished."""
        if not head.get("version"):
            return {}
        rows = self._read_manifest_rows(f"version == {head['version']} and id != {quote(HEAD)}")
        texts = {row["id"]: row["text"] for row in rows}
        try:
            text = "".join(texts[f"{head['version']}/{number}"] for number in range(head["parts"]))
            return dict(json.loads(text))
        except (KeyError, ValueError) as error:
            hint = "drop both collections, and build the index anew"
            raise ArtifactError("its manifest is not whole", where=self.where, hint=hint) from error

    def require_manifest(self, head: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest. Raises ArtifactError for what is no index, or one that was never finished."""
        if manifest := self.read_manifest(head):
            return manifest
        reason = "an index that was not finished" if head else "this is not an index: it has no manifest"
        raise ArtifactError(reason, where=self.where, hint=f"revelator index build FILES --to {self.where}")

    def _read_manifest_rows(self, condition: str) -> list[dict[str, Any]]:
        fields = ["id", "text"]
        return [*self.call("query", self.manifest_name, condition, fields, consistency_level="Strong")]

    def write_head(self, head: Mapping[str, Any]) -> None:
        self.insist("upsert", self.manifest_name, [_write_part(HEAD, head["version"], json.dumps(head))])

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest, then the head that names it, and removes earlier ones."""
        text, version = json.dumps(manifest), manifest["version"]
        parts = [text[start : start + PART] for start in range(0, len(text), PART)]
        for number, part in enumerate(parts):
            self.insist("upsert", self.manifest_name, [_write_part(f"{version}/{number}", version, part)])
        about = {name: manifest[name] for name in ("settings", "model", "probe") if name in manifest}
        self.write_head({"format": FORMAT, "version": version, "parts": len(parts), "changing": False} | about)
        self.insist("delete", self.manifest_name, filter=f"version != {version}")

    # ---- passages

    def create_manifest(self) -> None:
        """Makes the collection of the manifest, unless it is there."""
        from pymilvus import DataType, MilvusClient

        schema, indexes = MilvusClient.create_schema(), MilvusClient.prepare_index_params()
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("version", DataType.INT64)
        schema.add_field("text", DataType.VARCHAR, max_length=LONGEST)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)  # a collection must have one
        indexes.add_index("vector", index_type="FLAT", metric_type="IP")
        self._create(self.manifest_name, schema, indexes)

    def create_passages(self, settings: IndexSettings, dimensions: int) -> None:
        """Makes the collection of the passages, unless it is there. It is parted by file, so that a change of one
        touches one partition; but not where Milvus Lite weighs words, which it does by what a part alone holds."""
        from pymilvus import DataType, Function, FunctionType, MilvusClient

        schema, indexes = MilvusClient.create_schema(), MilvusClient.prepare_index_params()
        part_key = None if settings.sparse and self._is_lite else "source"
        for name, longest in FIELDS.items():
            if name != "words":
                role = {"is_primary": name == "id", "is_partition_key": name == part_key}
                schema.add_field(name, DataType.VARCHAR, max_length=longest, **role)
        schema.add_field("place", DataType.INT64)
        for name in (MARKS, READERS):
            texts = {"element_type": DataType.VARCHAR, "max_length": GROUP_BYTES, "max_capacity": MOST}
            schema.add_field(name, DataType.ARRAY, **texts)
        indexes.add_index("source", index_type="INVERTED")
        if settings.sparse:
            analyzer = {"tokenizer": "standard"}
            words = {"max_length": LONGEST, "enable_analyzer": True, "analyzer_params": analyzer}
            schema.add_field("words", DataType.VARCHAR, **words)
            schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
            schema.add_function(Function("bm25", FunctionType.BM25, ["words"], ["sparse"]))
            weights = {"params": {"bm25_k1": K1, "bm25_b": B}}  # named so: Milvus Lite passes over others
            indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25", params=weights)
        if settings.dense:
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
            indexes.add_index("vector", index_type="HNSW", metric_type="IP", params={"params": GRAPH})
        self._create(self.name, schema, indexes)

    def _create(self, name: str, schema: Any, indexes: Any) -> None:
        if not self.insist("has_collection", name):
            how = {"schema": schema, "index_params": indexes, "consistency_level": "Bounded"}
            self.insist("create_collection", name, **how)
        self.insist("load_collection", name)

    def check_fields(self, settings: IndexSettings, dimensions: int) -> None:
        """Raises ArtifactError for a collection of other fields than an index of these settings has."""
        described = self.call("describe_collection", self.name)
        there = {field["name"]: int(field.get("params", {}).get("dim", 0)) for field in described["fields"]}
        wanted = dict.fromkeys([*FIELDS, "place", MARKS, READERS, "sparse"], 0) | {"vector": dimensions}
        absent = {*(() if settings.sparse else ("words", "sparse")), *(() if settings.dense else ("vector",))}
        wanted = {name: size for name, size in wanted.items() if name not in absent}
        if there == wanted:
            return
        found, expected = (
            _list_fields(fields.items() - other.items()) for fields, other in ((there, wanted), (wanted, there))
        )
        message = f"a collection of other fields: it has {found or 'none more'}, and {expected or 'none'} is missing"
        raise ArtifactError(message, where=self.where, hint="name another collection")

    def require_whole(self, head: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
        """Raises ArtifactError where the passages are not those of the manifest."""
        if head["changing"]:
            hint = f"start that change again: revelator index update {self.where} FOLDER"
            raise ArtifactError("a change is under way, or was cut short", where=self.where, hint=hint)
        if (count := self.count()) != manifest["count"]:
            reason = f"holds {count:,} passages, and {manifest['count']:,} were written"
            raise ArtifactError(reason, where=self.where, hint="name another collection, and build the index there")

    def count(self) -> int:
        """How many passages there are."""
        counted = self.call("query", self.name, "", ["count(*)"], consistency_level="Strong")
        return int(counted[0]["count(*)"])

    def read_rows(self, condition: str, fields: Sequence[str], batch: int = 1_000) -> Iterator[dict[str, Any]]:
        """The rows that meet a condition, however many, in the order of their ids. (The client's own iterator does not
        escape the ids that it goes on from.)"""
        how: dict[str, Any] = {"limit": batch, "iterator": "True", "consistency_level": "Strong"}
        last = ""
        while True:
            further = " and ".join(filter(None, [f"id > {quote(last)}", condition]))
            rows = [*self.call("query", self.name, further, [*{"id", *fields}], **how)]
            yield from rows
            if len(rows) < batch:
                return
            last = rows[-1]["id"]


def _list_fields(fields: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"`{name}` of {size} dimensions" if size else f"`{name}`" for name, size in sorted(fields))


def _write_part(id: str, version: int, text: str) -> dict[str, Any]:
    return {"id": id, "version": version, "text": text, "vector": [1.0, 0.0]}
