"""Prepared chunks of a build, kept on the disk beside the set (`.NAME.building`) until it is whole.

A build that was killed or failed goes on from its last kept chunk with the same command, on any engine
(`revelator.cluster`), to the same set. What was kept under another configuration, of other inputs or by other code is
thrown away. Each chunk is one file of gzipped JSON, whole or absent.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import data_gen
import revelator
from data_gen.prepare import PreparedChunk, Preparer, read_chunks
from revelator.cluster import Engine
from revelator.files import digest_code, lock_work_folder, write_bytes

CHUNKS = TypeAdapter(PreparedChunk)


@contextmanager
def prepare_and_keep(
    engine: Engine, prepare: Preparer, target: Path, about: dict[str, Any]
) -> Iterator[Iterator[PreparedChunk]]:
    """All chunks in order, beginning with those that an unfinished build of the same set kept. This process reads the
    sources, the engine prepares; each chunk that is made is kept until the block ends.

    `about` has the build's config and the digests of its inputs. Raises ConfigError while another process builds at
    `target`.
    """
    plan = {**about, "code": digest_code(data_gen, revelator)}
    with lock_work_folder(target, plan, "*.json.gz", "building this set") as folder:

        def resume() -> Iterator[PreparedChunk]:
            first = 0
            while chunk := _read_chunk(folder, first):
                yield chunk
                first += 1
            for made in engine(prepare, read_chunks(prepare.config, first)):
                write_bytes(_name_chunk(folder, made.chunk), gzip.compress(CHUNKS.dump_json(made), compresslevel=1))
                yield made

        yield resume()


def _name_chunk(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.json.gz"


def _read_chunk(folder: Path, number: int) -> PreparedChunk | None:
    """A kept chunk; None where there is none that is whole, as gzip's checksum tells."""
    try:
        return CHUNKS.validate_json(gzip.decompress(_name_chunk(folder, number).read_bytes()))
    except (OSError, EOFError, zlib.error):
        return None
