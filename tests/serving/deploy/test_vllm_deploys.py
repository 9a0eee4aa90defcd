"""Deploys to the real vLLM: the promises of our own engine, with versions as adapters that it loads while it runs.

The executor's side is the one that it has behind Triton (`Traffic`, `RoutedRevelator`), in this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator import registry
from revelator.artifact import base_folder
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.tasks import TASKS, RouteInput
from serving.commands.deploy import deploy as command
from serving.deploy.canary import Rollout, Rules
from serving.deploy.deploy import deploy, roll_back
from serving.models.releases import Traffic, read_release
from serving.models.routing import RoutedRevelator
from serving.models.vllm_server import ReleasedAdapter, VllmServer
from tests.serving.toy_model import write_adapter

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]  # how busy the machine is must not decide
SWITCHES = 20
KILLS = 6
ROUTE = TASKS["route"].render(RouteInput("Who wrote the song that the ferry of Little Quay is named after?"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A registry with versions 1 and 2 of adapters of the base that vLLM serves; 3 has a rank that it refuses."""
    home = tmp_path_factory.mktemp("registry")
    store = f"sqlite:///{home / 'mlflow.db'}"
    registry.connect(store, home)
    for seed, rank in ((1, 2), (2, 2), (3, 64)):
        registry.register_adapter(write_adapter(home / str(seed), base_folder("tiny"), seed, rank, share=0.02))
    return store


@pytest.fixture
def versions(store: str) -> dict[int, registry.Version]:
    registry.connect(store)
    return {number: registry.resolve(registry.NAME, number) for number in (1, 2, 3)}


@contextmanager
def asked_all_the_time(home: Path, url: str) -> Iterator[list[str]]:
    """The versions that answered the same question, asked over and over by another thread until the block ends."""
    answered: list[str] = []
    enough = threading.Event()

    async def ask() -> None:
        released = ReleasedAdapter(url, timeout=600)
        routed, traffic = RoutedRevelator(released, home), Traffic(home)
        while not enough.is_set():
            with traffic.route_question(f"question {len(answered)}") as choice:
                [completion] = await routed.complete("route", [ROUTE])
            assert sum(completion.probabilities.values()) == pytest.approx(1)
            answered.append(choice.versions()["revelator"])
        await routed.close()
        await released.close()

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(asyncio.run, ask())
        try:
            yield answered
        finally:
            enough.set()
            asking.result()


def test_the_command_loads_a_version_asks_it_and_names_it_in_the_release(
    vllm_url: str, store: str, tmp_path: Path
) -> None:
    asked = ["--engine", "vllm", "--url", vllm_url.removesuffix("/v1"), "--home", str(tmp_path)]
    done = CliRunner().invoke(command, [*asked, "--alias", "1", "--tracking-uri", store, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["version"], told["vllm"], told["url"]) == (1, vllm_url, vllm_url)
    assert VllmServer(vllm_url).list_versions() == {1}
    release = read_release(tmp_path)
    assert release and release.vllm == vllm_url


def test_twenty_switches_under_load_fail_no_question_and_no_answer_is_by_two_versions(
    vllm_url: str, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    deploy(tmp_path, versions[1], vllm=vllm_url)
    with asked_all_the_time(tmp_path, vllm_url) as answered:
        for turn in range(SWITCHES):
            number = 2 - turn % 2
            assert deploy(tmp_path, versions[number]).release.version == number
            assert VllmServer(vllm_url).list_versions() == {number}
        assert roll_back(tmp_path).release.version == 2
    assert set(answered) == {"1", "2"}


def test_a_version_that_vllm_refuses_leaves_the_old_one_answering(
    vllm_url: str, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    deploy(tmp_path, versions[2], vllm=vllm_url)
    before = read_release(tmp_path)
    with pytest.raises(ArtifactError, match=r"refuses the adapter.*rank"):
        deploy(tmp_path, versions[3])
    assert read_release(tmp_path) == before and VllmServer(vllm_url).list_versions() == {2}


def test_a_deploy_killed_at_any_moment_costs_no_question_and_is_finished_by_the_next(
    vllm_url: str, store: str, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    deploy(tmp_path, versions[1], vllm=vllm_url)
    began = time.monotonic()
    deploy(tmp_path, versions[2])
    usual, draw = time.monotonic() - began, random.Random(4)
    with asked_all_the_time(tmp_path, vllm_url) as answered:
        for turn in range(KILLS):
            number = 1 + turn % 2
            child = os.spawnv(os.P_NOWAIT, "/usr/bin/env", ["env", *deploy_command(tmp_path, store, number)])
            time.sleep(usual * draw.uniform(0.5, 4))  # anywhere in its imports, its load, its switch
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert deploy(tmp_path, versions[number]).release.version == number
            assert VllmServer(vllm_url).list_versions() == {number}
    assert set(answered) == {"1", "2"}


def deploy_command(home: Path, store: str, number: int) -> list[str]:
    return ["revelator", "model", "deploy", "--alias", str(number), "--home", str(home), "--tracking-uri", store]


def test_a_canary_answers_its_share_and_takes_over(
    vllm_url: str, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    deploy(tmp_path, versions[1], vllm=vllm_url)
    rules = Rules(comparisons=5, latency_ratio=100, agreement=0, validity_loss=1)
    with asked_all_the_time(tmp_path, vllm_url) as answered:
        verdict = Rollout(tmp_path, versions[2], 0.5, rules, seconds=1800).run()
    assert verdict.passes and verdict.comparisons >= 5 and {"1", "2"} <= set(answered)
    release = read_release(tmp_path)
    assert release and (release.version, release.canary) == (2, None)
    assert VllmServer(vllm_url).list_versions() == {2}


def test_a_server_that_is_away_or_another_deploy_under_way_is_said(
    vllm_url: str, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    with pytest.raises(Unavailable, match="vLLM does not answer"):
        deploy(tmp_path, versions[1], vllm="http://127.0.0.1:9")
    assert read_release(tmp_path) is None
    with pytest.raises(ConfigError, match="not an http or https address"):
        deploy(tmp_path, versions[1], vllm="localhost:8000")
    with pytest.raises(RevelatorError):
        VllmServer(vllm_url).load(9, tmp_path)
