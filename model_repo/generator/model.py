"""Triton model `generator`: answers from passages, from earlier answers, or from the question alone."""

from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import SecretCheck, make_response, make_strings, read_parameters, read_text
from serving.triton.inside.generator import open_generator, read_request
from serving.triton.inside.request_loop import RequestLoop
from serving.triton.inside.telemetry import Telemetry


class TritonPythonModel:
    def initialize(self, args):
        self.parameters = read_parameters(args)
        self.inner = SecretCheck(args)
        admission = Admission(int(self.parameters["max_in_flight"]))
        self.loop = RequestLoop(self.open, admission, Telemetry(args["model_name"]))

    async def open(self, stack):
        self.generator = open_generator(self.parameters["endpoint"], self.parameters["model"], stack)

    def execute(self, requests):
        return [self.loop.accept(request, self.begin) for request in requests]

    def begin(self, request):
        self.inner.check(request)
        return self.answer(read_text(request, "request"))

    async def answer(self, body):
        reading = await self.generator.answer(read_request(body))
        return make_response(reading=make_strings(reading.to_json()))

    def finalize(self):
        self.loop.close()
