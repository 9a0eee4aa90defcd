"""Triton model `retriever`: the best passages for each query of a batch, from an index that is memory-mapped."""

import json
from dataclasses import asdict
from pathlib import Path

from serving.retrieval import Index
from serving.retrieval.logical_search import LogicalSettings
from serving.triton.inside.backend import (
    SecretCheck,
    answer_together,
    make_response,
    make_strings,
    read_array,
    read_device,
    read_parameters,
    read_texts,
)
from serving.triton.inside.retriever import Search, search
from serving.triton.repository import LOGIC


class TritonPythonModel:
    def initialize(self, args):
        self.inner = SecretCheck(args)
        parameters = read_parameters(args)
        self.index = Index.open(Path(parameters["index"]), read_device(args))
        self.logic = LogicalSettings.model_validate_json(parameters.get(LOGIC, "{}")).resolve()
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
