"""Triton model `retriever`: the best passages for a query, from an index that is memory-mapped."""

import json
from dataclasses import asdict
from pathlib import Path

from serving.retrieval import Index
from serving.triton.backend import array, failure, parameters, response, strings, text


class TritonPythonModel:
    def initialize(self, args):
        self.index = Index.open(Path(parameters(args)["index"]))
        self.index.search("ready", 1)  # an embedding model loads now, not on the first request

    def execute(self, requests):
        return [self.search(request) for request in requests]

    def search(self, request):
        try:
            passages = self.index.search(text(request, "query"), int(array(request, "k").item()))
        except Exception as error:
            return failure(error)
        return response(passages=strings(json.dumps([asdict(p) for p in passages], ensure_ascii=False)))
