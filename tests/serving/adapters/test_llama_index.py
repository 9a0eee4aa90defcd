"""`examples/llama_index_adapter.py` in LlamaIndex itself."""

from __future__ import annotations

import pytest

from revelator.errors import Unavailable
from tests.serving.adapters.asked import ANSWER, QUESTION, UNKNOWN

pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed: `make adapters` installs it")

from llama_index.core.base.response.schema import Response
from llama_index.core.tools import QueryEngineTool

from examples.llama_index_adapter import RevelatorQueryEngine


def assert_answered(response: Response) -> None:
    assert ANSWER in str(response) and response.metadata["answers"] == [ANSWER]
    assert response.metadata["outcome"] == "answered" and response.metadata["plan"]
    [last] = [one for one in response.source_nodes if ANSWER in one.metadata["answers"]]
    assert ANSWER in last.text and 0 < last.get_score(raise_error=True) <= 1
    assert last.metadata["citation"] in response.metadata["citations"]
    assert last.node_id.startswith(last.metadata["source"])


def test_a_query_gives_the_answer_with_its_source_nodes(faculty: str) -> None:
    assert_answered(RevelatorQueryEngine(faculty).query(QUESTION))


async def test_so_does_one_that_is_awaited_and_the_engine_as_a_tool_of_an_agent(faculty: str) -> None:
    engine = RevelatorQueryEngine(faculty)
    assert_answered(await engine.aquery(QUESTION))
    tool = QueryEngineTool.from_defaults(engine, name="faculty", description="Asks the documents of the faculty.")
    output = await tool.acall(input=QUESTION)
    assert ANSWER in output.content
    assert_answered(output.raw_output)


def test_a_query_without_an_answer_says_why_and_has_no_source(faculty: str) -> None:
    response = RevelatorQueryEngine(faculty).query(UNKNOWN)
    assert str(response).startswith("No answer: ") and response.source_nodes == []
    assert response.metadata["outcome"] == "unanswered" and response.metadata["certainty"] == "none"


def test_a_service_that_is_away_is_an_error_of_its_own_type(nowhere: str) -> None:
    with pytest.raises(Unavailable, match=nowhere):
        RevelatorQueryEngine(nowhere, retries=0).query(QUESTION)
