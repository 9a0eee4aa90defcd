"""Triton model `leaf`: answers a batch, which is whatever waits in its queue, after `seconds`."""

import time

from serving.triton.backend import parameters, response, strings


class TritonPythonModel:
    def initialize(self, args):
        self.seconds = float(parameters(args)["seconds"])

    def execute(self, requests):
        time.sleep(self.seconds)
        return [response(found=strings("found").reshape(1, 1)) for _ in requests]
