"""Prepares the rows of a build on a Ray cluster, with Ray Data.

One task reads the sources, in order, and hands chunks on as a stream; the tasks that prepare them run wherever the
cluster has a CPU; this process takes what they made in the order of the chunks. Ray runs again what was lost with a
node, and reading gives the same chunks again, so the set is that of the local engine. Every node needs this package,
and the sources under the same paths.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
from collections.abc import Iterator

import pyarrow
import ray
from ray.data import DataContext, Dataset, Datasource, ReadTask, read_datasource
from ray.data.block import BlockMetadata

from data_gen.config import SetConfig
from data_gen.prepare import PreparedChunk, Preparer, read_chunks
from revelator.errors import DataError, RevelatorError

READING = 0.01  # of a CPU: so that reading and preparing are two tasks, and fit on one CPU
PREPARING = 1 - READING
REACH_SECONDS = 5


class _Chunks(Datasource):
    """The chunks of a configuration's sources, pickled, a block each; an error of a source is the last one."""

    def __init__(self, config: SetConfig, first: int) -> None:
        super().__init__()
        self._config = config
        self._first = first

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
        return [ReadTask(self._read, unknown)]

    def estimate_inmemory_data_size(self) -> None:
        return None

    def _read(self) -> Iterator[pyarrow.Table]:
        try:
            for chunk in read_chunks(self._config, self._first):
                yield pyarrow.table({"chunk": [pickle.dumps(chunk)]})
        except RevelatorError as error:
            yield pyarrow.table({"chunk": [pickle.dumps(error)]})


def run_on_ray(prepare: Preparer, first: int) -> Iterator[PreparedChunk]:
    """The engine `ray`: on the cluster that RAY_ADDRESS names, one of this machine, or one made for the build."""
    connected = ray.is_initialized()
    if not connected:
        _connect()
    try:
        for number, row in enumerate(_make_dataset(prepare, first).iter_rows(), first):
            prepared = pickle.loads(row["prepared"])
            if isinstance(prepared, RevelatorError):
                raise prepared
            if prepared.chunk != number:
                raise DataError(f"chunk {prepared.chunk} came in the place of chunk {number}", where="--engine ray")
            yield prepared
    finally:
        if not connected:
            ray.shutdown()


def _connect() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        _reach(os.environ.get("RAY_ADDRESS", ""))
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        place = os.environ.get("RAY_ADDRESS", "--engine ray")
        raise DataError(f"no Ray cluster: {error}", where=place, hint="is it running? ray status") from error


def _reach(address: str) -> None:
    """Raises OSError where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host, int(port)), REACH_SECONDS).close()


def _make_dataset(prepare: Preparer, first: int) -> Dataset:
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = DataContext.get_current()
    context.execution_options.preserve_order = True
    context.target_max_block_size = 1  # byte: every chunk stays a block, and a task, of its own
    context.enable_progress_bars = False  # the build shows its own

    def prepare_row(row: dict[str, bytes]) -> dict[str, bytes]:
        chunk = pickle.loads(row["chunk"])
        return {"prepared": pickle.dumps(chunk if isinstance(chunk, RevelatorError) else prepare(chunk))}

    chunks = read_datasource(_Chunks(prepare.config, first), override_num_blocks=1, num_cpus=READING)
    return chunks.map(prepare_row, num_cpus=PREPARING)
