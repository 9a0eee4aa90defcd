"""Where the pieces of a long job are worked on: in this process, or by the nodes of a Ray cluster.

An engine is a function like `map`: it does a piece of work with each item, and gives the results in the items' order,
not far ahead of whoever takes them. This process reads the items and writes the results, so what is written, resumed
and committed is the same on both engines.

On a cluster there is a worker (an actor) for each CPU, started when there is an item for it. It holds what the work
opens, as a model, until the next work but one. Ray starts the workers of a lost node elsewhere, and repeats what they
had not handed over. Ray Data (`map_batches`) is not used: it cuts its batches where its blocks end, and a vector's last
bits may depend on the batch in which it was made.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from revelator.errors import ConfigError, DataError, RevelatorError

T = TypeVar("T")
R = TypeVar("R")

REACH_SECONDS = 5
WORKS = 2  # that a worker holds: a build reads documents and makes vectors at the same time
RETRIES = 3  # of an item whose worker is lost: a node may die, but an item that kills each worker ends the job
AHEAD = 4  # items a worker that are done or under way before the first is taken: they bound the memory


class Engine(Protocol):
    """Does `work` with each item; a cluster pickles both. Raises what the work raises."""

    def __call__(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]: ...


def work_here(work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
    return map(work, items)


@contextmanager
def open_engine(name: str, *packages: str) -> Iterator[Engine]:
    """`local` is this process. `ray` is the cluster that RAY_ADDRESS names, one of this machine, or one made until the
    block ends. Raises ConfigError where Ray is not installed; DataError where there is no cluster, and for a node that
    lacks the `packages` that the work is of, or has other code of them."""
    if name == "local":
        yield work_here
        return
    try:
        import ray
    except ImportError as error:
        hint = "pip install 'revelator[ray]'"
        raise ConfigError(f"Ray is not installed: {error}", where="--engine ray", hint=hint) from error
    is_connected = ray.is_initialized()
    if not is_connected:
        _connect()
    try:
        _check_nodes(packages)
        yield _Pool()
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


def _list_nodes() -> list[dict[str, Any]]:
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    if not nodes:
        hint = "add a node: ray start --address HEAD:6379"
        raise DataError("no node of the Ray cluster has a CPU for this", where="--engine ray", hint=hint)
    return nodes


def _stay_on(node: str, *, soft: bool) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=soft)


def _check_nodes(packages: Sequence[str]) -> None:
    """Raises DataError for a node that cannot import these packages, or has other code of them."""
    import ray

    def digest() -> tuple[str, str]:  # within a function: it travels by its code, and finds out there what is missing
        try:
            return str(import_module("revelator.files").digest_code(*map(import_module, packages))), ""
        except ImportError as error:
            return "", f"cannot run revelator: {error}"

    check = ray.remote(num_cpus=0, max_retries=0)(digest)
    found = [
        (node["NodeManagerAddress"], check.options(scheduling_strategy=_stay_on(node["NodeID"], soft=False)).remote())
        for node in _list_nodes()
    ]
    hint = "install there the release that this machine has, with the same extras"
    for address, answer in found:
        release, fault = _fetch(answer)
        if fault or release != digest()[0]:
            reason = fault or "has another release of revelator"
            raise DataError(f"this Ray node {reason}", where=address, hint=hint)


class _Worker:
    """Holds the latest works, with what they have opened."""

    def __init__(self, folder: str) -> None:
        with suppress(OSError):  # of whoever started the job: relative paths lead from there
            os.chdir(folder)
        self._works: dict[str, Callable[[Any], Any]] = {}

    def run(self, name: str, shared: Sequence[Any], item: Any) -> Any:
        import ray

        if name not in self._works:
            self._works[name] = ray.get(shared[0])
            for old in [*self._works][:-WORKS]:
                del self._works[old]
        return self._works[name](item)


class _Pool:
    """An engine: the workers of a cluster."""

    def __init__(self) -> None:
        import ray

        self._start = ray.remote(max_restarts=-1, max_task_retries=RETRIES)(_Worker)
        self._places = [node for _, node in sorted(_list_places())]
        self._workers: list[Any] = []

    def _open_worker(self, number: int) -> Any:
        if number == len(self._workers):
            place = _stay_on(self._places[number], soft=True)
            self._workers.append(self._start.options(scheduling_strategy=place).remote(str(Path.cwd())))
        return self._workers[number]

    def __call__(self, work: Callable[[T], R], items: Iterable[T], /) -> Iterator[R]:
        import ray

        name, shared, count = uuid4().hex, [ray.put(work)], len(self._places)
        free = deque([*range(count)] * 2)  # a second item each, so that no worker waits for this process
        busy: dict[Any, int] = {}  # the worker's number by its item's result
        under_way: deque[Any] = deque()
        for item in items:
            if not free:
                [done], _ = ray.wait([*busy], fetch_local=False)
                free.append(busy.pop(done))
            number = free.popleft()
            result = self._open_worker(number).run.remote(name, shared, item)
            busy[result] = number
            under_way.append(result)
            while under_way and (under_way[0] not in busy or len(under_way) > AHEAD * count):
                yield _fetch(under_way.popleft())
        yield from map(_fetch, under_way)


def _list_places() -> Iterator[tuple[int, str]]:
    """A node's id for each of its CPUs, with the CPU's number: sorted, they go around the nodes."""
    for node in _list_nodes():
        yield from ((number, node["NodeID"]) for number in range(max(1, int(node["Resources"]["CPU"]))))


def _fetch(result: Any) -> Any:
    import ray

    try:
        return ray.get(result)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from (None if isinstance(error.cause, RevelatorError) else error)
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"a worker of the Ray cluster was lost again and again: {reason}", where="--engine ray"
        ) from error
