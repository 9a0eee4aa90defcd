"""The whole system as MLflow's `ResponsesAgent`: a version of the revelator over an index, in this process; or, where
the model or REVELATOR_URL names one, a running service (its gRPC, HOST:PORT), and then neither is opened.

Requests and answers are those of `serving.inspector.responses`: `input` holds the conversation, and each passage that
holds the answer is an annotation of the text. MLflow drops what its own request has no field for: `custom_inputs` holds
that. `custom_outputs` has what a scorer needs of the trace.

MLflow runs this file when it loads a model that `revelator model export` logged ("models from code").
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.protos import databricks_pb2 as codes
from mlflow.pyfunc import PythonModelContext, ResponsesAgent
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent
from pydantic import Field, ValidationError

from revelator.client import AsyncClient
from revelator.config import find_first_fault
from revelator.errors import DataError, InvalidRequest, Overloaded, RevelatorError, Unavailable
from revelator.registry import Version
from revelator.trace import Trace
from serving.agent.parts import ADAPTER, INDEX, URL
from serving.deploy.deploy import release_adapter, release_embedded_base
from serving.home.config import ServingConfig
from serving.http.protection import Body
from serving.inspector import Runs, Server
from serving.inspector.inquiry import Inquiry, ask_elsewhere
from serving.inspector.responses import ResponseRequest, Responses, describe_response, stream_response
from serving.service.questions import open_questions

CODES: dict[type[RevelatorError], int] = {  # MLflow's servers choose the HTTP status by them
    InvalidRequest: codes.INVALID_PARAMETER_VALUE,
    DataError: codes.RESOURCE_DOES_NOT_EXIST,
    Overloaded: codes.RESOURCE_EXHAUSTED,
    Unavailable: codes.TEMPORARILY_UNAVAILABLE,
}
Result = TypeVar("Result")


class CustomInputs(Body):
    """Fields of `ResponseRequest` that MLflow's request lacks."""

    instructions: str | None = None
    previous_response_id: str | None = None
    where: str | None = None


class AgentRequest(ResponseRequest):
    custom_inputs: CustomInputs = Field(default_factory=CustomInputs)


class Agent(ResponsesAgent):
    """Questions are answered on an event loop in a thread of its own, several at a time. What is opened stays open
    until the process ends."""

    def load_context(self, context: PythonModelContext) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="revelator agent", daemon=True).start()
        self._stack = AsyncExitStack()
        self._responses = self._wait(self._open(context))

    def predict(self, request: ResponsesAgentRequest) -> ResponsesAgentResponse:  # type: ignore[override]
        _name_session(request)
        return ResponsesAgentResponse(**self._wait(self._answer(read_request(request))))

    def predict_stream(  # type: ignore[override]
        self, request: ResponsesAgentRequest
    ) -> Generator[ResponsesAgentStreamEvent, None, None]:
        _name_session(request)
        events = self._stream(read_request(request))
        try:
            while event := self._wait(_take_next(events)):
                yield ResponsesAgentStreamEvent(**event)
        finally:
            asyncio.run_coroutine_threadsafe(events.aclose(), self._loop)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except RevelatorError as error:
            raise convert_error(error) from error

    async def _open(self, context: PythonModelContext) -> Responses:
        about = context.model_config or {}
        home = Path(self._stack.enter_context(TemporaryDirectory(prefix="revelator-agent-")))
        if url := os.environ.get(URL) or about.get("url"):
            client = await self._stack.enter_async_context(AsyncClient(url))
            stream = ask_elsewhere(client)
        else:
            config = _lay_out(home, context.artifacts, about)
            stream = (await self._stack.enter_async_context(open_questions(home, config))).ask

        async def list_models() -> dict[str, str]:
            return {}

        return Responses({"agent": Server("agent", stream, list_models)}, Runs(home / "inspected"))

    async def _answer(self, wanted: ResponseRequest) -> dict[str, Any]:
        inquiry = self._responses.make_inquiry(wanted)
        await inquiry.run_whole()
        return describe_response(inquiry, wanted) | {"custom_outputs": _describe_run(inquiry)}

    async def _stream(self, wanted: ResponseRequest) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a response, the last one with the custom outputs."""
        inquiry = self._responses.make_inquiry(wanted)
        async with aclosing(stream_response(inquiry, inquiry.stream_events(), wanted)) as events:
            async for event in events:
                is_last = event["type"] == "response.completed"
                yield event | ({"custom_outputs": _describe_run(inquiry)} if is_last else {})


async def _take_next(events: AsyncGenerator[dict[str, Any], None]) -> dict[str, Any] | None:
    return await anext(events, None)


def _lay_out(home: Path, artifacts: dict[str, str], about: dict[str, Any]) -> ServingConfig:
    """Makes the packed version the release of a new home folder, and returns what is served."""
    if adapter := artifacts.get(ADAPTER):
        release_adapter(home, Path(adapter), Version(**about["version"]))
    else:
        release_embedded_base(home)
    return ServingConfig(**about["serving"], index=Path(artifacts[INDEX]))


def _name_session(request: ResponsesAgentRequest) -> None:
    """Names the conversation on the trace of this call: MLflow's page Sessions shows its turns together."""
    if context := request.context:
        mlflow.update_current_trace(session_id=context.conversation_id, user=context.user_id)


def read_request(request: ResponsesAgentRequest) -> ResponseRequest:
    """Raises MlflowException for what is no question in text, and for an unknown name in `custom_inputs`."""
    try:
        wanted = AgentRequest.model_validate(request.model_dump(exclude_none=True))
        return wanted.model_copy(update=wanted.custom_inputs.model_dump())
    except ValidationError as error:
        field, reason = find_first_fault(error)
        raise convert_error(InvalidRequest(reason, where=field or None)) from error


def convert_error(error: RevelatorError) -> MlflowException:
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), codes.INTERNAL_ERROR)
    return MlflowException(str(error), error_code=code)


def _describe_run(inquiry: Inquiry) -> dict[str, Any]:
    assert inquiry.run is not None
    return describe_trace(inquiry.run.trace)


def describe_trace(trace: Trace) -> dict[str, Any]:
    """What scorers read: the values of the answer, the route, the plan and who wrote it, and the passages by the
    numbers that the text cites."""
    cited = [
        {"number": number, "name": one.passage.name, "title": one.passage.title, "text": one.passage.text}
        for number, one in enumerate(trace.list_sources() if trace.answers else [], 1)
    ]
    return {
        "outcome": trace.outcome,
        "answers": [*trace.answers],
        "route": trace.route,
        "plan": trace.plan,
        "plan_language": trace.plan_language,
        "plan_source": trace.plan_source,
        "sources": cited,
        "versions": trace.versions,
    }


set_model(Agent())
