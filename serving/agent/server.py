"""MLflow's Agent Server over the agent, which OpenAI's clients can ask:

    REVELATOR_AGENT=models:/revelator-agent/1 uvicorn --factory serving.agent.server:make_app --port 5005

The agent is read from the registry of REVELATOR_HOME or MLFLOW_TRACKING_URI; without REVELATOR_AGENT it is the latest.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import mlflow
from fastapi import FastAPI
from mlflow.genai.agent_server import AgentServer, invoke, stream
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool

from revelator import registry
from serving.agent.parts import AGENT


def make_app() -> FastAPI:
    """Raises what `registry.connect` raises, and MLflow for a model that there is not."""
    registry.connect(must_exist=True)
    agent = mlflow.pyfunc.load_model(os.environ.get("REVELATOR_AGENT", f"models:/{AGENT}/latest")).get_raw_model()

    @invoke()
    async def answer(request: ResponsesAgentRequest) -> ResponsesAgentResponse:
        return await run_in_threadpool(agent.predict, request)

    @stream()
    async def stream_answer(request: ResponsesAgentRequest) -> AsyncIterator[ResponsesAgentStreamEvent]:
        async for event in iterate_in_threadpool(agent.predict_stream(request)):
            yield event

    app = AgentServer("ResponsesAgent").app
    app.router.lifespan_context = _write_traces_at_end
    return app


@asynccontextmanager
async def _write_traces_at_end(_: FastAPI) -> AsyncIterator[None]:
    """Writes the traces that wait in MLflow's queue: uvicorn ends by the signal that it was sent, so that what MLflow
    does when Python exits never runs."""
    yield
    await run_in_threadpool(mlflow.flush_trace_async_logging)
