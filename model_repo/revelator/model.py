"""Triton model `revelator`: prompts of any tasks in, label probabilities or text out, one pass a task."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from revelator.errors import Cancelled
from serving import latency
from serving.home.versions import ADAPTER, CONTENTS_FILE
from serving.models.engine import Engine
from serving.models.local import complete
from serving.triton.backend import (
    Caller,
    answer_together,
    make_response,
    make_strings,
    read_array,
    read_device,
    read_parameter,
    read_texts,
)
from serving.triton.repository import DECODING


class Row(NamedTuple):
    task: str
    prompt: str
    temperature: float
    caller: Caller


class TritonPythonModel:
    def initialize(self, args):
        # nothing here is quantised; peft imports it where it is installed, and that is a fifth of the time to start
        sys.modules["bitsandbytes"] = None
        folder = Path(args["model_repository"]) / args["model_version"]
        contents = json.loads((folder / CONTENTS_FILE).read_text(encoding="utf-8"))
        adapter = folder / ADAPTER if contents["files"] else None
        self.engine = Engine(contents["base"]["folder"], adapter, device=read_device(args))
        self.decoding = read_parameter(args, DECODING)
        latency.keep_trimming_memory()

    def execute(self, requests):
        return answer_together(requests, self.read, lambda row: (row.task, row.temperature), self.complete, self.reply)

    def read(self, request):
        caller = Caller(request)
        if caller.has_left():
            raise Cancelled("the caller went away while the request waited")
        temperatures = read_array(request, "temperature").ravel().tolist()
        cells = zip(read_texts(request, "task"), read_texts(request, "prompt"), temperatures, strict=True)
        return [Row(*cell, caller) for cell in cells]

    def complete(self, task, temperature, rows):
        prompts = [row.prompt for row in rows]
        have_left = lambda: all(row.caller.has_left() for row in rows)  # noqa: E731
        return complete(self.engine, task, prompts, temperature, decoding=self.decoding, cancelled=have_left)

    def reply(self, completions):
        width = max(len(completion.probabilities) for completion in completions)
        probabilities = np.zeros((len(completions), width), dtype=np.float32)
        for row, completion in zip(probabilities, completions, strict=True):
            row[: len(completion.probabilities)] = list(completion.probabilities.values())
        return make_response(
            text=make_strings(*(completion.text for completion in completions)),
            probabilities=probabilities,
            usage=np.array([[c.tokens_in, c.tokens_out] for c in completions], dtype=np.int32),
            degraded=np.array([[completion.degraded] for completion in completions], dtype=np.bool_),
        )
