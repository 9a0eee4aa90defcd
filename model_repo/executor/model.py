"""Triton model `executor`: questions in, answers and traces out, many at a time."""

from pathlib import Path

from serving.pauses import write_trace
from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import (
    make_counter,
    make_response,
    make_strings,
    read_parameter,
    read_parameters,
    read_text,
)
from serving.triton.inside.executor import AnswerCache, QuestionService
from serving.triton.inside.request_loop import RequestLoop
from serving.triton.inside.telemetry import Telemetry


def reply_to_probe(text):
    return make_response(answer=make_strings(text), trace=make_strings(""))


class TritonPythonModel:
    def initialize(self, args):
        chosen = read_parameters(args)
        telemetry, admission = Telemetry(args["model_name"]), Admission(int(chosen["max_in_flight"]))
        home = Path(args["model_repository"]).parents[1]  # release.json there says which revelator answers
        entries = int(chosen.get("cache", 0))
        count_lookup = make_counter(
            "revelator_cache_lookups_total", "Questions looked for among cached answers", "result"
        )
        cache = AnswerCache(entries, count_lookup) if entries else None
        self.questions = QuestionService.from_parameters(home, chosen, telemetry.record_trace, admission, cache)
        self.loop = RequestLoop(self.questions.open, admission, telemetry, self.seconds_allowed, reply_to_probe)

    def execute(self, requests):
        return [self.loop.accept(request, self.begin) for request in requests]

    def seconds_allowed(self, request):
        return self.questions.seconds_allowed(read_parameter(request, "deadline_ms"))

    def begin(self, request):
        question, options = read_text(request, "question"), read_text(request, "options")
        return self.answer(question, options, read_parameter(request, "deadline_ms"), request.request_id())

    async def answer(self, *request):
        trace = await self.questions.answer(*request)
        return make_response(answer=make_strings(trace.answer), trace=make_strings(await write_trace(trace)))

    def finalize(self):
        self.loop.close()
