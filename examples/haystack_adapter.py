"""Revelator in Haystack: a component that answers a query over a running `revelator serve`.

Copy this file beside your program. It needs the packages revelator and haystack-ai. The address is that of gRPC; the
token and the certificates are those of the environment, as for any client of the service. Haystack reads a pipeline
with it from YAML where this module is allowed: `Pipeline.loads(text, allowed_modules=["haystack_adapter"])`.
"""

from __future__ import annotations

from typing import Any

from haystack import Document, GeneratedAnswer, component

from revelator.answers import explain_silence, find_text, find_values, judge_certainty
from revelator.client import DEFAULT_URL, AsyncClient, Client
from revelator.wire import Answer


@component
class RevelatorAnswerer:
    """Answers a query in one question to the service, which plans, searches and reads.

    `answers` holds one `GeneratedAnswer`, whose `meta` has the outcome, the certainty, the single answers, the
    citations and the plan; none where nothing supports an answer: then `reason` says why. `documents` are the passages
    that it stands on, in the order of the citations `[n]`; their score is the probability that the passage says the
    answer, None where the reader gives none.
    Raises RevelatorError, which a pipeline wraps in its own PipelineRuntimeError.
    """

    def __init__(self, url: str = DEFAULT_URL, timeout: float = 60.0, retries: int = 2) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries

    @component.output_types(answers=list[GeneratedAnswer], documents=list[Document], reason=str)
    def run(self, query: str) -> dict[str, Any]:
        with Client(self.url, self.timeout, self.retries) as client:
            return make_output(query, client.ask(query))

    @component.output_types(answers=list[GeneratedAnswer], documents=list[Document], reason=str)
    async def run_async(self, query: str) -> dict[str, Any]:
        async with AsyncClient(self.url, self.timeout, self.retries) as client:
            return make_output(query, await client.ask(query))


def make_output(query: str, answer: Answer) -> dict[str, Any]:
    trace, documents = answer.trace, _list_documents(answer)
    said = find_text(trace) or find_values(trace)
    if not said:
        reason = explain_silence(trace) or trace.reason or "no document says it"
        return {"answers": [], "documents": documents, "reason": reason}
    about = {
        "outcome": trace.outcome,
        "certainty": judge_certainty(trace),
        "answers": list(answer.answers),
        "citations": trace.list_citations(),
        "plan": trace.plan,
    }
    answers = [GeneratedAnswer(data=said, query=query, documents=documents, meta=about)]
    return {"answers": answers, "documents": documents, "reason": ""}


def _list_documents(answer: Answer) -> list[Document]:
    sources = answer.trace.list_sources() if answer.answers else []
    documents = []
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
        documents.append(Document(id=passage.id, content=passage.text, meta=about, score=one.probability))
    return documents
