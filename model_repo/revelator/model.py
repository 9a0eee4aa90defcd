"""Triton model `revelator`: prompts of any tasks in, label probabilities or text out, one pass a task."""

from pathlib import Path

import numpy as np

from revelator.errors import Cancelled
from serving.triton.backend import array, failure, response
from serving.triton.completions import Completions, Row


class TritonPythonModel:
    def initialize(self, args):
        self.completions = Completions(Path(args["model_repository"]) / args["model_version"])

    def execute(self, requests):
        rows = [self.rows(request) for request in requests]
        outcomes = iter(self.completions.complete([row for group in rows for row in group]))
        return [self.reply([next(outcomes) for _ in group]) for group in rows]

    def rows(self, request):
        if request.is_cancelled():
            return []
        tasks, prompts = array(request, "task"), array(request, "prompt")
        temperatures = array(request, "temperature")
        cells = zip(tasks.ravel(), prompts.ravel(), temperatures.ravel(), strict=True)
        return [Row(task.decode(), prompt.decode(), float(temperature)) for task, prompt, temperature in cells]

    def reply(self, outcomes):
        if not outcomes:
            return failure(Cancelled("the client went away while the request waited"))
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                return failure(outcome)
        width = max(len(o.probabilities) for o in outcomes)
        probabilities = np.zeros((len(outcomes), width), dtype=np.float32)
        for row, outcome in zip(probabilities, outcomes, strict=True):
            row[: len(outcome.probabilities)] = list(outcome.probabilities.values())
        return response(
            text=np.array([[o.text.encode()] for o in outcomes], dtype=np.object_),
            probabilities=probabilities,
            usage=np.array([[o.tokens_in, o.tokens_out] for o in outcomes], dtype=np.int32),
        )
