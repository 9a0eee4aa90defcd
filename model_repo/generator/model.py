"""Triton model `generator`: the embedded reader, which answers from passages, a batch at a time."""

from pydantic import TypeAdapter

from serving.models.embedded import EmbeddedGenerator
from serving.protocols import GenerateRequest
from serving.triton.inside.backend import SecretCheck, answer_together, make_response, make_strings, read_texts
from serving.triton.inside.batches import run_groups

REQUEST = TypeAdapter(GenerateRequest)


class TritonPythonModel:
    def initialize(self, args):
        self.inner = SecretCheck(args)
        self.generator = EmbeddedGenerator()

    def execute(self, requests):
        return answer_together(requests, self.inner, self.read, self.answer, self.reply)

    def read(self, request):
        return list(map(REQUEST.validate_json, read_texts(request, "request")))

    def answer(self, rows):
        return run_groups(rows, lambda row: (row.mode,), self.generator.answer_together)

    def reply(self, readings):
        return make_response(reading=make_strings(*(reading.to_json() for reading in readings)).reshape(-1, 1))
