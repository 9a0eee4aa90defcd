"""Triton model whose questions fail in the way that each names; `together` is answered once every place is taken."""

import asyncio
import math

from revelator.errors import ServingError
from serving.service.telemetry import Telemetry
from serving.triton.inside.admission import Admission
from serving.triton.inside.backend import make_response, make_strings, read_parameters, read_text, send_last
from serving.triton.inside.request_loop import RequestLoop

STOPPING = {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


class TritonPythonModel:
    def initialize(self, args):
        self.limit = int(read_parameters(args)["max_in_flight"])
        self.streams = args["model_name"] == "streaming"
        admission, telemetry = Admission(self.limit), Telemetry(args["model_name"])
        self.loop = RequestLoop(self.open, admission, telemetry, lambda request: math.inf, self.reply)

    async def open(self, stack):
        self.barrier = asyncio.Barrier(self.limit)

    def execute(self, requests):
        if self.streams:
            for request in requests:
                if refusal := self.loop.accept(request, self.begin):
                    send_last(request.get_response_sender(), refusal)
            return None
        return [self.loop.accept(request, self.begin) for request in requests]

    def begin(self, request):
        question = read_text(request, "question")
        if question == "before it begins":
            raise SystemExit("a fault")
        return self.events(question) if self.streams else self.answer(question)

    async def events(self, question):
        if question == "an event that cannot be sent":
            yield object()
            return
        yield make_response(event=make_strings("first"))
        yield await self.answer(question)

    async def answer(self, question):
        if question in STOPPING:
            raise STOPPING[question]("a fault")
        if question == "a fault":
            raise ServingError(question)
        if question == "in a task of its own":
            await asyncio.create_task(self.answer("SystemExit"))
        if question == "an error without words":
            raise Wordless
        if question == "an error that UTF-8 cannot write":
            raise ServingError("half a character: \ud800")
        if question == "an answer that cannot be sent":
            return object()
        if question == "together":
            await self.barrier.wait()
        return self.reply("last" if self.streams else "fine")

    def reply(self, text):
        if self.streams:
            return make_response(event=make_strings(text))
        return make_response(answer=make_strings(text), trace=make_strings("{}"))

    def finalize(self):
        self.loop.close()
