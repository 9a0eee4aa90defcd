"""`examples/haystack_adapter.py` in pipelines of Haystack itself."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from revelator.errors import Unavailable
from tests.serving.adapters.asked import ANSWER, QUESTION, UNKNOWN

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"  # it is read when Haystack is imported
pytest.importorskip("haystack", reason="Haystack is not installed: `make adapters` installs it")

from haystack import Pipeline
from haystack.components.joiners import DocumentJoiner
from haystack.core.errors import PipelineRuntimeError

from examples.haystack_adapter import RevelatorAnswerer


def make_pipeline(url: str) -> Pipeline:
    """The documents go on to a component of Haystack's own, which sorts them by their scores."""
    pipeline = Pipeline()
    pipeline.add_component("revelator", RevelatorAnswerer(url, retries=0))
    pipeline.add_component("joiner", DocumentJoiner())
    pipeline.connect("revelator.documents", "joiner.documents")
    return pipeline


def assert_answered(output: dict[str, Any]) -> None:
    [answer] = output["revelator"]["answers"]
    assert ANSWER in answer.data and answer.query == QUESTION and answer.meta["answers"] == [ANSWER]
    [last] = [one for one in answer.documents if ANSWER in one.meta["answers"]]
    assert ANSWER in last.content and 0 < last.score <= 1
    assert last.meta["citation"] in answer.meta["citations"] and last.id.startswith(last.meta["source"])
    scores = [one.score for one in output["joiner"]["documents"]]
    assert len(scores) == len(answer.documents) and scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_pipeline_gets_the_answer_and_its_documents(faculty: str, is_async: bool) -> None:
    pipeline, asked = make_pipeline(faculty), {"revelator": {"query": QUESTION}}
    if is_async:
        output = await pipeline.run_async(asked, include_outputs_from={"revelator"})
    else:
        output = await asyncio.to_thread(pipeline.run, asked, include_outputs_from={"revelator"})
    assert_answered(output)


def test_a_query_without_an_answer_says_why(faculty: str) -> None:
    output = RevelatorAnswerer(faculty).run(UNKNOWN)
    assert output["answers"] == output["documents"] == [] and output["reason"]


def test_a_pipeline_is_written_down_and_read_again(faculty: str) -> None:
    written = make_pipeline(faculty).dumps()
    read = Pipeline.loads(written, allowed_modules=["examples.haystack_adapter"])
    assert read.get_component("revelator").url == faculty and read.dumps() == written


def test_a_service_that_is_away_ends_the_pipeline_with_the_component_s_name_and_the_reason(nowhere: str) -> None:
    with pytest.raises(PipelineRuntimeError, match=nowhere) as raised:
        make_pipeline(nowhere).run({"revelator": {"query": QUESTION}})
    assert raised.value.component_name == "revelator" and isinstance(raised.value.__cause__, Unavailable)
