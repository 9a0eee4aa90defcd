"""`examples/langchain_adapter.py` in LangChain and LangGraph themselves; a chat model of LangChain's own calls it."""

from __future__ import annotations

import asyncio

import pytest

from revelator.errors import Unavailable
from tests.serving.adapters.asked import ANSWER, QUESTION, UNKNOWN

pytest.importorskip("langgraph", reason="LangGraph is not installed: `make adapters` installs it")

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from examples.langchain_adapter import RevelatorRetriever, make_tool

CALL = ToolCall(name="ask_documents", args={"question": QUESTION}, id="1", type="tool_call")


def assert_answered(documents: list[Document]) -> None:
    [last] = [one for one in documents if ANSWER in one.metadata["answers"]]
    assert ANSWER in last.page_content and ANSWER in last.metadata["citation"]
    assert last.metadata["citation"].startswith(f"[{documents.index(last) + 1}] ")
    assert last.metadata["source"] == "directory/staff-directory.csv" and last.id.startswith(last.metadata["source"])
    assert 0 < last.metadata["probability"] <= 1 and 0 < last.metadata["relevance"] <= 1


async def test_the_retriever_gives_the_cited_passages_with_their_scores_in_both_ways(faculty: str) -> None:
    retriever = RevelatorRetriever(url=faculty)
    documents = await asyncio.to_thread(retriever.invoke, QUESTION)
    assert_answered(documents)
    assert await retriever.ainvoke(QUESTION) == documents


async def test_what_no_document_says_has_no_documents_and_the_tool_says_why(faculty: str) -> None:
    assert await RevelatorRetriever(url=faculty).ainvoke(UNKNOWN) == []
    message = await make_tool(faculty).ainvoke(CALL | {"args": {"question": UNKNOWN}})
    assert message.content.startswith("No answer: ") and message.artifact == [] and message.status == "success"


def test_a_service_that_is_away_is_an_error_that_fallbacks_take(nowhere: str) -> None:
    retriever = RevelatorRetriever(url=nowhere, retries=0)
    with pytest.raises(Unavailable, match=nowhere):
        retriever.invoke(QUESTION)
    other = retriever.with_fallbacks([RunnableLambda(lambda query: [])], exceptions_to_handle=(Unavailable,))
    assert other.invoke(QUESTION) == []


def make_agent(url: str) -> CompiledStateGraph:
    """An agent that calls the tool once, and then stops."""
    says = iter([AIMessage("", tool_calls=[CALL]), AIMessage("done")])
    model = GenericFakeChatModel(messages=says)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([make_tool(url, retries=0)]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_agent_of_langgraph_reads_the_answer_and_keeps_the_documents(faculty: str, is_async: bool) -> None:
    agent, asked = make_agent(faculty), {"messages": [("user", QUESTION)]}
    state = await agent.ainvoke(asked) if is_async else await asyncio.to_thread(agent.invoke, asked)
    [told] = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert told.content.startswith(f"{ANSWER}\n") and "certainty: " in told.content and "\n[1] " in told.content
    assert_answered(told.artifact)
    assert state["messages"][-1].content == "done"


def test_an_agent_is_told_of_an_error_and_goes_on(nowhere: str) -> None:
    state = make_agent(nowhere).invoke({"messages": [("user", QUESTION)]})
    [told] = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert told.status == "error" and nowhere in told.content and "hint: " in told.content
    assert state["messages"][-1].content == "done"
