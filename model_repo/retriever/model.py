"""Triton model `retriever`: the best passages for each query of a batch, from an index that is memory-mapped."""

import json
from dataclasses import asdict
from pathlib import Path

from revelator.errors import RevelatorError
from serving.retrieval import Index
from serving.triton.inside.backend import (
    SecretCheck,
    is_given,
    make_failure,
    make_response,
    make_strings,
    read_array,
    read_parameters,
    read_texts,
)
from serving.triton.inside.retriever import QUERY_BYTES, Search, search


class TritonPythonModel:
    def initialize(self, args):
        self.inner = SecretCheck(args)
        self.index = Index.open(Path(read_parameters(args)["index"]))
        self.index.search("ready", 1)  # an embedding model loads now, not on the first request

    def execute(self, requests):
        read = [self.read(request) for request in requests]
        outcomes = iter(search(self.index, [one for searches, _ in read for one in searches]))
        return [
            make_failure(error) if error else self.reply([next(outcomes) for _ in searches]) for searches, error in read
        ]

    def read(self, request):
        """The searches of a request, or the error that it alone is answered with."""
        try:
            self.inner.check(request)
            queries, sizes = read_texts(request, "query", QUERY_BYTES), read_array(request, "k").ravel().tolist()
            given = is_given(request, "language")
            languages = read_texts(request, "language", QUERY_BYTES) if given else ["words"] * len(queries)
            return list(map(Search, queries, sizes, languages)), None
        except RevelatorError as error:
            return [], error.with_traceback(None)  # whose frames hold the request

    def reply(self, outcomes):
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                return make_failure(outcome)
        rows = [json.dumps([asdict(passage) for passage in found], ensure_ascii=False) for found in outcomes]
        respelled = [json.dumps(getattr(found, "respelled", {}), ensure_ascii=False) for found in outcomes]
        return make_response(
            passages=make_strings(*rows).reshape(-1, 1), respelled=make_strings(*respelled).reshape(-1, 1)
        )
