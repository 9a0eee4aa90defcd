"""OpenAI's chat completions over the executor, so that chat front ends can ask it.

The question is the text of the last message, which must be the user's. What was said before tells what it refers to: a
language model that the server reads with writes it out in full, or the planner reads it with an earlier question; where
neither understands it, the reply asks back. Of earlier replies only what they answered counts (`read_answer`). Messages
of the system say in which language and tone a language model writes the text, and nothing else. Sampling parameters are
accepted and change nothing: a plan is written greedily and run. The model `revelator` is the first server; with
several, `revelator@NAME` is one of them.

The plan and each step's answer come as `reasoning_content`, which front ends show as thinking; the answer comes as
`content` (`write_reply`). In a stream the values come as soon as they are known, and the text as it is written
(`ReplyStream`). Every run is kept; a completion's id is `chatcmpl-ID`.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Discriminator, Tag
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from revelator.errors import DataError, InvalidRequest, RevelatorError
from revelator.tasks import PLANNING, Step
from revelator.trace import Event, Trace, join_answers
from serving.http.kserve import end_with_client
from serving.http.protection import choose_status, read_body, read_groups
from serving.inspector.inquiry import Inquiry, QuestionBody, Server, await_first_event
from serving.inspector.reply import ReplyStream, asked_nothing, read_answer, write_reply
from serving.inspector.runs import Runs

MODEL = "revelator"
ANSWERING = ("atomic", "direct", "merge")  # kinds of node whose answers may be the question's

Element = TypeVar("Element")
TextOr = Annotated[  # a fault of an element is told as such, and not that a text is needed
    Annotated[str, Tag("text")] | Annotated[list[Element], Tag("list")],
    Discriminator(lambda given: "list" if isinstance(given, list) else "text"),
]


class Part(BaseModel):
    """One piece of a message; only text can be asked."""

    type: Literal["text"]
    text: str


class Message(BaseModel):
    role: str
    content: TextOr[Part] | None = None

    @property
    def text(self) -> str:
        content = self.content or ""
        return content if isinstance(content, str) else "\n".join(part.text for part in content)


class StreamOptions(BaseModel):
    include_usage: bool = False


class CompletionRequest(BaseModel):
    """The body of a request. What would change the kind of answer is refused; other fields are accepted unread, but for
    `where`, our own: a filter of the documents."""

    model: str = MODEL
    messages: list[Message]
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    tools: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    where: str | None = None

    def read_question(self) -> str:
        """Returns the text of the last message. Raises InvalidRequest if it is not the user's, and for `n` other than
        1, tools, or a response format other than text."""
        if self.n not in (None, 1):
            raise InvalidRequest("there is one answer to a question", where="n", hint="leave n out")
        if self.tools:
            raise InvalidRequest("tools are not called", where="tools", hint="leave tools out")
        if self.response_format and self.response_format.get("type") != "text":
            raise InvalidRequest("answers are text", where="response_format", hint="leave response_format out")
        if not self.messages or self.messages[-1].role != "user":
            raise InvalidRequest("the last message must be the user's: it is the question", where="messages")
        return self.messages[-1].text

    def read_style(self) -> str:
        """Returns what the messages of the system, or of the developer, say: it counts for language and tone alone."""
        return "\n".join(message.text for message in self.messages if message.role in ("system", "developer"))


def read_history(messages: Sequence[Message]) -> list[Step]:
    """Each message of the user before the last with what was answered to it; others, and those that asked for nothing,
    say nothing about what a question refers to."""
    steps: list[Step] = []
    for message in messages[:-1]:
        if message.role == "user":
            steps.append(Step(message.text, ()))
        elif message.role == "assistant" and steps and asked_nothing(message.text):
            steps.pop()
        elif message.role == "assistant" and steps and (answer := read_answer(message.text)):
            steps[-1] = Step(steps[-1].question, (*steps[-1].answers, answer))
    return steps


def name_models(servers: Mapping[str, Server]) -> dict[str, str]:
    """The server that each model's name stands for."""
    named = [f"{MODEL}@{name}" for name in servers] if len(servers) > 1 else []
    return dict(zip([MODEL, *named], [next(iter(servers)), *servers], strict=False))


def find_server(servers: Mapping[str, Server], model: str) -> str:
    """Raises DataError for a model that there is not."""
    models = name_models(servers)
    if model not in models:
        raise DataError(f"there is no model {model!r}", where="model", hint=f"one of {', '.join(models)}")
    return models[model]


