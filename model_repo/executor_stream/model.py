"""Triton model `executor_stream`: questions in, the events of their traces out, each when it happens."""

from pathlib import Path

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
from serving.triton.inside.request_loop import RequestLoop
from serving.triton.inside.telemetry import Telemetry


def reply_to_probe(text):
    return make_response(event=make_strings(text))


class TritonPythonModel:
    def initialize(self, args):
        chosen = read_parameters(args)
        telemetry, admission = Telemetry(args["model_name"]), Admission(int(chosen["max_in_flight"]))
        home = Path(args["model_repository"]).parents[1]  # release.json there says which revelator answers
        self.questions = QuestionService.from_parameters(home, chosen, telemetry.record_trace, admission)
        self.loop = RequestLoop(self.questions.open, admission, telemetry, self.seconds_allowed, reply_to_probe)

    def execute(self, requests):
        for request in requests:
            if refusal := self.loop.accept(request, self.begin):
                send_last(request.get_response_sender(), refusal)

    def seconds_allowed(self, request):
        return self.questions.seconds_allowed(read_parameter(request, "deadline_ms"))

    def begin(self, request):
        question, options = read_text(request, "question"), read_text(request, "options")
        return self.events(question, options, read_parameter(request, "deadline_ms"), request.request_id())

    async def events(self, *request):
        async for event in self.questions.stream(*request):
            yield make_response(event=make_strings(await write_json(event.to_json())))

    def finalize(self):
        self.loop.close()
