"""The inspector's routes.

    GET  /                          the page; /web/… its files
    GET  /api/servers               the servers that can be asked, and the versions they serve
    GET, POST /api/documents        those that are searched, and more (`serving.service.uploads`; the service alone)
    POST /api/check                 {"text", "language"} → what `revelator plan check` says, each fault with its excerpt
    POST /api/runs                  `inquiry.QuestionBody` → JSON lines: the events, then {"kind": "saved", …}
    GET  /api/runs                  the stored runs, newest first
    GET  /api/runs/{id}             one of them
    POST /api/runs/{id}/judgement   `judging.Judgement`, kept in MLflow; gives the run
    GET  /api/passages?id=…         a passage of the index, and those before and behind it in its document
    POST /v1/chat/completions                       OpenAI's, with GET /v1/models and /v1/models/{name} (`chat`)
    POST /v1/responses                              OpenAI's, too (`serving.inspector.responses`)

An error is {"error": {…}} with the fields of `write_error_json`, below /v1 with those of OpenAI's; of a stream that
has begun it is the last line.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from revelator.endpoints import LOOPBACK
from revelator.errors import DataError, RevelatorError
from revelator.plans.faults import excerpt
from revelator.plans.language import BNF, LANGUAGES, LanguageName
from serving.http.callers import Callers
from serving.http.protection import (
    Body,
    Protection,
    describe_error,
    make_retry_headers,
    read_body,
    read_groups,
    write_error_json,
)
from serving.inspector import chat
from serving.inspector.inquiry import Inquiry, QuestionBody, Server, await_first_event
from serving.inspector.judging import Judgement, keep_judgement
from serving.inspector.responses import Responses
from serving.inspector.runs import Runs
from serving.latency import write_json
from serving.protocols import Scope

WEB = Path(__file__).with_name("web")
MOST = 8_000  # characters: 32 leaves, which a plan may have, of 250 each


class Plan(Body):
    """The body of `POST /api/check`."""

    text: str = Field(max_length=MOST)
    language: LanguageName = BNF.name


def create_app(
    servers: Sequence[Server],
    runs: Runs,
    *,
    hosts: Collection[str] = LOOPBACK,
    token: str | None = None,
    tracking_uri: str | None = None,
) -> Starlette:
    """The ASGI application. `hosts` and `token`, which each caller sends, are those of `serving.http.protection`."""
    return Starlette(
        routes=make_routes(servers, runs, tracking_uri),
        middleware=[Middleware(Protection, hosts=hosts, callers=Callers(token))],
        exception_handlers=dict.fromkeys((RevelatorError, HTTPException, ClientDisconnect, Exception), answer_error),
    )


def make_routes(servers: Sequence[Server], runs: Runs, tracking_uri: str | None = None) -> list[BaseRoute]:
    """The routes of the page, its API and OpenAI's chat; `tracking_uri` is the MLflow server that gets the questions
    and keeps what people say of them."""
    by_name = {server.name: server for server in servers}
    pages = Pages(by_name, runs, tracking_uri)
    openai = chat.Chat(by_name, runs)
    return [
        Route("/", pages.page),
        Mount("/web", StaticFiles(directory=WEB)),
        Route("/api/servers", pages.list_servers),
        Route("/api/check", pages.check, methods=["POST"]),
        Route("/api/runs", pages.list_runs),
        Route("/api/runs", pages.ask, methods=["POST"]),
        Route("/api/runs/{id}", pages.read_run),
        Route("/api/runs/{id}/judgement", pages.judge, methods=["POST"]),
        Route("/api/passages", pages.read_passage),
        Route("/v1/models", openai.models),
        Route("/v1/models/{name}", openai.model),
        Route("/v1/chat/completions", openai.complete, methods=["POST"]),
        Route("/v1/responses", Responses(by_name, runs).create, methods=["POST"]),
    ]


class Pages:
    """What the page asks for."""

    def __init__(self, servers: Mapping[str, Server], runs: Runs, tracking_uri: str | None) -> None:
        self._servers = servers
        self._runs = runs
        self._tracking_uri = tracking_uri
        self._judging = asyncio.Lock()  # of two clicks the second adds to what the first has said

    async def page(self, request: Request) -> Response:
        return FileResponse(WEB / "index.html")

    async def list_servers(self, request: Request) -> Response:
        async def describe(server: Server) -> dict[str, Any]:
            described = {"name": server.name, "has_passages": server.sources is not None}
            described["takes_documents"] = server.takes_documents
            try:
                return described | {"models": await server.list_models(), "error": None}
            except RevelatorError as error:
                return described | {"models": {}, "error": str(error)}

        return JSONResponse(await asyncio.gather(*map(describe, self._servers.values())))

    async def check(self, request: Request) -> Response:
        plan = await read_body(request, Plan)
        return JSONResponse(await asyncio.to_thread(check_text, plan.text, plan.language))

    async def ask(self, request: Request) -> Response:
        inquiry = Inquiry(self._servers, self._runs, await read_body(request, QuestionBody), read_groups(request))
        events = await await_first_event(inquiry.stream_events())

        async def lines() -> AsyncIterator[str]:
            try:
                async for event in events:
                    yield await write_json(event.to_json()) + "\n"
                kept = inquiry.run if inquiry.saved else None
                saved = {"run": kept.id, "trace_id": kept.trace_id} if kept else {"run": None}
                yield _format_line({"kind": "saved", **saved})
            except Exception as error:
                run = inquiry.id if inquiry.saved else None
                yield _format_line({"kind": "error", "run": run, **write_error_json(*describe_error(error))})

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def list_runs(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._runs.list_summaries, read_groups(request)))

    async def read_run(self, request: Request) -> Response:
        run = await asyncio.to_thread(self._runs.read, request.path_params["id"], read_groups(request))
        return JSONResponse(run.to_json())

    async def read_passage(self, request: Request) -> Response:
        id, scope = request.query_params.get("id", ""), Scope(groups=read_groups(request))
        for server in self._servers.values():
            if server.sources is not None:
                return JSONResponse(asdict(await server.sources.within(scope).open_passage(id)))
        raise DataError("this page has no index", hint="open the page of the service that searched it")

    async def judge(self, request: Request) -> Response:
        said = await read_body(request, Judgement)
        async with self._judging:
            run = await asyncio.to_thread(self._runs.read, request.path_params["id"], read_groups(request))
            await asyncio.to_thread(keep_judgement, run, said, self._tracking_uri)
            judged = replace(run, judged=said.add_to(run.judged))
            await asyncio.to_thread(self._runs.save, judged)
        return JSONResponse(judged.to_json())


def _format_line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


async def answer_error(request: Request, error: Exception) -> Response:
    """In the form that the route's clients read."""
    described, status = describe_error(error)
    if request.url.path.startswith("/v1/"):
        body = chat.describe_error(described)
    else:
        body = {"error": write_error_json(described, status)}
    return JSONResponse(body, status, make_retry_headers(described))


def check_text(text: str, language: LanguageName) -> dict[str, Any]:
    """What `PlanLanguage.diagnose` says about a text, each diagnostic, advice too, with its `excerpt`.

    Offsets count characters (code points) from the start of the text; `excerpt` is the line with carets under it.
    """
    found = LANGUAGES[language].diagnose(text)
    return found | {
        kind: [{**d, "excerpt": excerpt(text, d["start"], d["end"])} for d in found[kind]]
        for kind in ("diagnostics", "advice")
    }
