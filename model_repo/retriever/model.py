"""Triton model `retriever`: the best passages for each query of a batch, from an index that is memory-mapped."""

import json
from dataclasses import asdict

from serving.retrieval import Index
from serving.triton.inside.backend import (
    SecretCheck,
    answer_together,
    make_response,
    make_strings,
    read_array,
    read_device,
    read_serving_config,
    read_texts,
)
from serving.triton.inside.retriever import Search, search


class TritonPythonModel:
    def initialize(self, args):
        self.inner = SecretCheck(args)
        config = read_serving_config(args)
        self.index = Index.open(config.index, read_device(args))
        self.logic = config.logic.resolve()
        self.index.search("ready", 1)  # an embedding model loads now, not on the first request

    def execute(self, requests):
        return answer_together(
            requests, self.inner, self.read, lambda searches: search(self.index, self.logic, searches), self.reply
        )

    def read(self, request):
        return list(map(Search, read_texts(request, "query"), read_array(request, "k").ravel().tolist()))

    def reply(self, outcomes):
        rows = [json.dumps([asdict(passage) for passage in found], ensure_ascii=False) for found in outcomes]
        respelled = [json.dumps(getattr(found, "respelled", {}), ensure_ascii=False) for found in outcomes]
        return make_response(
            passages=make_strings(*rows).reshape(-1, 1), respelled=make_strings(*respelled).reshape(-1, 1)
        )
