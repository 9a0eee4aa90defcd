"""Triton model `executor`: questions in, answers and traces out, many at a time."""

from pathlib import Path

from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import counter, parameter, parameters, response, strings, text
from serving.triton.inside.executor import AnswerCache, QuestionService, write_trace
from serving.triton.inside.request_loop import RequestLoop
from serving.triton.inside.telemetry import Telemetry


def told(text):
    return response(answer=strings(text), trace=strings(""))


class TritonPythonModel:
    def initialize(self, args):
        chosen = parameters(args)
        telemetry, admission = Telemetry(args["model_name"]), Admission(int(chosen["max_in_flight"]))
        home = Path(args["model_repository"]).parents[1]  # release.json there says which revelator answers
        entries = int(chosen.get("cache", 0))
        looked_up = counter("revelator_cache_lookups_total", "Questions looked for among kept answers", "result")
        cache = AnswerCache(entries, looked_up) if entries else None
        self.questions = QuestionService.configured(home, chosen, telemetry.answered, admission, cache)
        self.loop = RequestLoop(self.questions.open, admission, telemetry, self.allowed, told)

    def execute(self, requests):
        return [self.loop.accept(request, self.begin) for request in requests]

    def allowed(self, request):
        return self.questions.allowed(parameter(request, "deadline_ms"))

    def begin(self, request):
        question, options = text(request, "question"), text(request, "options")
        return self.answer(question, options, parameter(request, "deadline_ms"), request.request_id())

    async def answer(self, *asked):
        trace = await self.questions.answer(*asked)
        return response(answer=strings(trace.answer), trace=strings(await write_trace(trace)))

    def finalize(self):
        self.loop.close()
