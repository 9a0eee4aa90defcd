"""What the language model of a deployment writes is a setting, and comes over the wire."""

from __future__ import annotations

import pytest

from revelator.client import Client
from revelator.errors import ConfigError
from serving.home.configure import configure
from serving.models.endpoint_revelator import PlannerConfig
from serving.protocols import Writing
from tests.service_thread import serve_in_thread

PLAN = "Who directed Lantern Row? * Where was {director} born?"
QUESTION = "Where was the director of Lantern Row born?"


def chosen(home, **settings) -> Writing:
    return configure(home, **settings).writing


def test_a_language_model_writes_the_text_and_no_knowledge_of_its_own_unless_it_is_told_otherwise(index, tmp_path):
    url = {"index": index, "generator": "http://127.0.0.1:9/v1", "generator_model": "m"}
    assert chosen(tmp_path, index=index) == Writing()
    assert chosen(tmp_path, **url) == Writing(text=True, reads_messages=True)
    assert chosen(tmp_path, **url, text=False, own_knowledge=True) == Writing(own_knowledge=True, reads_messages=True)


@pytest.mark.parametrize(("wrong", "option"), [({"text": True}, "text"), ({"own_knowledge": True}, "own_knowledge")])
def test_the_embedded_reader_writes_nothing_and_nobody_may_wait_for_it(index, tmp_path, wrong, option):
    with pytest.raises(ConfigError, match="writes no answers") as refused:
        configure(tmp_path, index=index, generator="embedded", **wrong)
    assert refused.value.where.startswith(option) and "--generator URL" in refused.value.hint


def test_the_text_comes_with_the_trace_and_numbers_what_was_read(endpoint, index, tmp_path):
    endpoint.knowledge |= {
        "Who directed Lantern Row?": ["Ines Calloway"],
        "Where was Ines Calloway born?": ["Port Velm"],
    }
    reader = {"generator": endpoint.url, "generator_model": "m", "judge": "none"}
    config = configure(tmp_path, index=index, **reader, planner=PlannerConfig(url=endpoint.url, model="m"))
    with serve_in_thread(tmp_path, config) as (_, running), Client(running.grpc) as client:
        trace = client.ask(QUESTION, plan=PLAN).trace
    assert trace.answers == ["Port Velm"] and trace.nodes[-1].kind == "write"
    assert trace.text and len(trace.list_citations()) == 2 and trace.list_citations()[0].startswith("[1] ")
