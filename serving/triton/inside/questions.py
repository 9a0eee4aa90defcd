"""The models `executor` and `executor_stream`: questions in; answers and traces out, or each event when it happens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from serving.pauses import write_json
from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import (
    make_response,
    make_strings,
    read_parameter,
    read_parameters,
    read_text,
    send_last,
)
from serving.triton.inside.executor import QuestionService
from serving.triton.inside.request_loop import Answer, RequestLoop
from serving.triton.inside.telemetry import Telemetry


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        chosen = read_parameters(args)
        self._streams = args["model_name"] == "executor_stream"
        telemetry, admission = Telemetry(args["model_name"]), Admission(int(chosen["max_in_flight"]))
        home = Path(args["model_repository"]).parents[1]  # release.json there says which revelator answers
        self._questions = QuestionService(os.environ["REVELATOR_GRPC"], home, chosen, telemetry.record_trace, admission)
        self._loop = RequestLoop(
            self._questions.open, admission, telemetry, self._seconds_allowed, self._reply_to_probe
        )

    def execute(self, requests: Sequence[Any]) -> list[Any] | None:
        refusals = [self._loop.accept(request, self._begin) for request in requests]
        if not self._streams:
            return refusals
        for request, refusal in zip(requests, refusals, strict=True):
            if refusal:
                send_last(request.get_response_sender(), refusal)
        return None

    def _seconds_allowed(self, request: Any) -> float:
        return self._questions.seconds_allowed(read_parameter(request, "deadline_ms"))

    def _reply_to_probe(self, text: str) -> Any:
        if self._streams:
            return make_response(event=make_strings(text))
        return make_response(answer=make_strings(text), trace=make_strings(""))

    def _begin(self, request: Any) -> Answer:
        question, options = read_text(request, "question"), read_text(request, "options")
        asked = question, options, read_parameter(request, "deadline_ms"), request.request_id()
        return self._stream(*asked) if self._streams else self._answer(*asked)

    async def _answer(self, *asked: Any) -> Any:
        trace = await self._questions.answer(*asked)
        return make_response(
            answer=make_strings(trace.answer), trace=make_strings(await asyncio.to_thread(trace.to_text))
        )

    async def _stream(self, *asked: Any) -> AsyncGenerator[Any, None]:
        async for event in self._questions.stream(*asked):
            yield make_response(event=make_strings(await write_json(event.to_json())))

    def finalize(self) -> None:
        self._loop.close()
