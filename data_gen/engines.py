"""What prepares the rows of a build: this process, several processes of this machine, or a Ray cluster.

An engine is a function. It takes a `Preparer` and the number of a chunk, and gives that chunk and all later ones, each
prepared, in order.

Prepared chunks are kept beside the set (`.NAME.building`) until it is whole. A build that was killed or
failed goes on from its last kept chunk with the same command, on any engine, to the same set. What was kept under
another configuration, of other inputs or by other code is thrown away. Each chunk is one parquet file of its records,
whole or absent, whose name has its digest; the rest of it is JSON in the file's metadata.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet

import data_gen
import revelator
from data_gen.prepare import Candidate, Chunk, PreparedChunk, Preparer, read_chunks
from data_gen.sources.rows import RefusedRow
from revelator.errors import ConfigError, DataError
from revelator.files import code_digest, work_folder, write_bytes
from revelator.rows import make_table

Engine = Callable[[Preparer, int], Iterator[PreparedChunk]]

AHEAD = 3  # chunks a process that are prepared or under way before the gate takes the first: they bound the memory


def choose_engine(name: str, workers: int) -> Engine:
    """The engine `local` or `ray`. Raises ConfigError for workers of `ray`, and where Ray is not installed."""
    if name == "local":
        return choose_local(workers)
    if workers != 1:
        raise ConfigError("is of the engine local: Ray uses every CPU of its cluster", where="--workers")
    try:
        from data_gen.ray_engine import run_on_ray
    except ImportError as error:
        hint = "pip install 'revelator[ray]'"
        raise ConfigError(f"Ray Data is not installed: {error}", where="--engine ray", hint=hint) from error
    return run_on_ray


def choose_local(workers: int = 1) -> Engine:
    """This machine: `workers` processes beside the one that reads and writes; for 1, that one does it all."""
    return run_here if workers == 1 else partial(_run_in_processes, workers)


def run_here(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    return map(prepare, read_chunks(prepare.config, first))


def _run_in_processes(workers: int, prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    context = multiprocessing.get_context("spawn")
    waiting: deque[Future[PreparedChunk]] = deque()
    try:
        with ProcessPoolExecutor(workers, context, _start_worker, (prepare,)) as pool:
            for chunk in read_chunks(prepare.config, first):
                waiting.append(pool.submit(_prepare_chunk, chunk))
                if len(waiting) > AHEAD * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise DataError(
            "a process that prepared rows was ended from outside",
            where=f"--workers {workers}",
            hint="often the machine ran out of memory: free some, or give fewer workers; the build then goes on",
        ) from error


_prepare: Preparer


def _start_worker(prepare: Preparer) -> None:
    """Sets a worker up; it ends with the process that started it, even if that is killed."""
    global _prepare
    _prepare = prepare
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _prepare_chunk(chunk: Chunk) -> PreparedChunk:
    return _prepare(chunk)


ABOUT = b"prepared"


@contextmanager
def keep_chunks(engine: Engine, target: Path, about: dict[str, Any]) -> Iterator[Engine]:
    """The engine with a memory on the disk: it keeps each chunk that it makes until the block ends, and begins with the
    chunks that an unfinished build of the same set kept.

    `about` has the build's config and the digests of its inputs. Raises ConfigError while another process builds at
    `target`.
    """
    plan = {**about, "code": code_digest(data_gen, revelator)}
    with work_folder(target, plan, "*.parquet", "building this set") as folder:
        yield _resume_from(engine, folder)


def _resume_from(engine: Engine, folder: Path) -> Engine:
    def resume(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
        while chunk := _read_chunk(folder, first):
            yield chunk
            first += 1
        for made in engine(prepare, first):
            _write_chunk(folder, made)
            yield made

    return resume


def _write_chunk(folder: Path, prepared: PreparedChunk) -> None:
    about = asdict(replace(prepared, records=make_table([])))
    del about["records"]
    sink = pyarrow.BufferOutputStream()
    table = prepared.records.replace_schema_metadata({ABOUT: json.dumps(about)})
    parquet.write_table(table, sink, compression="zstd")
    content = sink.getvalue().to_pybytes()
    write_bytes(folder / f"{prepared.chunk:08}.{_short_digest(content)}.parquet", content)


def _short_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _read_chunk(folder: Path, number: int) -> PreparedChunk | None:
    """A kept chunk; None where there is none that is whole."""
    path = next(folder.glob(f"{number:08}.*.parquet"), None)
    if path is None or _short_digest(content := path.read_bytes()) != path.suffixes[0][1:]:
        return None
    table = parquet.read_table(pyarrow.BufferReader(content))
    about = json.loads(table.schema.metadata[ABOUT])
    about["candidates"] = tuple(map(_read_candidate, about["candidates"]))
    about["refused"] = tuple(RefusedRow(**row) for row in about["refused"])
    about["skipped"] = tuple(about["skipped"])
    return PreparedChunk(**about, records=table.replace_schema_metadata(None))


def _read_candidate(row: dict[str, Any]) -> Candidate:
    others = tuple(map(_read_candidate, row["others"]))
    return Candidate(**{**row, "records": tuple(row["records"]), "others": others})
