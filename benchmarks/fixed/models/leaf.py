"""Triton model `leaf`: answers a batch, which is what waits in its queue, after `seconds`, however many it is."""

import time

from serving.triton.inside.backend import parameters, response, strings


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = float(parameters(args)["seconds"])

    def execute(self, requests):
        time.sleep(self.seconds)
        return [response(found=strings("found").reshape(1, 1)) for _ in requests]
