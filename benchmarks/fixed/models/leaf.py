"""Triton model `leaf`: answers a batch, which is what waits in its queue, after `seconds`, however many it is."""

import time

from serving.triton.inside.backend import make_response, make_strings, read_parameters


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = float(read_parameters(args)["seconds"])

    def execute(self, requests):
        time.sleep(self.seconds)
        return [make_response(found=make_strings("found").reshape(1, 1)) for _ in requests]
