"""Triton model `single_leaf`: answers each request `seconds` after it came, any number at a time."""

import asyncio
import threading

from serving.triton.inside.backend import make_response, make_strings, read_parameters, send_last


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = float(read_parameters(args)["seconds"])
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            self.loop.call_soon_threadsafe(self.loop.call_later, self.seconds, self.reply, sender)

    def reply(self, sender):
        send_last(sender, make_response(found=make_strings("found").reshape(1, 1)))

    def finalize(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
