"""Triton model `generator`: the embedded reader, which answers from passages, a batch at a time."""

from pydantic import TypeAdapter

from serving.models.embedded import EmbeddedGenerator
from serving.protocols import GenerateRequest
from serving.triton.backend import answer_together, make_response, make_strings, read_texts

REQUEST = TypeAdapter(GenerateRequest)


class TritonPythonModel:
    def initialize(self, args):
        self.generator = EmbeddedGenerator()

    def execute(self, requests):
        return answer_together(requests, self.read, lambda row: (row.mode,), self.generator.answer_together, self.reply)

    def read(self, request):
        return list(map(REQUEST.validate_json, read_texts(request, "request")))

    def reply(self, readings):
        return make_response(reading=make_strings(*(reading.to_json() for reading in readings)))
