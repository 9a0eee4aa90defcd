"""The executor's loop under load on a real Triton server: `python benchmarks/serving_load.py`, about two minutes.

Requests of five calls, one after the other, of a leaf of 5 ms; the leaf is called over loopback gRPC (as the
executor does), by BLS with a pool of 256 threads, or is a sleep in the model's own process. Calls that wait for the
leaf are one batch, as they are for the inner models. Clients, server and stubs share the machine's cores.
`benchmarks/overload.py` measures more questions than a server can answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Mapping

from fixed.load import Caller, quantile
from fixed.server import serve_models

from serving import latency

LEVELS = (1, 16, 64)
CALLS = 5
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each row")
    given = parser.parse_args()
    latency.tune_collector()  # a pause of the client's process would be counted as the server's
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    ways = {way: ("calls", {"way": way, "calls": CALLS, "seconds": 0.005, "max_in_flight": 4096}) for way in WAYS}
    with serve_models({"leaf": ("leaf", {"seconds": 0.005}), **ways}) as server:
        asyncio.run(compare_ways(server.url, WAYS, given.seconds))


if __name__ == "__main__":
    main()
