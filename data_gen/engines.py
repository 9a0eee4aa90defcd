"""What prepares the rows of a build: this process, or a Ray cluster, which may be one of this machine's processes.

An engine is a function. It takes a `Preparer` and the number of a chunk, and gives that chunk and all later ones, each
prepared, in order. This process reads the sources; a cluster only prepares. Ray runs again what was lost with a node.

Prepared chunks are kept beside the set (`.NAME.building`) until it is whole. A build that was killed or
failed goes on from its last kept chunk with the same command, on any engine, to the same set. What was kept under
another configuration, of other inputs or by other code is thrown away. Each chunk is one file of gzipped JSON, whole or
absent.
"""

from __future__ import annotations

import gzip
import logging
import os
import socket
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import data_gen
import revelator
from data_gen.prepare import PreparedChunk, Preparer, read_chunks
from revelator.errors import ConfigError, DataError
from revelator.files import digest_code, lock_work_folder, write_bytes

Engine = Callable[[Preparer, int], Iterator[PreparedChunk]]

AHEAD = 3  # chunks a CPU that are prepared or under way before `build` takes the first: they bound the memory
REACH_SECONDS = 5


def choose_engine(name: str) -> Engine:
    """`local` is this process. `ray` is the cluster that RAY_ADDRESS names, one of this machine, or one made for the
    build. Raises ConfigError where Ray is not installed."""
    if name == "local":
        return prepare_here
    try:
        import ray  # noqa: F401
    except ImportError as error:
        hint = "pip install 'revelator[ray]'"
        raise ConfigError(f"Ray is not installed: {error}", where="--engine ray", hint=hint) from error
    return _run_on_ray


def prepare_here(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    return map(prepare, read_chunks(prepare.config, first))


def _run_on_ray(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    import ray

    is_connected = ray.is_initialized()
    if not is_connected:
        _connect_to_ray()
    try:
        shared, run = ray.put(prepare), ray.remote(Preparer.__call__)
        most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        under_way: deque[Any] = deque()
        for chunk in read_chunks(prepare.config, first):
            under_way.append(run.remote(shared, chunk))
            if len(under_way) > most:
                yield ray.get(under_way.popleft())
        yield from map(ray.get, under_way)
    finally:
        if not is_connected:
            ray.shutdown()


def _connect_to_ray() -> None:
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
def cache_chunks(engine: Engine, target: Path, about: dict[str, Any]) -> Iterator[Engine]:
    """The engine with a cache on the disk: it keeps each chunk that it makes until the block ends, and begins with the
    chunks that an unfinished build of the same set kept.

    `about` has the build's config and the digests of its inputs. Raises ConfigError while another process builds at
    `target`.
    """
    plan = {**about, "code": digest_code(data_gen, revelator)}
    with lock_work_folder(target, plan, "*.json.gz", "building this set") as folder:

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
