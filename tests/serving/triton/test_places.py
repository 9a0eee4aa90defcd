"""Every admitted request is answered and gives its place back, whatever fails: the loop on a real Triton server."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException

from revelator.errors import RevelatorError, ServingError
from revelator.wire import read_error
from serving.triton import control
from serving.triton.installation import find_installation
from serving.triton.repository import find_templates
from serving.triton.server import TritonServer, read_ports

LIMIT = 2
WAIT = 30.0
CODE = Path(__file__).parent / "faulty_model.py"
FAULTS = [
    "SystemExit",
    "KeyboardInterrupt",
    "GeneratorExit",
    "in a task of its own",
    "before it begins",
    "an error without words",
    "an error that UTF-8 cannot write",
    "an answer that cannot be sent",
]
MODELS = {"answering": "executor", "streaming": "executor_stream"}


class Server:
    """A Triton server with the faulty model as one that answers and as one that streams; `log` is its event log."""

    def __init__(self, url: str, pid: int, log: Path) -> None:
        self.url, self.pid, self.log = url, pid, log

    def stubs(self) -> set[int]:
        return {child.pid for child in psutil.Process(self.pid).children()}

    async def ask(self, model: str, question: str, id: str = "", **parameters: str | int | bool | float) -> object:
        """The answer's last text, or the error."""
        inputs = [_input("question", question), _input("options", "")]
        request = {"model_name": model, "inputs": inputs, "request_id": id, "parameters": parameters or None}
        async with aio_client.InferenceServerClient(self.url) as client, asyncio.timeout(WAIT):
            if model == "answering":
                try:
                    return (await client.infer(**request)).as_numpy("answer")[0].decode()
                except InferenceServerException as error:
                    return read_error(error.status().removeprefix("StatusCode."), error.message())
            return await self._last(client, request)

    async def _last(self, client: aio_client.InferenceServerClient, request: dict) -> object:
        async def requests():
            yield request

        # to the stream's end: Triton before 25.04 can crash when a client leaves in the moment of the last event
        arrived = [answer async for answer in client.stream_infer(requests())]
        result, error = arrived[-1]
        if error is not None:
            return read_error("", error.message())
        event = result.as_numpy("event")[0].decode()
        assert event == "last"
        return event

    async def fill(self, model: str) -> None:
        """Answered only when no place is lost."""
        found = await asyncio.gather(*(self.ask(model, "together") for _ in range(LIMIT)))
        assert found == [{"answering": "fine", "streaming": "last"}[model]] * LIMIT


def _input(name: str, text: str) -> grpc_client.InferInput:
    return grpc_client.InferInput(name, [1], "BYTES").set_data_from_numpy(np.array([text.encode()], dtype=np.object_))


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    work = tmp_path_factory.mktemp("places")
    for model, like in MODELS.items():
        (version := work / "models" / model / "1").mkdir(parents=True)
        (version / "model.py").write_bytes(CODE.read_bytes())
        limit = f'parameters: {{ key: "max_in_flight" value: {{ string_value: "{LIMIT}" }} }}\n'
        config = (find_templates() / like / "config.pbtxt").read_text() + limit
        (version.parent / "config.pbtxt").write_text(config)
    log = work / "logs" / "events.jsonl"
    log.parent.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REVELATOR_EVENTS", str(log))
        with TritonServer(find_installation(work), work / "models", read_ports("auto"), work / "triton.log") as triton:
            for model in MODELS:
                control.load(work, triton.url, model, 1)
            yield Server(triton.url, triton.pid, log)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_whatever_fails_the_request_is_answered_and_its_place_is_free(server: Server, model: str, fault: str):
    processes = server.stubs()
    for _ in range(LIMIT + 1):
        assert isinstance(await server.ask(model, fault), RevelatorError)
    await server.fill(model)
    assert server.stubs() == processes


async def test_a_stream_with_an_event_that_cannot_be_sent_ends_with_an_error(server: Server):
    for _ in range(LIMIT + 1):
        assert isinstance(await server.ask("streaming", "an event that cannot be sent"), RevelatorError)
    await server.fill("streaming")


ODD = [1, True, 1e308, float("nan"), "", "00", "\0", "-" * 3, "é" * 100_000, "00-" + "g" * 32 + "-" + "0" * 16 + "-00"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
async def test_a_traceparent_that_names_no_trace_fails_nothing(server: Server, model: str, value):
    for _ in range(LIMIT + 1):
        assert await server.ask(model, "a question", traceparent=value) in ("fine", "last")
        refused = await server.ask(model, "a fault", traceparent=value)
        assert isinstance(refused, ServingError) and refused.message == "a fault"
    await server.fill(model)


@pytest.mark.parametrize("model", MODELS)
async def test_an_id_of_any_length_is_logged_in_part(server: Server, model: str):
    assert isinstance(await server.ask(model, "a fault", id="\n\U0001f40d" * 100_000), ServingError)
    assert await server.ask(model, "a question", id="\n\U0001f40d" * 100_000) in ("fine", "last")
    line = json.loads(server.log.read_text().splitlines()[-1])
    assert line["request"].startswith("\n\U0001f40d") and len(line["request"]) == 128


@pytest.mark.parametrize("place", ["a folder", "a full disk", "a pipe without a reader", "no folder"])
async def test_an_event_log_that_cannot_be_written_fails_nothing(server: Server, place: str):
    """Errors are what this model logs; they are refused as they would be with a log."""
    server.log.unlink(missing_ok=True)
    if place == "a folder":
        server.log.mkdir()
    elif place == "a full disk":
        server.log.symlink_to("/dev/full")
    elif place == "a pipe without a reader":
        os.mkfifo(server.log)
    else:
        server.log.parent.rename(server.log.parent.with_name("away"))
    try:
        for model in MODELS:
            for _ in range(LIMIT + 1):
                assert isinstance(await server.ask(model, "SystemExit"), RevelatorError)
            await server.fill(model)
    finally:
        if place == "a folder":
            server.log.rmdir()
        elif place == "no folder":
            server.log.parent.with_name("away").rename(server.log.parent)
        else:
            server.log.unlink()
    await server.ask("answering", "SystemExit")
    assert "SystemExit" in server.log.read_text()
