"""Chunks that a build has prepared, kept beside the set (`.NAME.building`) until it is whole.

A build that was killed or failed goes on from its last kept chunk with the same command, on any engine, to the same
set. What was kept under another configuration, of other inputs or by other code is thrown away. Each chunk is one
parquet file of its records, whole or absent, whose name has its digest; the rest of it is JSON in the file's metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet

import data_gen
import revelator
from data_gen.engines import Engine
from data_gen.prepare import Candidate, Prepared, Preparer
from data_gen.sources.rows import Refused
from revelator.files import code_digest, work_folder, write_bytes
from revelator.rows import table_of

ABOUT = b"prepared"


@contextmanager
def keeping(engine: Engine, target: Path, about: dict[str, Any]) -> Iterator[Engine]:
    """`engine`, with what it makes kept until the block ends, and what a build of the same set that did not end kept
    taken first.

    `about` has the build's config and the digests of its inputs. Raises ConfigError while another process builds at
    `target`.
    """
    plan = {**about, "code": code_digest(data_gen, revelator)}
    with work_folder(target, plan, "*.parquet", "building this set") as folder:
        yield _kept(engine, folder)


def _kept(engine: Engine, folder: Path) -> Engine:
    def prepared(prepare: Preparer, first: int = 0) -> Iterator[Prepared]:
        while chunk := _read(folder, first):
            yield chunk
            first += 1
        for made in engine(prepare, first):
            _write(folder, made)
            yield made

    return prepared


def _write(folder: Path, prepared: Prepared) -> None:
    about = asdict(replace(prepared, records=table_of([])))
    del about["records"]
    sink = pyarrow.BufferOutputStream()
    table = prepared.records.replace_schema_metadata({ABOUT: json.dumps(about)})
    parquet.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    write_bytes(folder / f"{prepared.chunk:08}.{_digest(content)}.parquet", content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _read(folder: Path, number: int) -> Prepared | None:
    """A kept chunk; None where there is none that is whole."""
    path = next(folder.glob(f"{number:08}.*.parquet"), None)
    if path is None or _digest(content := path.read_bytes()) != path.suffixes[0][1:]:
        return None
    table = parquet.read_table(pyarrow.BufferReader(content))
    about = json.loads(table.schema.metadata[ABOUT])
    about["candidates"] = tuple(map(_candidate, about["candidates"]))
    about["refused"] = tuple(Refused(**row) for row in about["refused"])
    about["skipped"] = tuple(about["skipped"])
    return Prepared(**about, records=table.replace_schema_metadata(None))


def _candidate(row: dict[str, Any]) -> Candidate:
    others = tuple(map(_candidate, row["others"]))
    return Candidate(**{**row, "records": tuple(row["records"]), "others": others})
