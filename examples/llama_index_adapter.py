"""Revelator in LlamaIndex: a query engine over a running `revelator serve`.

Copy this file beside your program. It needs the packages revelator and llama-index-core. The address is that of gRPC;
the token and the certificates are those of the environment, as for any client of the service.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from revelator.answers import explain_silence, find_text, find_values, judge_certainty
from revelator.client import DEFAULT_URL, AsyncClient, Client
from revelator.wire import Answer


class RevelatorQueryEngine(BaseQueryEngine):
    """Answers a query in one question to the service, which plans, searches and reads.

    `response` is the answer, or why there is none. `source_nodes` are the passages that it stands on, in the order of
    the citations `[n]`; the score is the probability that the passage says the answer, None where the reader gives
    none. `metadata` has the outcome, the certainty, the single answers, the citations and the plan.
    Raises RevelatorError: Unavailable, Overloaded and DeadlineExceeded pass.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        timeout: float = 60.0,
        retries: int = 2,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager)
        self.url, self.timeout, self.retries = url, timeout, retries

    def _query(self, query_bundle: QueryBundle) -> Response:
        with Client(self.url, self.timeout, self.retries) as client:
            return make_response(client.ask(query_bundle.query_str))

    async def _aquery(self, query_bundle: QueryBundle) -> Response:
        async with AsyncClient(self.url, self.timeout, self.retries) as client:
            return make_response(await client.ask(query_bundle.query_str))

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {}


def make_response(answer: Answer) -> Response:
    trace = answer.trace
    silence = f"No answer: {explain_silence(trace) or trace.reason or 'no document says it'}."
    about = {
        "outcome": trace.outcome,
        "certainty": judge_certainty(trace),
        "answers": list(answer.answers),
        "citations": trace.list_citations(),
        "plan": trace.plan,
    }
    return Response(find_text(trace) or find_values(trace) or silence, _list_nodes(answer), about)


def _list_nodes(answer: Answer) -> list[NodeWithScore]:
    sources = answer.trace.list_sources() if answer.answers else []
    nodes = []
    for one, citation in zip(sources, answer.trace.list_citations(), strict=True):
        passage = one.passage
        about = {
            "source": passage.link or passage.file or passage.id,
            "title": passage.title,
            "page": passage.page,
            "citation": citation,
            "answers": list(one.answers),
            "relevance": passage.relevance,
            "search_score": passage.score,
        }
        node = TextNode(id_=passage.id, text=passage.text, metadata=about)
        nodes.append(NodeWithScore(node=node, score=one.probability))
    return nodes
