"""What the clients put again, against a gRPC server on loopback that fails as it is told."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from revelator import errors
from revelator.client import AsyncClient, Client
from revelator.retries import Attempts
from revelator.trace import Event, Trace
from revelator.wire import choose_grpc_code, write_error

FULL = errors.Overloaded("full", retry_after_ms=1)
DOWN = errors.Unavailable("restarting")
LEFT = [errors.InvalidRequest("no"), errors.ServingError("fault"), errors.Cancelled("gone")]
LEFT += [errors.DeadlineExceeded("late"), errors.Unavailable("refused", final=True)]
TRACE = Trace("Who?", "auto", answer="Ada", answers=["Ada"])
EVENTS = [Event(kind, None, 0.0, {}) for kind in ("begun", "finished")]


@dataclass
class Failing:
    """`faults` are given one after the other, then answers; `calls` counts what came, and `deadlines` are those that
    came along, in milliseconds. Of a stream, a fault in `midway` follows its first event. A call waits for `gate`
    before its answer, a stream after its first event; `left` is set when a call has ended, or its client went away."""

    faults: list[errors.ServingError] = field(default_factory=list)
    midway: errors.ServingError | None = None
    calls: int = 0
    deadlines: list[int | None] = field(default_factory=list)
    url: str = ""
    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    def answer(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._begin(request, context)
        self.gate.wait(20)
        return response(answer=TRACE.answer, trace=json.dumps(TRACE.to_json()))

    def stream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        self._begin(next(requests), context)
        for event in EVENTS:
            if event.kind == "finished":
                self.gate.wait(20)
            yield service_pb2.ModelStreamInferResponse(infer_response=response(event=json.dumps(event.to_json())))
            if self.midway:
                yield service_pb2.ModelStreamInferResponse(error_message=write_error(self.midway))

    def _begin(self, request: Any, context: grpc.ServicerContext) -> None:
        self.calls += 1
        sent = request.parameters
        self.deadlines.append(sent["deadline_ms"].int64_param if "deadline_ms" in sent else None)
        self.begun.set()
        context.add_callback(lambda: context.is_active() or self.left.set())
        if self.faults:
            fault = self.faults.pop(0)
            code = "CANCELLED" if choose_grpc_code(fault) == "DEADLINE_EXCEEDED" else choose_grpc_code(fault)
            context.abort(grpc.StatusCode[code], write_error(fault))


def response(**texts: str) -> Any:
    made = service_pb2.ModelInferResponse(model_name="executor", model_version="1")
    for name, text in texts.items():
        made.outputs.add(name=name, datatype="BYTES", shape=[1])
        made.raw_output_contents.append(serialize_byte_tensor(np.array([text.encode()], dtype=object)).item())
    return made


@contextmanager
def failing(*faults: errors.ServingError, midway: errors.ServingError | None = None) -> Iterator[Failing]:
    service = Failing(list(faults), midway)
    service.gate.set()
    read = service_pb2.ModelInferRequest.FromString
    handlers = {
        "ModelInfer": grpc.unary_unary_rpc_method_handler(
            service.answer, read, service_pb2.ModelInferResponse.SerializeToString
        ),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
            service.stream, read, service_pb2.ModelStreamInferResponse.SerializeToString
        ),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers)])
    service.url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield service
    service.gate.set()
    server.stop(None)


def blocking(url: str, way: str, **settings: Any) -> object:
    with Client(url, **settings) as client:
        return client.ask("Who?").answer if way == "ask" else [event.kind for event in client.stream("Who?")]


def awaited(url: str, way: str, **settings: Any) -> object:
    async def run() -> object:
        async with AsyncClient(url, **settings) as client:
            if way == "ask":
                return (await client.ask("Who?")).answer
            return [event.kind async for event in client.stream("Who?")]

    return asyncio.run(run())


EXPECTED = {"ask": "Ada", "stream": ["begun", "finished"]}


@pytest.mark.parametrize("way", EXPECTED)
@pytest.mark.parametrize("call", [blocking, awaited])
def test_a_server_that_was_full_or_away_is_asked_again(call, way):
    with failing(FULL, DOWN) as server:
        assert call(server.url, way, retries=2) == EXPECTED[way]
        assert server.calls == 3


@pytest.mark.parametrize("way", EXPECTED)
@pytest.mark.parametrize("call", [blocking, awaited])
def test_the_number_of_attempts_is_bounded(call, way):
    with failing(*[FULL] * 9) as server:
        with pytest.raises(errors.Overloaded):
            call(server.url, way, retries=2)
        assert server.calls == 3
        with pytest.raises(errors.Overloaded):
            call(server.url, way)
        assert server.calls == 4


@pytest.mark.parametrize("error", LEFT, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("way", EXPECTED)
@pytest.mark.parametrize("call", [blocking, awaited])
def test_what_another_attempt_would_meet_again_is_raised_at_once(call, way, error):
    with failing(error) as server:
        with pytest.raises(type(error), match=error.message):
            call(server.url, way, retries=5)
        assert server.calls == 1


@pytest.mark.parametrize("call", [blocking, awaited])
def test_a_pause_that_the_timeout_has_no_room_for_is_not_begun(call):
    with failing(errors.Overloaded("full", retry_after_ms=60_000)) as server:
        with pytest.raises(errors.Overloaded):
            call(server.url, "ask", retries=5, timeout=20)
        assert server.calls == 1


@pytest.mark.parametrize("way", EXPECTED)
@pytest.mark.parametrize("call", [blocking, awaited])
def test_the_timeout_is_sent_as_the_deadline_and_an_attempt_has_what_is_left_of_it(call, way):
    with failing(FULL) as server:
        assert call(server.url, way, retries=1, timeout=20) == EXPECTED[way]
        first, second = server.deadlines
        assert first == 20_000 and 0 < second < first
        call(server.url, way)
        assert server.deadlines[2:] == [None], "without a timeout the server's own deadline holds"


@pytest.mark.parametrize("call", [blocking, awaited])
def test_a_stream_that_has_begun_is_not_put_again(call):
    with failing(midway=FULL) as server:
        with pytest.raises(errors.Overloaded):
            call(server.url, "stream", retries=5)
        assert server.calls == 1


@pytest.mark.parametrize("way", EXPECTED)
@pytest.mark.parametrize("call", [blocking, awaited])
def test_a_call_that_takes_too_long_is_out_of_time_and_not_put_again(call, way):
    with failing() as server:
        server.gate.clear()
        with pytest.raises(errors.DeadlineExceeded):
            call(server.url, way, retries=5, timeout=0.3)
        assert server.left.wait(20)
        assert server.deadlines == [300]


def test_closing_a_blocking_stream_cancels_it():
    with failing() as server, Client(server.url) as client:
        server.gate.clear()
        events = client.stream("Who?")
        assert next(events).kind == "begun"
        events.close()
        assert server.left.wait(20)


def test_a_client_that_is_closed_ends_the_calls_of_other_threads():
    with failing() as server, ThreadPoolExecutor(1) as thread:
        server.gate.clear()
        client = Client(server.url)
        asking = thread.submit(client.ask, "Who?")
        assert server.begun.wait(20)
        client.close()
        client.close()
        with pytest.raises(errors.Cancelled):
            asking.result(20)
        assert server.left.wait(20)


@pytest.mark.parametrize("call", ["client.ask('Who?')", "list(client.stream('Who?'))"])
def test_ctrl_c_cancels_a_blocking_call_on_the_server(call):
    code = f"""
import sys
from revelator.client import Client
with Client(sys.argv[1]) as client:
    try:
        {call}
    except KeyboardInterrupt:
        sys.stdin.read()
"""
    with failing() as server:
        server.gate.clear()
        with subprocess.Popen([sys.executable, "-c", code, server.url], stdin=subprocess.PIPE) as process:
            assert server.begun.wait(60)
            process.send_signal(signal.SIGINT)
            assert server.left.wait(20)  # while the program goes on


@given(st.floats(0, 1), st.none() | st.integers(1, 10_000), st.integers(1, 5))
def test_a_pause_is_what_the_server_asked_for_and_at_most_twice_that(chance, after, retries):
    attempts = Attempts(retries, 3_600, clock=lambda: 0.0, random=lambda: chance)
    for number in range(retries):
        asked = after / 1000 if after else 0.1 * 2**number
        assert asked <= attempts.choose_pause(errors.Overloaded("full", retry_after_ms=after)) <= 2 * asked
    with pytest.raises(errors.Overloaded):
        attempts.choose_pause(errors.Overloaded("full", retry_after_ms=after))