def _describe_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "revelator"}


class Chat:
    """The three routes."""

    def __init__(self, servers: Mapping[str, Server], runs: Runs) -> None:
        self._servers = servers
        self._runs = runs

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [*map(_describe_model, name_models(self._servers))]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        find_server(self._servers, name)
        return JSONResponse(_describe_model(name))

    async def complete(self, request: Request) -> Response:
        wanted = await read_body(request, CompletionRequest)
        inquiry = self._make_inquiry(wanted, request)
        if wanted.stream:
            events = await await_first_event(inquiry.stream_events())
            return StreamingResponse(_stream_chunks(inquiry, events, wanted), media_type="text/event-stream")
        await end_with_client(request, inquiry.run_whole())
        assert inquiry.run is not None
        content = write_reply(inquiry.run.trace, inquiry.wanted.history or (), inquiry.find_link)
        message = {"role": "assistant", "content": content, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        usage = count_tokens(inquiry.run.trace)
        return JSONResponse({**_make_head(inquiry, wanted, "chat.completion"), "choices": [choice], "usage": usage})

    def _make_inquiry(self, wanted: CompletionRequest, request: Request) -> Inquiry:
        server, question = find_server(self._servers, wanted.model), wanted.read_question()
        history, style = read_history(wanted.messages), wanted.read_style()
        asked = QuestionBody(question=question, server=server, history=history, style=style, where=wanted.where)
        return Inquiry(self._servers, self._runs, asked, read_groups(request), str(request.base_url))


async def _stream_chunks(
    inquiry: Inquiry, events: AsyncGenerator[Event, None], wanted: CompletionRequest
) -> AsyncIterator[str]:
    """Server-sent events: chunks, then [DONE]. An error after the beginning ends the stream as OpenAI's do."""
    head = _make_head(inquiry, wanted, "chat.completion.chunk")
    nodes: dict[str | None, dict[str, Any]] = {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return _format_event({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    reply = ReplyStream(inquiry.read_trace)
    try:
        async with aclosing(events) as stream:
            async for event in stream:
                node = nodes.setdefault(event.node, {})
                node |= event.changes
                if piece := reply.add(event):
                    yield chunk({"content": piece})
                if thought := _describe_progress(event, node):
                    yield chunk({"reasoning_content": thought})
        assert inquiry.run is not None
        yield chunk(
            {"content": reply.finish(write_reply(inquiry.run.trace, inquiry.wanted.history or (), inquiry.find_link))}
        )
    except RevelatorError as error:
        yield _format_event(describe_error(error))
        return
    yield chunk({}, "stop")
    if wanted.stream_options and wanted.stream_options.include_usage:
        yield _format_event({**head, "choices": [], "usage": count_tokens(inquiry.run.trace)})
    yield "data: [DONE]\n\n"


def _describe_progress(event: Event, node: Mapping[str, Any]) -> str | None:
    """A line about what has just been found: the plan, and the answer of each step."""
    if event.kind == "planned":
        return f"plan: {node['plan']}\n"
    if event.kind == "answered" and node["kind"] in ANSWERING and node["answers"]:
        return f"{node['asked'] or node['question']} → {join_answers(node['answers'])}\n"
    return None


def _make_head(inquiry: Inquiry, wanted: CompletionRequest, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{inquiry.id}", "object": kind, "created": int(time.time()), "model": wanted.model}


def count_tokens(trace: Trace) -> dict[str, Any]:
    """OpenAI's counts are those of the language model that reads and writes, 0 where there is none; `revelator` counts
    the tokens of who plans and judges, in the same way."""
    calls = [call for node in trace.nodes for call in node.list_calls()]
    planning = [call for call in calls if call["task"] in PLANNING]
    return _sum_tokens([call for call in calls if call["task"] not in PLANNING]) | {"revelator": _sum_tokens(planning)}


def _sum_tokens(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    read, written = (sum(call.get(name, 0) for call in calls) for name in ("tokens_in", "tokens_out"))
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _format_event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


_TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 429: "rate_limit_error"}


def describe_error(error: RevelatorError) -> dict[str, Any]:
    """OpenAI's shape: what the request named wrong is `param`, the kind of the error `code`."""
    status = choose_status(error)
    kind = _TYPES.get(status, "server_error")
    param = error.where if status in (400, 404) else None
    message = f"{error.message} ({error.hint})" if error.hint else error.message
    code = "model_not_found" if error.where == "model" else type(error).__name__
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
