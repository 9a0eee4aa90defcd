"""Deploys to the real vLLM: the promises of our own engine, with versions as adapters that it loads while it runs.

The executor's side is the one that it has in a service (`Traffic`, `CanaryRevelator`), in this process.
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
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from revelator import registry
from revelator.artifact import digest_base, write_manifest
from revelator.client import Client
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.tasks import TASKS, QuestionInput
from serving.commands.deploy import deploy as command
from serving.deploy.canary import CanaryPlan, CanaryRules
from serving.deploy.deploy import deploy, roll_back
from serving.deploy.watch import Reconciler
from serving.home.configure import configure
from serving.models.comparisons import CanaryRevelator
from serving.models.releases import Traffic, read_release
from serving.models.vllm_server import ReleasedAdapter, VllmServer
from tests.causal import TINY
from tests.served_base import serve_vllm
from tests.service_thread import serve_in_thread
from tests.serving.toy_model import write_adapter, write_base

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(3600)]  # how busy the machine is must not decide
SWITCHES = 20
KILLS = 6
QUESTION = "Who wrote the song that the ferry of Little Quay is named after?"
ROUTE = TASKS["route"].render(QuestionInput(QUESTION))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A registry with versions 1 and 2 of adapters of the base that vLLM serves. The others are refused: 3 for its
    rank, 4 for its modules, and 5 as it is of another base."""
    home = tmp_path_factory.mktemp("registry")
    registry.connect(home)
    other, tiny = write_base(home / "base"), TINY
    for seed, rank, base in ((1, 2, tiny), (2, 2, tiny), (3, 64, tiny), (4, 2, tiny), (5, 2, other)):
        adapter = write_adapter(home / str(seed), base, seed, rank, share=0.02)
        if seed == 4:
            settings = json.loads((adapter / "adapter_config.json").read_text())
            (adapter / "adapter_config.json").write_text(json.dumps(settings | {"use_dora": True}))
            write_manifest(adapter, base_name=str(TINY), base_digest=digest_base(tiny), data_digest="4", run_id="")
        registry.register_adapter(adapter)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / 'mlflow.db'}")
        yield


@pytest.fixture
def versions(store: None) -> dict[int, registry.Version]:
    registry.connect()
    return {number: registry.resolve(registry.NAME, number) for number in range(1, 6)}


@contextmanager
def asked_all_the_time(home: Path, url: str) -> Iterator[list[str]]:
    """The versions that answered the same question, asked over and over by another thread until the block ends."""
    answered: list[str] = []
    enough = threading.Event()

    async def ask() -> None:
        released = ReleasedAdapter(url, timeout=600)
        routed, traffic = CanaryRevelator(released, home), Traffic(home)
        while not enough.is_set():
            with traffic.choose_version(f"question {len(answered)}") as choice:
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
    vllm_url: str, store: None, tmp_path: Path
) -> None:
    asked = ["--engine", "vllm", "--url", vllm_url.removesuffix("/v1"), "--home", str(tmp_path)]
    done = CliRunner().invoke(command, [*asked, "--alias", "1", "--json"])
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


@pytest.mark.parametrize(("number", "says"), [(3, "rank"), (4, "DoRA"), (5, "the server's base is")])
def test_a_version_that_vllm_refuses_leaves_the_old_one_answering(
    vllm_url: str, versions: dict[int, registry.Version], tmp_path: Path, number: int, says: str
) -> None:
    deploy(tmp_path, versions[2], vllm=vllm_url)
    before = read_release(tmp_path)
    with pytest.raises(ArtifactError, match=says):
        deploy(tmp_path, versions[number])
    assert read_release(tmp_path) == before and VllmServer(vllm_url).list_versions() == {2}


