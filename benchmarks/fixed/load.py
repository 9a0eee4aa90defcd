"""Load on a Triton model: clients that ask one question after the other.

Requests are bytes made once and answers are not read, so that the two cores are the server's as far as can be.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
from tritonclient.grpc import service_pb2

METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass
class Load:
    """Milliseconds of the requests that were answered, and that were not, by gRPC code."""

    answered: list[float] = field(default_factory=list)
    refused: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return len(self.answered) / self.seconds


def quantile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


class Caller:
    """A channel to one model."""

    def __init__(self, url: str, model: str, **inputs: str) -> None:
        self._channel = grpc.aio.insecure_channel(url, options=[("grpc.enable_http_proxy", 0)])
        request = service_pb2.ModelInferRequest(model_name=model)
        for name, value in inputs.items():
            request.inputs.add(name=name, datatype="BYTES", shape=[1]).contents.bytes_contents.append(value.encode())
        self._request = request.SerializeToString()
        self._infer = self._channel.unary_unary(METHOD)

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._channel.close()

    async def ask(self, load: Load) -> None:
        began = time.perf_counter()
        try:
            await self._infer(self._request)
        except grpc.aio.AioRpcError as error:
            load.refused.setdefault(error.code().name, []).append((time.perf_counter() - began) * 1000)
            return
        load.answered.append((time.perf_counter() - began) * 1000)

    async def ask_steadily(self, clients: int, seconds: float) -> Load:
        """`clients` that each ask again as soon as they are answered."""
        load, began = Load(), time.perf_counter()

        async def client() -> None:
            while time.perf_counter() - began < seconds:
                await self.ask(load)

        await asyncio.gather(*(client() for _ in range(clients)))
        load.seconds = time.perf_counter() - began
        return load
