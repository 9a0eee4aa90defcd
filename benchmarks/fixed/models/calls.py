"""Triton model: `calls` calls of the leaf, one after the other, inside the executor's own loop.

The parameter `way` says how the leaf is called: `grpc` (the executor's own client), `bls` (the backend's, with a large
thread pool), or `process` (a sleep as long as the leaf's).
"""

import asyncio
import math
import os
from concurrent.futures import ThreadPoolExecutor

import triton_python_backend_utils as pb_utils

from serving.models.triton import TritonModels
from serving.service.telemetry import Telemetry
from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import make_response, make_strings, read_parameters, read_text
from serving.triton.inside.request_loop import RequestLoop

THREADS = 256  # of the pool in which the backend waits for BLS calls


class TritonPythonModel:
    def initialize(self, args):
        chosen = read_parameters(args)
        self.count, self.seconds = int(chosen["calls"]), float(chosen["seconds"])
        self.call = getattr(self, chosen["way"])
        admission, telemetry = Admission(int(chosen["max_in_flight"])), Telemetry(args["model_name"])
        self.loop = RequestLoop(self.open, admission, telemetry, lambda request: math.inf, self.reply)

    async def open(self, stack):
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        self.models = await stack.enter_async_context(TritonModels(os.environ["REVELATOR_GRPC"]))

    def execute(self, requests):
        return [self.loop.accept(request, self.begin) for request in requests]

    def begin(self, request):
        return self.answer(read_text(request, "question"))

    async def answer(self, question):
        for _ in range(self.count):
            await self.call(question)
        return self.reply(question)

    def reply(self, text):
        return make_response(answer=make_strings(text))

    async def grpc(self, question):
        result = await self.models.infer("leaf", query=make_strings(question).reshape(1, 1))
        assert result.as_numpy("found")[0, 0] == b"found"

    async def bls(self, question):
        query = pb_utils.Tensor("query", make_strings(question).reshape(1, 1))
        asked = pb_utils.InferenceRequest(model_name="leaf", requested_output_names=["found"], inputs=[query])
        result = await asked.async_exec()
        assert not result.has_error()

    async def process(self, question):
        await asyncio.sleep(self.seconds)

    def finalize(self):
        self.loop.close()
