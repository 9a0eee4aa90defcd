"""Triton model `revelator`: prompts of any tasks in, label probabilities or text out, one pass a task."""

import sys
from pathlib import Path

import numpy as np

from revelator.errors import Cancelled
from serving import latency
from serving.triton.inside.backend import (
    SecretCheck,
    answer_together,
    make_response,
    read_array,
    read_device,
    read_serving_config,
    read_texts,
)
from serving.triton.inside.revelator import Client, CompletionService, Row


class TritonPythonModel:
    def initialize(self, args):
        self.inner = SecretCheck(args)
        # nothing here is quantised; peft imports it where it is installed, and that is a fifth of the time to start
        sys.modules["bitsandbytes"] = None
        folder = Path(args["model_repository"]) / args["model_version"]
        self.completions = CompletionService(folder, read_serving_config(args).decoding, read_device(args))
        latency.keep_trimming_memory()

    def execute(self, requests):
        return answer_together(requests, self.inner, self.read, self.completions.complete, self.reply)

    def read(self, request):
        client = Client(request.is_cancelled)
        if client.has_left():
            raise Cancelled("the client went away while the request waited")
        temperatures = read_array(request, "temperature").ravel().tolist()
        cells = zip(read_texts(request, "task"), read_texts(request, "prompt"), temperatures, strict=True)
        return [Row(*cell, client.has_left) for cell in cells]

    def reply(self, outcomes):
        width = max(len(o.probabilities) for o in outcomes)
        probabilities = np.zeros((len(outcomes), width), dtype=np.float32)
        for row, outcome in zip(probabilities, outcomes, strict=True):
            row[: len(outcome.probabilities)] = list(outcome.probabilities.values())
        return make_response(
            text=np.array([[o.text.encode()] for o in outcomes], dtype=np.object_),
            probabilities=probabilities,
            usage=np.array([[o.tokens_in, o.tokens_out] for o in outcomes], dtype=np.int32),
            degraded=np.array([[o.degraded] for o in outcomes], dtype=np.bool_),
        )
