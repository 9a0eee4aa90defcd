"""OpenAI's Responses API over the executor: `input` holds the conversation, the answer is one message.

Reading the conversation, and what is refused, are as in `serving.inspector.chat`; `instructions` count for language and
tone alone. `previous_response_id` names an earlier answer, whose question and answers are then what was said before.
Each passage that holds the answer is an annotation of the text: `url_citation` for one that can be opened, on the web
or on the page of this service, else `file_citation`, at the place of its number. Every run is kept; a response's id is
`resp_ID`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from revelator.answers import CITATION, asks_nothing
from revelator.errors import InvalidRequest, RevelatorError
from revelator.tasks import Step
from revelator.trace import Event, Evidence, Passage, Trace
from serving.http.kserve import end_with_client
from serving.http.protection import read_body, read_groups
from serving.inspector.chat import MODEL, Message, TextOr, count_tokens, describe_error, find_server, read_history
from serving.inspector.inquiry import Inquiry, QuestionBody, Server, await_first_event
from serving.inspector.reply import ReplyStream, write_reply
from serving.inspector.runs import Runs

PREFIX = "resp_"


class Part(BaseModel):
    """One piece of a message; only text can be asked."""

    type: Literal["input_text", "output_text"]
    text: str


class Item(BaseModel):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: TextOr[Part]

    def to_message(self) -> Message:
        content = self.content
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        return Message(role=self.role, content=text)


class TextOptions(BaseModel):
    format: dict[str, Any] | None = None


class ResponseRequest(BaseModel):
    """The body of a request. What would change the kind of answer is refused; other fields are accepted unread, but for
    `where`, our own: a filter of the documents."""

    model: str = MODEL
    input: TextOr[Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = False
    background: bool | None = False
    tools: list[Any] | None = None
    text: TextOptions | None = None
    where: str | None = None

    def read_messages(self) -> list[Message]:
        """The conversation, whose last message is the question. Raises InvalidRequest."""
        if self.tools:
            raise InvalidRequest("tools are not called", where="tools", hint="leave tools out")
        if self.background:
            raise InvalidRequest("an answer is waited for", where="background", hint="leave background out")
        if self.text and self.text.format and self.text.format.get("type") != "text":
            raise InvalidRequest("answers are text", where="text.format", hint="leave text.format out")
        messages = [Message(role="user", content=self.input)] if isinstance(self.input, str) else []
        messages += [item.to_message() for item in self.input if isinstance(item, Item)]
        if not messages or messages[-1].role != "user":
            raise InvalidRequest("the last message must be the user's: it is the question", where="input")
        return messages


class Responses:
    """The route."""

    def __init__(self, servers: Mapping[str, Server], runs: Runs) -> None:
        self._servers = servers
        self._runs = runs

    async def create(self, request: Request) -> Response:
        wanted = await read_body(request, ResponseRequest)
        inquiry = self.make_inquiry(wanted, read_groups(request), str(request.base_url))
        if wanted.stream:
            events = await await_first_event(inquiry.stream_events())
            return StreamingResponse(_write_events(inquiry, events, wanted), media_type="text/event-stream")
        await end_with_client(request, inquiry.run_whole())
        return JSONResponse(describe_response(inquiry, wanted))

    def make_inquiry(
        self, wanted: ResponseRequest, groups: frozenset[str] = frozenset(), base_url: str = "/"
    ) -> Inquiry:
        """The question of a request by a caller of these groups. Raises InvalidRequest and DataError."""
        server, messages = find_server(self._servers, wanted.model), wanted.read_messages()
        steps = read_history(messages)
        if earlier := wanted.previous_response_id:
            trace = self._runs.read(earlier.removeprefix(PREFIX), groups).trace
            if not asks_nothing(trace):
                steps.insert(0, Step(trace.question, tuple(trace.answers)))
        style = [wanted.instructions or "", *(m.text for m in messages if m.role in ("system", "developer"))]
        written = "\n".join(filter(None, style))
        asked = QuestionBody(
            question=messages[-1].text, server=server, history=steps, style=written, where=wanted.where
        )
        return Inquiry(self._servers, self._runs, asked, groups, base_url)


async def _write_events(
    inquiry: Inquiry, events: AsyncGenerator[Event, None], wanted: ResponseRequest
) -> AsyncIterator[str]:
    """Server-sent events."""
    async for sent in stream_response(inquiry, events, wanted):
        yield f"event: {sent['type']}\ndata: {json.dumps(sent, ensure_ascii=False)}\n\n"


async def stream_response(
    inquiry: Inquiry, events: AsyncGenerator[Event, None], wanted: ResponseRequest
) -> AsyncGenerator[dict[str, Any], None]:
    """Events of the types of OpenAI's; an error after the beginning ends the stream as theirs does."""
    number = 0

    def send(kind: str, **fields: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"type": kind, "sequence_number": number - 1, **fields}

    yield send("response.created", response=_describe(inquiry, wanted, "in_progress", []))
    begun = _describe_message(inquiry, "in_progress", [])
    at = {"item_id": begun["id"], "output_index": 0, "content_index": 0}
    reply, has_begun = ReplyStream(inquiry.read_trace), False

    def send_delta(piece: str) -> Iterator[dict[str, Any]]:
        nonlocal has_begun
        if not has_begun:
            yield send("response.output_item.added", output_index=0, item=begun)
            yield send("response.content_part.added", **at, part=_describe_part("", []))
            has_begun = True
        yield send("response.output_text.delta", **at, delta=piece, logprobs=[])

    try:
        async with aclosing(events) as stream:
            async for event in stream:
                if piece := reply.add(event):
                    for sent in send_delta(piece):
                        yield sent
        message = _write_message(inquiry)
        [part] = message["content"]
        for sent in send_delta(reply.finish(part["text"])):
            yield sent
    except RevelatorError as error:
        described = describe_error(error)["error"]
        failure = {"code": described["code"], "message": described["message"]}
        failed = _describe(inquiry, wanted, "failed", []) | {"error": failure}
        yield send("response.failed", response=failed)
        return
    for index, annotation in enumerate(part["annotations"]):
        kind = "response.output_text.annotation.added"
        yield send(kind, **at, annotation_index=index, annotation=annotation)
    yield send("response.output_text.done", **at, text=part["text"], logprobs=[])
    yield send("response.content_part.done", **at, part=part)
    yield send("response.output_item.done", output_index=0, item=message)
    yield send("response.completed", response=_describe(inquiry, wanted, "completed", [message]))


