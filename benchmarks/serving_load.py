"""The executor's loop under load on a real Triton server: `python benchmarks/serving_load.py`, about five minutes.

Part 1: requests of five calls, one after the other, of a leaf of 5 ms; the leaf is called over loopback gRPC (as the
executor does), by BLS with a pool of 256 threads, or is a sleep in the model's own process. Calls that wait for the
leaf are one batch, as they are for `retriever` and `revelator`; a last table has a leaf that answers each by itself,
as `generator` does.
Part 2: a model with a limit of 16 requests in flight is offered ten times what it can answer, with leaves of 20 ms and
of 100 ms, three instances of each: the shorter the leaf, the more requests a second ten times are.
Clients, server and stubs share the machine's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Mapping

from fixed.load import Caller, Load, quantile
from fixed.server import find_processes, measure_memory, serve_models

from serving import latency

LEVELS = (1, 16, 64)
CALLS = 5
LIMIT = 16
OVERLOAD = 10
AFTER = 4  # seconds: several answers of each client
INSTANCES = {"leaf": 3}  # of part 2: the 16 in flight wait little for each other's batches
WAYS = {"grpc": "loopback gRPC", "bls": "BLS", "process": "in process"}


async def compare_ways(url: str, ways: Mapping[str, str], seconds: float) -> None:
    print(f"{'client':16}{'at a time':>10}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'p99/p50':>9}{'n':>8}")
    for way, name in ways.items():
        async with Caller(url, way, question="q") as caller:
            for level in LEVELS:
                await caller.ask_steadily(level, 1.0)
                load = await caller.ask_steadily(level, seconds)
                assert not load.refused, load.refused.keys()
                p50, p99 = statistics.median(load.answered), quantile(load.answered, 0.99)
                row = f"{name:16}{level:10}{load.rate:12.1f}{p50:9.1f}{p99:9.1f}{p99 / p50:9.2f}"
                print(f"{row}{len(load.answered):8}", flush=True)


async def measure_overload(url: str, pid: int, seconds: float) -> None:
    async with Caller(url, "limited", question="q") as caller:
        await caller.ask_steadily(LIMIT, 2.0)
        alone, full = await caller.ask_steadily(1, 3.0), await caller.ask_steadily(LIMIT, 5.0)
        print(f"one at a time   {_format_times(alone.answered)}")
        print(
            f"{LIMIT} at a time   {_format_times(full.answered)}; {full.rate:.1f} requests/s are the capacity",
            flush=True,
        )
        held: list[dict[str, float]] = []
        watching = asyncio.create_task(_watch_memory(pid, held))
        load = await caller.ask_at_rate(OVERLOAD * full.rate, seconds)
        watching.cancel()
        after = await caller.ask_steadily(LIMIT, 1.0 + AFTER)
    _print_report(load, alone, full)
    began = min(after.ends) - min(after.answered) / 1000
    first, rest = (sum(low <= end - began < high for end in after.ends) for low, high in ((0, 1), (1, 1 + AFTER)))
    print(f"after it        {first} requests/s in the first second, {rest / AFTER:.1f} in the {AFTER} after it")
    tenth = max(1, len(held) // 10)
    parts = held[tenth : 2 * tenth], held[-tenth:]
    for name in held[0]:
        early, late = (statistics.median(row[name] for row in part) for part in parts)
        print(f"memory {name:9}{early:7.1f} MB in the second tenth of the time, {late:.1f} MB in the last")


def _print_report(load: Load, alone: Load, full: Load) -> None:
    refusals = [took for times in load.refused.values() for took in times]
    offered = (len(load.answered) + len(refusals)) / load.seconds
    times = offered / full.rate
    print(f"offered         {offered:.0f} requests/s for {load.seconds:.0f} s, {times:.1f} times the capacity")
    times = quantile(load.answered, 0.99) / quantile(alone.answered, 0.99)
    print(f"admitted        {_format_times(load.answered)}; {load.rate:.1f} requests/s; p99 {times:.2f} times unloaded")
    late = sum(took > 20 for took in refusals)
    print(f"refused         {_format_times(refusals)}; {', '.join(load.refused)}; {late} after more than 20 ms")


def _format_times(took: list[float]) -> str:
    middle = f"p50 {statistics.median(took):6.1f} ms, p99 {quantile(took, 0.99):6.1f} ms"
    return f"{middle}, longest {max(took):6.1f} ms, n={len(took)}"


async def _watch_memory(pid: int, held: list[dict[str, float]]) -> None:
    while True:
        held.append({name: measure_memory(process) for name, process in find_processes(pid).items()})
        await asyncio.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each row of part 1")
    parser.add_argument("--overload", type=float, default=60.0, help="seconds of overload; 0 leaves part 2 out")
    parser.add_argument("--leaf-ms", type=float, nargs="+", default=[20.0, 100.0], help="of the leaves of part 2")
    given = parser.parse_args()
    latency.tune_collector()  # a pause of the client's process would be counted as the server's
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    ways = {way: ("calls", {"way": way, "calls": CALLS, "seconds": 0.005, "max_in_flight": 4096}) for way in WAYS}
    with serve_models({"leaf": ("leaf", {"seconds": 0.005}), **ways}) as server:
        asyncio.run(compare_ways(server.url, WAYS, given.seconds))
    with serve_models({"leaf": ("single_leaf", {"seconds": 0.005}), "grpc": ways["grpc"]}) as server:
        print("\nthe leaf answers each call by itself")
        asyncio.run(compare_ways(server.url, {"grpc": WAYS["grpc"]}, given.seconds))
    for leaf_ms in given.leaf_ms if given.overload else ():
        limited = {"way": "grpc", "calls": CALLS, "seconds": 0, "max_in_flight": LIMIT}
        models = {"leaf": ("leaf", {"seconds": leaf_ms / 1000}), "limited": ("calls", limited)}
        with serve_models(models, INSTANCES) as server:
            print(f"\n{CALLS} calls of a leaf of {leaf_ms:g} ms, {LIMIT} requests in flight at most")
            asyncio.run(measure_overload(server.url, server.pid, given.overload))


if __name__ == "__main__":
    main()