def test_a_deploy_killed_at_any_moment_costs_no_question_and_is_finished_by_the_next(
    vllm_url: str, store: None, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    deploy(tmp_path, versions[1], vllm=vllm_url)
    began = time.monotonic()
    deploy(tmp_path, versions[2])
    usual, draw = time.monotonic() - began, random.Random(4)
    with asked_all_the_time(tmp_path, vllm_url) as answered:
        for turn in range(KILLS):
            number = 1 + turn % 2
            child = os.spawnv(os.P_NOWAIT, "/usr/bin/env", ["env", *deploy_command(tmp_path, number)])
            time.sleep(usual * draw.uniform(0.5, 4))  # anywhere in its imports, its load, its switch
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            assert deploy(tmp_path, versions[number]).release.version == number
            assert VllmServer(vllm_url).list_versions() == {number}
    assert set(answered) == {"1", "2"}


def deploy_command(home: Path, number: int) -> list[str]:
    return ["revelator", "model", "deploy", "--alias", str(number), "--home", str(home)]


def test_a_canary_answers_its_share_and_takes_over(
    vllm_url: str, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    deploy(tmp_path, versions[1], vllm=vllm_url)
    rules = CanaryRules(comparisons=5, latency_ratio=100, agreement=0, validity_loss=1)
    with asked_all_the_time(tmp_path, vllm_url) as answered:
        verdict = CanaryPlan(tmp_path, versions[2], 0.5, rules, seconds=1800).run()
    assert verdict.passes and verdict.comparisons >= 5 and {"1", "2"} <= set(answered)
    release = read_release(tmp_path)
    assert release and (release.version, release.canary) == (2, None)
    assert VllmServer(vllm_url).list_versions() == {2}


def test_a_replica_that_follows_an_alias_loads_its_version_again_after_vllm_has_lost_it(
    vllm_url: str, store: None, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    registry.open_client().set_registered_model_alias(registry.NAME, "followed", "1")
    follower = Reconciler(tmp_path, registry.NAME, "followed", vllm_url)
    server = VllmServer(vllm_url)
    assert (made := follower.reconcile()) and made.version == 1 and server.list_versions() == {1}
    assert follower.reconcile() is None
    registry.open_client().set_registered_model_alias(registry.NAME, "followed", "2")
    assert (made := follower.reconcile()) and made.version == 2 and server.list_versions() == {2}
    server.unload(2)  # as after a restart
    assert (made := follower.reconcile()) and made.version == 2 and server.list_versions() == {2}


def test_a_server_of_ours_plans_at_vllm_with_the_version_of_the_release(
    vllm_url: str, versions: dict[int, registry.Version], index: Path, tmp_path: Path
) -> None:
    deploy(tmp_path, versions[1], vllm=vllm_url)
    config = configure(tmp_path, index=index)
    with serve_in_thread(tmp_path, config) as (_, running), Client(running.grpc) as client:
        assert running.models == {"executor": 1, "revelator": 1}
        answers = [client.ask(QUESTION)]
        with pytest.raises(ConfigError, match=f"asks vLLM at {vllm_url}"):
            deploy(tmp_path, versions[2], vllm="")
        assert deploy(tmp_path, versions[2]).release.version == 2
        answers.append(client.ask(QUESTION))
    assert [answer.trace.versions["revelator"] for answer in answers] == ["1", "2"]
    assert all(answer.outcome != "failed" for answer in answers)


def test_a_server_that_is_away_an_address_that_is_none_and_a_folder_without_an_adapter_are_said(
    vllm_url: str, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    with pytest.raises(Unavailable, match="vLLM does not answer"):
        deploy(tmp_path, versions[1], vllm="http://127.0.0.1:9")
    assert read_release(tmp_path) is None
    with pytest.raises(ConfigError, match="not an http or https address"):
        deploy(tmp_path, versions[1], vllm="localhost:8000")
    with pytest.raises(RevelatorError):
        VllmServer(vllm_url).load(9, tmp_path)


def test_a_server_that_dies_while_it_loads_a_version_leaves_the_release_as_it_was(
    served_base: Path, vllm: Path, versions: dict[int, registry.Version], tmp_path: Path
) -> None:
    with ExitStack() as stack:
        deploy(tmp_path, versions[1], vllm=stack.enter_context(serve_vllm(served_base, vllm)))
        before = read_release(tmp_path)
        with pytest.raises(Unavailable, match="vLLM does not answer"):
            deploy(tmp_path, versions[2], report=lambda said: stack.close() if said.startswith("load") else None)
        assert read_release(tmp_path) == before