def describe_response(inquiry: Inquiry, wanted: ResponseRequest) -> dict[str, Any]:
    """The response of an inquiry that has run."""
    return _describe(inquiry, wanted, "completed", [_write_message(inquiry)])


def _describe(inquiry: Inquiry, wanted: ResponseRequest, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    """The response object."""
    usage = None
    if inquiry.run:
        counted = count_tokens(inquiry.run.trace)
        usage = {
            "input_tokens": counted["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": counted["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counted["total_tokens"],
            "revelator": counted["revelator"],
        }
    return {
        "id": f"{PREFIX}{inquiry.id}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": wanted.model,
        "output": output,
        "instructions": wanted.instructions,
        "previous_response_id": wanted.previous_response_id,
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "metadata": {},
        "temperature": None,
        "top_p": None,
        "usage": usage,
    }


def _write_message(inquiry: Inquiry) -> dict[str, Any]:
    assert inquiry.run is not None
    trace = inquiry.run.trace
    text = write_reply(trace, inquiry.wanted.history or (), inquiry.find_link)
    return _describe_message(
        inquiry, "completed", [_describe_part(text, list_annotations(trace, text, inquiry.find_link))]
    )


def _describe_message(inquiry: Inquiry, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"msg_{inquiry.id}",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _describe_part(text: str, annotations: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def list_annotations(trace: Trace, text: str, find_link: Callable[[Passage], str]) -> list[dict[str, Any]]:
    """An annotation for each number of a source in the text, where it stands."""
    sources = {str(number): one for number, one in enumerate(trace.list_sources() if trace.answers else [], 1)}
    found: list[re.Match[str]] = [mark for mark in CITATION.finditer(text) if mark[1] in sources]
    return [_annotate(sources[mark[1]], mark, find_link) for mark in found]


def _annotate(source: Evidence, mark: re.Match[str], find_link: Callable[[Passage], str]) -> dict[str, Any]:
    passage = source.passage
    if link := source.link or find_link(passage):
        place = {"start_index": mark.start(), "end_index": mark.end()}
        return {"type": "url_citation", **place, "url": link, "title": passage.name}
    return {"type": "file_citation", "file_id": passage.id, "filename": passage.file, "index": mark.start()}
