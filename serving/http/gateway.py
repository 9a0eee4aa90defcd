"""The executor over HTTP: the part of KServe's inference protocol, version 2, that a question needs, and the metrics.

    POST /v2/models/executor/infer                     BYTES tensors `question` and `options` as JSON
    GET  /v2/models/executor, /v2/models/executor/ready, /v2/health/live, /v2/health/ready
    GET  /metrics                                      on a port of its own

Triton's own HTTP server is off: that of 2.51 ends with SIGSEGV on a request of half a million chunks, inflates what it
is sent, and lets a page of any site ask. Here a request is read whole before it goes on, within bounds of size and
time; it may be neither chunked nor compressed; and what goes on is a question to the executor, over gRPC, and nothing
else.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection
from typing import Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from revelator.client import Answer, AsyncClient, Options
from revelator.errors import DataError, InvalidRequest, RevelatorError
from revelator.trace import Trace
from revelator.wire import write_error
from serving.http.bodies import read_body
from serving.http.protection import Protection
from serving.http.statuses import described, headers_of

BODY_BYTES = 1 << 23  # options of 4 MB, escaped
MODEL = "/v2/models/executor"
METRICS_SECONDS = 5.0
INPUTS, OUTPUTS = ("question", "options"), ("answer", "trace")
Ready = Callable[[], Awaitable[bool]]


class Tensor(BaseModel):
    """One string."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["question", "options"]
    datatype: Literal["BYTES"]
    shape: list[Literal[1]] = Field(min_length=1, max_length=1)
    data: list[str] = Field(min_length=1, max_length=1)


class Output(BaseModel):
    """An output that is asked for; no parameter changes it."""

    model_config = ConfigDict(strict=True)

    name: Literal["answer", "trace"]


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    deadline_ms: float | None = Field(None, gt=0, allow_inf_nan=False)


class Inference(BaseModel):
    """The body of `POST …/infer`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field("", max_length=256)
    inputs: list[Tensor] = Field(min_length=1, max_length=2)
    outputs: list[Output] | None = Field(None, max_length=2)
    parameters: Parameters = Parameters(deadline_ms=None)

    def text(self, name: str) -> str | None:
        """Raises InvalidRequest where the input is given twice."""
        found = [tensor.data[0] for tensor in self.inputs if tensor.name == name]
        if len(found) > 1:
            raise InvalidRequest(f"the input {name} is given twice", where="inputs")
        return found[0] if found else None


def create_gateway(client: AsyncClient, ready: Ready, hosts: Collection[str]) -> Starlette:
    """The ASGI application that puts questions to `client`; `ready` says whether the executor is there. It is called by
    `hosts`, or by any IP address."""
    return _application(Gateway(client, ready).routes, hosts)


def create_metrics(url: str, hosts: Collection[str]) -> Starlette:
    """The ASGI application that hands on Triton's page of metrics, which `url` names."""

    async def page(request: Request) -> Response:
        try:
            async with httpx.AsyncClient(trust_env=False, timeout=METRICS_SECONDS) as asking:
                found = await asking.get(url)
        except httpx.HTTPError as error:
            return JSONResponse({"error": f"Triton's page of metrics: {type(error).__name__}"}, 503)
        return Response(found.content, found.status_code, media_type="text/plain; version=0.0.4")

    return _application([Route("/metrics", page)], hosts)


def _application(routes: list[Route], hosts: Collection[str]) -> Starlette:
    return Starlette(
        routes=routes,
        middleware=[Middleware(Protection, hosts=hosts, by_address=True), Middleware(Plain)],
        exception_handlers=dict.fromkeys((RevelatorError, HTTPException, ClientDisconnect, Exception), _told),
    )


class Plain:
    """ASGI middleware: a body says how long it is before it is read, and is what it says."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    @staticmethod
    def _refusal(request: Request) -> JSONResponse | None:
        length = request.headers.get("content-length", "0")
        if "transfer-encoding" in request.headers:
            return _refused(411, "a chunked body is not taken: send Content-Length")
        if request.headers.get("content-encoding", "identity") != "identity":
            return _refused(415, "a compressed body is not taken")
        if not length.isdigit() or len(length) > 10 or int(length) > BODY_BYTES:
            return _refused(413, f"a body has {BODY_BYTES:,} bytes at most")
        return None


class Gateway:
    def __init__(self, client: AsyncClient, ready: Ready) -> None:
        self._client = client
        self._ready = ready
        self.routes = [
            Route(f"{MODEL}/infer", self.infer, methods=["POST"]),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.ready),
            Route(f"{MODEL}/ready", self.ready),
            Route(MODEL, self.described),
        ]

    async def infer(self, request: Request) -> Response:
        asked = await read_body(request, Inference, BODY_BYTES)
        question = asked.text("question")
        if question is None:
            raise InvalidRequest("the input question is missing", where="inputs")
        options = read_options(asked.text("options") or "")
        if asked.parameters.deadline_ms:
            options["deadline_ms"] = asked.parameters.deadline_ms
        answer = await self._client.ask(question, **options)
        wanted = [output.name for output in asked.outputs or ()] or OUTPUTS
        tensors = [{"name": n, "datatype": "BYTES", "shape": [1], "data": [_text(answer, n)]} for n in wanted]
        named = {"id": asked.id} if asked.id else {}
        return JSONResponse({**named, "model_name": "executor", "model_version": "1", "outputs": tensors})

    async def live(self, request: Request) -> Response:
        return Response()

    async def ready(self, request: Request) -> Response:
        return Response(status_code=200 if await self._ready() else 400)

    async def described(self, request: Request) -> Response:
        tensors = [[{"name": n, "datatype": "BYTES", "shape": [1]} for n in names] for names in (INPUTS, OUTPUTS)]
        about = {"name": "executor", "versions": ["1"], "platform": "python"}
        return JSONResponse({**about, "inputs": tensors[0], "outputs": tensors[1]})


def read_options(text: str) -> Options:
    """The options of a question from their JSON. Raises InvalidRequest."""
    try:
        value = json.loads(text or "{}")
        if not isinstance(value, dict) or value.keys() - Options.__annotations__.keys():
            names = ", ".join(sorted(Options.__annotations__))
            raise InvalidRequest("the options must be a JSON object", where="options", hint=f"with any of {names}")
        if value.get("reuse") is not None:
            value["reuse"] = Trace.from_json(value["reuse"])
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"the options are not JSON: {error}", where="options") from error
    except DataError as error:
        raise InvalidRequest(f"option reuse: {error.message}", where="options", hint=error.hint) from error
    return Options(**{name: given for name, given in value.items() if given is not None})


def _text(answer: Answer, name: str) -> str:
    return answer.answer if name == "answer" else json.dumps(answer.trace.to_json(), ensure_ascii=False)


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status, {"Connection": "close"})


async def _told(request: Request, error: Exception) -> Response:
    """`error` is a sentence, as KServe's clients read it; `detail` what our own raise."""
    told, status = described(error)
    body = {"error": str(told), "detail": json.loads(write_error(told))}
    return JSONResponse(body, status, headers_of(told))
