"""What prepares the rows of a build: this process, several processes of this machine, or a Ray cluster.

An engine is a function that takes a `Preparer` and the number of a chunk, and gives what it made of each chunk from
that one on, in their order.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

from data_gen.prepare import Chunk, Prepared, Preparer, read_chunks
from revelator.errors import ConfigError, DataError

Engine = Callable[[Preparer, int], Iterator[Prepared]]

AHEAD = 3  # chunks a process that are prepared or under way before the gate takes the first: they bound the memory


def named(name: str, workers: int) -> Engine:
    """The engine `local` or `ray`. Raises ConfigError for workers of `ray`, and where Ray is not installed."""
    if name == "local":
        return local(workers)
    if workers != 1:
        raise ConfigError("is of the engine local: Ray uses every CPU of its cluster", where="--workers")
    try:
        from data_gen.ray_engine import on_ray
    except ImportError as error:
        hint = "pip install 'revelator[ray]'"
        raise ConfigError(f"Ray Data is not installed: {error}", where="--engine ray", hint=hint) from error
    return on_ray


def local(workers: int = 1) -> Engine:
    """This machine: `workers` processes beside the one that reads and writes; for 1, that one does it all."""
    return in_this_process if workers == 1 else partial(_in_processes, workers)


def in_this_process(prepare: Preparer, first: int) -> Iterator[Prepared]:
    return map(prepare, read_chunks(prepare.config, first))


def _in_processes(workers: int, prepare: Preparer, first: int) -> Iterator[Prepared]:
    context = multiprocessing.get_context("spawn")
    waiting: deque[Future[Prepared]] = deque()
    try:
        with ProcessPoolExecutor(workers, context, _start, (prepare,)) as pool:
            for chunk in read_chunks(prepare.config, first):
                waiting.append(pool.submit(_prepared, chunk))
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


def _start(prepare: Preparer) -> None:
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


def _prepared(chunk: Chunk) -> Prepared:
    return _prepare(chunk)
