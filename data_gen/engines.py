"""What prepares the rows of a build: this process, several processes of this machine, or a Ray cluster.

An engine is a function. It takes a `Preparer` and the number of a chunk, and gives that chunk and all later ones, each
prepared, in order. This process reads the sources; the others only prepare. Ray runs again what was lost with a node.

Prepared chunks are kept beside the set (`.NAME.building`) until it is whole. A build that was killed or
failed goes on from its last kept chunk with the same command, on any engine, to the same set. What was kept under
another configuration, of other inputs or by other code is thrown away. Each chunk is one file of gzipped JSON, whole or
absent.
"""

from __future__ import annotations

import gzip
import logging
import multiprocessing
import os
import signal
import socket
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import data_gen
import revelator
from data_gen.prepare import Chunk, PreparedChunk, Preparer, read_chunks
from revelator.errors import ConfigError, DataError
from revelator.files import code_digest, work_folder, write_bytes

Engine = Callable[[Preparer, int], Iterator[PreparedChunk]]

AHEAD = 3  # chunks a process that are prepared or under way before the gate takes the first: they bound the memory
REACH_SECONDS = 5


def choose_engine(name: str, workers: int = 1) -> Engine:
    """`local` has `workers` processes beside the one that reads and writes; for 1, that one does it all. `ray` is the
    cluster that RAY_ADDRESS names, one of this machine, or one made for the build.

    Raises ConfigError for workers of `ray`, and where Ray is not installed.
    """
    if name == "local":
        return run_here if workers == 1 else partial(_run_in_processes, workers)
    if workers != 1:
        raise ConfigError("is of the engine local: Ray uses every CPU of its cluster", where="--workers")
    try:
        import ray  # noqa: F401
    except ImportError as error:
        hint = "pip install 'revelator[ray]'"
        raise ConfigError(f"Ray is not installed: {error}", where="--engine ray", hint=hint) from error
    return _run_on_ray


def run_here(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    return map(prepare, read_chunks(prepare.config, first))


def _run_in_processes(workers: int, prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, context, _start_worker, (prepare,)) as pool:
            chunks = read_chunks(prepare.config, first)
            yield from _run_ahead(
                chunks, AHEAD * workers, lambda chunk: pool.submit(_prepare_chunk, chunk), Future.result
            )
    except BrokenProcessPool as error:
        raise DataError(
            "a process that prepared rows was ended from outside",
            where=f"--workers {workers}",
            hint="often the machine ran out of memory: free some, or give fewer workers; the build then goes on",
        ) from error


def _run_ahead(
    chunks: Iterable[Chunk], most: int, submit: Callable[[Chunk], Any], wait: Callable[[Any], PreparedChunk]
) -> Iterator[PreparedChunk]:
    """What is made of the chunks, in order; at most so many are under way."""
    under_way: deque[Any] = deque()
    for chunk in chunks:
        under_way.append(submit(chunk))
        if len(under_way) > most:
            yield wait(under_way.popleft())
    yield from map(wait, under_way)


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


def _run_on_ray(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    import ray

    is_connected = ray.is_initialized()
    if not is_connected:
        _connect()
    try:
        shared, run = ray.put(prepare), ray.remote(Preparer.__call__)
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield from _run_ahead(
            read_chunks(prepare.config, first), most, lambda chunk: run.remote(shared, chunk), ray.get
        )
    finally:
        if not is_connected:
            ray.shutdown()


def _connect() -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = os.environ.get("RAY_ADDRESS", "")
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdigit():  # where nothing listens, Ray itself would try for minutes
            socket.create_connection((host, int(port)), REACH_SECONDS).close()
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        place, hint = address or "--engine ray", "is it running? ray status"
        raise DataError(f"no Ray cluster: {error}", where=place, hint=hint) from error


CHUNKS = TypeAdapter(PreparedChunk)


@contextmanager
def keep_chunks(engine: Engine, target: Path, about: dict[str, Any]) -> Iterator[Engine]:
    """The engine with a memory on the disk: it keeps each chunk that it makes until the block ends, and begins with the
    chunks that an unfinished build of the same set kept.

    `about` has the build's config and the digests of its inputs. Raises ConfigError while another process builds at
    `target`.
    """
    plan = {**about, "code": code_digest(data_gen, revelator)}
    with work_folder(target, plan, "*.json.gz", "building this set") as folder:

        def resume(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
            while chunk := _read_chunk(folder, first):
                yield chunk
                first += 1
            for made in engine(prepare, first):
                write_bytes(_name_chunk(folder, made.chunk), gzip.compress(CHUNKS.dump_json(made), compresslevel=1))
                yield made

        yield resume


def _name_chunk(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.json.gz"


def _read_chunk(folder: Path, number: int) -> PreparedChunk | None:
    """A kept chunk; None where there is none that is whole, as gzip's checksum tells."""
    try:
        return CHUNKS.validate_json(gzip.decompress(_name_chunk(folder, number).read_bytes()))
    except (OSError, EOFError, zlib.error):
        return None
