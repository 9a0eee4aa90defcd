"""Triton model `executor_stream`: questions in, the events of their traces out, each when it happens."""

import json
import os
from pathlib import Path

from serving.triton.backend import parameters, response, strings, text
from serving.triton.loop import RequestLoop
from serving.triton.questions import Questions


class TritonPythonModel:
    def initialize(self, args):
        chosen = parameters(args)
        sources, vllm = (Path(chosen[name]) if chosen.get(name) else None for name in ("sources", "vllm"))
        self.questions = Questions(os.environ["REVELATOR_GRPC"], sources, vllm)
        self.loop = RequestLoop(self.questions.open, int(chosen["max_in_flight"]))

    def execute(self, requests):
        for request in requests:
            self.loop.accept(request, self.begin)

    def begin(self, request):
        sent = json.loads(request.parameters() or "{}")
        return self.events(text(request, "question"), text(request, "options"), sent.get("deadline_ms"))

    async def events(self, question, options, deadline_ms):
        async for event in self.questions.stream(question, options, deadline_ms):
            yield response(event=strings(json.dumps(event.to_json(), ensure_ascii=False)))

    def finalize(self):
        self.loop.close()
