"""The service answers what was asked before from memory, unless it is told not to, and never with what an index, a list
of sources or a version said that is served no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from revelator import registry
from revelator.artifact import digest_base, write_manifest
from revelator.cli import revelator
from revelator.client import Answer, Client
from revelator.trace import Node, Usage
from serving.deploy.deploy import deploy, release_embedded_base
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.retrieval import build_index
from tests.conftest import Endpoint
from tests.serving.service.conftest import WAIT, serve_in_thread
from tests.serving.toy_model import write_adapter

QUESTION = "Where is Sarnath?"
Serve = Callable[..., tuple[Client, str]]


@pytest.fixture
def own_home(tmp_path: Path) -> Path:
    """One of each test's own: the folder of the other tests is served meanwhile."""
    release_embedded_base(tmp_path / "served")
    return tmp_path / "served"


@pytest.fixture
def start(endpoint: Endpoint) -> Iterator[Serve]:
    """Starts a service of a home folder, in place of the one before."""
    endpoint.knowledge[QUESTION] = ["Orland"]
    with ExitStack() as stack:

        def start(home: Path, config: ServingConfig) -> tuple[Client, str]:
            stack.close()
            _, running = stack.enter_context(serve_in_thread(home, config))
            return stack.enter_context(Client(running.grpc, timeout=WAIT)), running.http

        yield start


@pytest.fixture
def remembering(config: ServingConfig) -> ServingConfig:
    return config.model_copy(update={"answer_cache": True})


def ask(client: Client, fresh: bool = False) -> tuple[Answer, Node]:
    answer = client.ask(QUESTION, strategy="single", fresh=fresh)
    [leaf] = [node for node in answer.trace.nodes if node.kind == "atomic"]
    return answer, leaf


def is_cached(client: Client) -> bool:
    return "cached_from" in ask(client)[1].detail


def test_the_second_question_costs_no_call_and_says_since_when_its_answer_is_known(
    start: Serve, own_home: Path, remembering: ServingConfig
):
    client, http = start(own_home, remembering)
    first, _ = ask(client)
    second, leaf = ask(client)
    assert first.answers == second.answers == ("Orland",) and second.outcome == "answered"
    assert leaf.detail["cached_from"]
    assert second.trace.usage == Usage() != first.trace.usage
    assert second.trace.versions == first.trace.versions, "those that found the answer"
    assert second.evidence == first.evidence
    metrics = httpx.get(f"{http}/metrics").text
    assert 'revelator_leaves_total{model="executor",source="cached",status="ok"}' in metrics


def test_a_question_may_ask_for_fresh_answers(start: Serve, own_home: Path, remembering: ServingConfig):
    client, _ = start(own_home, remembering)
    ask(client)
    answer, leaf = ask(client, fresh=True)
    assert "cached_from" not in leaf.detail and answer.trace.usage != Usage()
    assert is_cached(client)


def test_a_service_that_is_told_not_to_answers_nothing_from_memory(start: Serve, own_home: Path, config: ServingConfig):
    client, _ = start(own_home, config)
    assert not config.answer_cache and ServingConfig().answer_cache
    assert [is_cached(client) for _ in range(2)] == [False, False]


def test_an_index_that_was_added_to_answers_with_what_it_says_now(
    start: Serve, own_home: Path, remembering: ServingConfig, endpoint: Endpoint, tmp_path: Path
):
    documents, index = tmp_path / "documents", tmp_path / "index"
    documents.mkdir()
    (documents / "towns.md").write_text("# Sarnath\n\nSarnath is a town in Orland.\n")
    build_index([documents], index)
    config = remembering.model_copy(update={"index": index})
    client, _ = start(own_home, config)
    assert [is_cached(client) for _ in range(2)] == [False, True]
    (documents / "towns.md").write_text("# Sarnath\n\nSarnath is a town in Vesk since 1990.\n")
    added = CliRunner().invoke(revelator, ["index", "update", str(index), str(documents)])
    assert added.exit_code == 0, added.output
    endpoint.knowledge[QUESTION] = ["Vesk"]
    answer, leaf = ask(start(own_home, config)[0])
    assert answer.answers == ("Vesk",) and "cached_from" not in leaf.detail


def test_another_list_of_sources_is_asked_anew(
    start: Serve, own_home: Path, remembering: ServingConfig, endpoint: Endpoint, index: Path, tmp_path: Path
):
    client, _ = start(own_home, remembering)
    assert [is_cached(client) for _ in range(2)] == [False, True]
    sources = tmp_path / "sources.yaml"
    sources.write_text(f"sources:\n- {{kind: text, name: towns, index: {index}}}\n- {{kind: text, name: served}}\n")
    client, _ = start(own_home, remembering.model_copy(update={"sources": sources}))
    assert [is_cached(client) for _ in range(2)] == [False, True]


@pytest.mark.timeout(300)
def test_a_deploy_of_another_version_answers_nothing_that_the_one_before_had_judged(
    start: Serve, base: Path, index: Path, endpoint: Endpoint, tmp_path: Path
):
    registry.connect(tmp_path)
    for seed in (1, 2):
        adapter = write_adapter(tmp_path / "adapters" / str(seed), base, seed)
        write_manifest(adapter, base_name=str(base), base_digest=digest_base(base), data_digest=f"{seed}", run_id="")
        registry.register_adapter(adapter)
    deploy(tmp_path, registry.resolve(registry.NAME, 1))
    reader = {"generator": endpoint.url, "generator_model": "m", "text": False}
    client, _ = start(tmp_path, configure(tmp_path, index=index, **reader))

    def ask_twice() -> list[tuple[bool, str]]:
        found = [ask(client) for _ in range(2)]
        return [("cached_from" in leaf.detail, answer.trace.versions["revelator"]) for answer, leaf in found]

    assert ask_twice() == [(False, "1"), (True, "1")]
    deploy(tmp_path, registry.resolve(registry.NAME, 2))
    assert ask_twice() == [(False, "2"), (True, "2")]
    deploy(tmp_path, registry.resolve(registry.NAME, 1))
    assert ask_twice() == [(True, "1"), (True, "1")], "what version 1 judged is as it was"
