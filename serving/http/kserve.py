"""KServe's inference protocol, version 2, over HTTP: the part that a question needs.

POST /v2/models/executor/infer                     BYTES tensors `question` and `options` as JSON
GET  /v2/models/executor, /v2/models/executor/ready, /v2/health/live, /v2/health/ready
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from revelator.errors import InvalidRequest
from serving.http.protection import Body, describe_error, make_retry_headers, read_body, read_groups, write_error_json

BODY_BYTES = 1 << 23  # options of 4 MB, escaped
MODEL = "/v2/models/executor"
INPUTS, OUTPUTS = ("question", "options"), ("answer", "trace")
Texts = dict[str, str]  # of each output
# question, options, deadline_ms, request id, and the groups of who asks
Ask = Callable[[str, str, float | None, str, frozenset[str]], Coroutine[Any, Any, Texts]]
Ready = Callable[[], Awaitable[bool]]
Result = TypeVar("Result")


class Tensor(Body):
    """One string."""

    name: Literal["question", "options"]
    datatype: Literal["BYTES"]
    shape: list[Literal[1]] = Field(min_length=1, max_length=1)
    data: list[str] = Field(min_length=1, max_length=1)


class Output(BaseModel):
    """An output that is asked for; no parameter changes it."""

    model_config = ConfigDict(strict=True)

    name: Literal["answer", "trace"]


class Parameters(Body):
    deadline_ms: float | None = Field(None, gt=0, allow_inf_nan=False)


class Inference(Body):
    """The body of `POST …/infer`."""

    id: str = Field("", max_length=256)
    inputs: list[Tensor] = Field(min_length=1, max_length=2)
    outputs: list[Output] | None = Field(None, max_length=2)
    parameters: Parameters = Parameters(deadline_ms=None)


def make_routes(ask: Ask, ready: Ready) -> list[Route]:
    """The routes over `ask`, which answers a question; `ready` says whether the executor is there. A question whose
    client leaves is cancelled."""

    async def infer(request: Request) -> Response:
        asked = await read_body(request, Inference, BODY_BYTES)
        inputs = {tensor.name: tensor.data[0] for tensor in asked.inputs}
        if len(inputs) < len(asked.inputs):
            raise InvalidRequest("an input is given twice", where="inputs", hint="give question and options once each")
        if "question" not in inputs:
            hint = '{"name": "question", "datatype": "BYTES", "shape": [1], "data": ["…"]}'
            raise InvalidRequest("the input question is missing", where="inputs", hint=hint)
        options, groups = inputs.get("options", ""), read_groups(request)
        work = ask(inputs["question"], options, asked.parameters.deadline_ms, asked.id, groups)
        texts = await end_with_client(request, work)
        wanted = [output.name for output in asked.outputs or ()] or OUTPUTS
        tensors = [{"name": n, "datatype": "BYTES", "shape": [1], "data": [texts[n]]} for n in wanted]
        named = {"id": asked.id} if asked.id else {}
        return JSONResponse({**named, "model_name": "executor", "model_version": "1", "outputs": tensors})

    async def answer_live(request: Request) -> Response:
        return Response()

    async def answer_ready(request: Request) -> Response:
        return Response(status_code=200 if await ready() else 400)

    async def describe(request: Request) -> Response:
        tensors = [[{"name": n, "datatype": "BYTES", "shape": [1]} for n in names] for names in (INPUTS, OUTPUTS)]
        about = {"name": "executor", "versions": ["1"], "platform": "python"}
        return JSONResponse({**about, "inputs": tensors[0], "outputs": tensors[1]})

    return [
        Route(f"{MODEL}/infer", infer, methods=["POST"]),
        Route("/v2/health/live", answer_live),
        Route("/v2/health/ready", answer_ready),
        Route(f"{MODEL}/ready", answer_ready),
        Route(MODEL, describe),
    ]


async def end_with_client(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The work's result. Cancels it when the client goes away, and raises ClientDisconnect."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_await_end(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _await_end(request: Request) -> None:
    """Returns when the client of a request whose body was read is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def answer_error(request: Request, error: Exception) -> Response:
    """`error` is a sentence, as KServe's clients read it; `detail` what our own raise."""
    described, status = describe_error(error)
    body = {"error": str(described), "detail": write_error_json(described, status)}
    return JSONResponse(body, status, make_retry_headers(described))
