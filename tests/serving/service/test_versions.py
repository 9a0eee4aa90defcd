"""`model deploy` while the service answers: without a gap, without a version too many, and refused with the reason."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import click
import pytest
import tritonclient.grpc as grpc_client
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from tritonclient.utils import InferenceServerException

from revelator import registry
from revelator.artifact import digest_base, write_manifest
from revelator.channels import Headers, Tls
from revelator.client import Client
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.files import write_bytes
from serving.commands.deploy import deploy as command
from serving.commands.deploy import rollback
from serving.deploy.canary import CanaryPlan, CanaryRules
from serving.deploy.deploy import deploy
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.home.versions import REVELATOR, version_folder
from serving.models.engine import Engine
from serving.models.releases import read_release
from serving.service import control
from serving.service.access import read_control_token
from serving.service.addresses import Exposure
from tests.conftest import Endpoint
from tests.serving.conftest import SLOW
from tests.serving.deploy import kill_deploys
from tests.serving.deploy.test_deploy import asked_all_the_time
from tests.serving.service.conftest import WAIT, Service, serve_in_thread
from tests.serving.service.test_answers import text
from tests.serving.toy_model import write_adapter

QUESTION = "Where is Port Velm?"
DAMAGED, SENSELESS = 3, 4
KILLS = 4  # one in each quarter of a deploy
PATIENT = CanaryRules(comparisons=8, latency_ratio=1e9, agreement=0.0, validity_loss=1.0)  # no timing

pytestmark = pytest.mark.timeout(900)  # loads of models; how busy the machine is must not decide


@pytest.fixture(scope="module")
def versions_home(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with four versions in its registry, of which two are sound."""
    home = tmp_path_factory.mktemp("versions")
    registry.connect(home)
    for seed in (1, 2, DAMAGED, SENSELESS):
        adapter = write_adapter(home / "adapters" / str(seed), base, seed)
        weights = adapter / "adapter_model.safetensors"
        if seed == DAMAGED:
            weights.write_bytes(b"no weights")
        if seed == SENSELESS:
            save_file({name: value * float("nan") for name, value in load_file(weights).items()}, weights)
        write_manifest(adapter, base_name=str(base), base_digest=digest_base(base), data_digest=f"{seed}", run_id="")
        registry.register_adapter(adapter)
    return home


on_triton_too = pytest.mark.parametrize("deploying", ["none", "local"], indirect=True)


@pytest.fixture(scope="module")
def deploying(
    versions_home: Path, index: Path, endpoint: Endpoint, request: pytest.FixtureRequest
) -> Iterator[Service]:
    """A service of version 1, whose release judges: in its own process, and on a Triton server."""
    place = getattr(request, "param", "none")
    registry.connect(versions_home)
    deploy(versions_home, find(1))
    reader = {"generator": endpoint.url, "generator_model": "m", "text": False}
    patient = {"deadline_ms": 1000 * SLOW}  # of a question that is held while a busy machine loads a version
    config = configure(versions_home, index=index, **reader, limits=patient)
    with serve_in_thread(versions_home, config, place=place) as (questions, running):
        yield Service(versions_home, running, questions, endpoint)


@pytest.fixture
def service(deploying: Service) -> Iterator[Service]:
    registry.connect(deploying.home)
    deploying.endpoint.knowledge[QUESTION] = ["Orland"]
    deploy(deploying.home, find(1))
    yield deploying
    deploying.release()
    deploying.await_count()
    deploying.endpoint.gates.clear()


def find(version: int) -> registry.Version:
    return registry.resolve(registry.NAME, version)


def ask_for_version(client: Client, question: str = QUESTION) -> str:
    return client.ask(question, strategy="single").trace.versions[REVELATOR]


def run(service: Service, *arguments: str, command: click.Command = command) -> dict[str, object]:
    done = CliRunner().invoke(command, [*arguments, "--home", str(service.home), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@on_triton_too
def test_the_commands_change_the_version_of_a_running_service_without_a_gap(service, client, triton):
    with asked_all_the_time(client, QUESTION) as answers:
        done = run(service, "--alias", "2")
        assert (done["version"], done["previous"], done["url"]) == (2, 1, service.url)
        assert ask_for_version(client) == "2"
        assert triton.is_model_ready(REVELATOR, "2") and not triton.is_model_ready(REVELATOR, "1")
        assert run(service, "--served", command=rollback)["version"] == 1
        assert ask_for_version(client) == "1"
        assert not triton.is_model_ready(REVELATOR, "2")
    assert {answer.outcome for answer in answers} == {"answered"}
    assert {answer.trace.versions[REVELATOR] for answer in answers} <= {"1", "2"}, "no question has two"


@on_triton_too
@pytest.mark.parametrize(("version", "reason"), [(DAMAGED, "cannot be loaded"), (SENSELESS, "smoke test failed")])
def test_a_version_that_does_not_load_or_answers_no_sense_is_refused_and_the_live_one_stays(
    service, client, triton, version, reason
):
    before = read_release(service.home)
    with asked_all_the_time(client, QUESTION) as answers:
        with pytest.raises(ArtifactError, match=reason):
            deploy(service.home, find(version))
        assert ask_for_version(client) == "1"
    assert {(answer.outcome, answer.trace.versions[REVELATOR]) for answer in answers} == {("answered", "1")}
    assert read_release(service.home) == before
    assert not triton.is_model_ready(REVELATOR, str(version))


@on_triton_too
def test_a_question_under_way_keeps_its_version_which_is_closed_after_it(service, client, triton):
    [held] = service.hold("keeping", 1)
    with ThreadPoolExecutor(2) as threads, Client(service.url, timeout=SLOW) as patient:
        pending = threads.submit(ask_for_version, patient, held)
        service.await_start(held)
        deploying = threads.submit(deploy, service.home, find(2))
        while ask_for_version(client) != "2":
            assert not deploying.done()
        assert triton.is_model_ready(REVELATOR, "1"), "the question holds it"
        service.release()
        assert pending.result(WAIT) == "1"
        assert deploying.result(60).release.version == 2
    assert not triton.is_model_ready(REVELATOR, "1")


def test_a_release_that_cannot_be_read_costs_no_question_that_has_begun(service, client):
    [held] = service.hold("reading", 1)
    record = service.home / "release.json"
    sound = record.read_bytes()
    with ThreadPoolExecutor(1) as thread:
        pending = thread.submit(ask_for_version, client, held)
        service.await_start(held)
        try:
            write_bytes(record, b"{}")
            with pytest.raises(RevelatorError, match=r"release\.json"):
                ask_for_version(client)
            service.release()
            assert pending.result(WAIT) == "1"
        finally:
            write_bytes(record, sound)
    assert ask_for_version(client) == "1"


def test_the_engine_of_the_version_before_is_gone_after_each_deploy(service, client):
    def find_engines() -> list[weakref.ref[Engine]]:
        gc.collect()
        return [weakref.ref(found) for found in gc.get_objects() if isinstance(found, Engine)]

    deploy(service.home, find(2))
    for version in (1, 2, 1, 2):
        before = find_engines()
        deploy(service.home, find(version))
        assert ask_for_version(client) == str(version)
        assert len(find_engines()) == len(before) and [engine() for engine in before].count(None) == 1


@on_triton_too
def test_deploys_that_are_killed_cost_no_question_and_are_finished_by_the_next(service, client, triton):
    arguments = [sys.executable, kill_deploys.__file__, str(service.home), str(KILLS), "5", "600"]
    with asked_all_the_time(client, QUESTION) as answers:
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=700)
        deploy(service.home, find(1))
    assert result.returncode == 0, result.stderr
    assert sum(json.loads(line)["killed"] for line in result.stdout.splitlines()) == KILLS
    assert {answer.outcome for answer in answers} == {"answered"}
    assert {answer.trace.versions[REVELATOR] for answer in answers} == {"1", "2"}
    assert [n for n in "1234" if triton.is_model_ready(REVELATOR, n)] == ["1"]


@on_triton_too
def test_a_canary_answers_its_share_is_compared_and_then_withdrawn_or_deployed(service, client, triton):
    plan = CanaryPlan(service.home, find(2), 0.5, PATIENT)
    asked, answered = iter(range(10_000)), set()

    def ask(_: int) -> None:
        for _ in range(4):
            answered.add(ask_for_version(client, f"{QUESTION} {next(asked)}"))

    strict = replace(plan, rules=replace(PATIENT, agreement=1.01))
    verdict = strict.run(ask)
    assert not verdict.passes and answered == {"1", "2"} and verdict.comparisons >= 8
    assert read_release(service.home).canary is None and not triton.is_model_ready(REVELATOR, "2")
    assert plan.run(ask).passes and read_release(service.home).version == 2
    assert ask_for_version(client) == "2" and not triton.is_model_ready(REVELATOR, "1")


def test_a_service_that_starts_with_a_canary_has_it_ready(versions_home, index, endpoint, tmp_path, base):
    registry.connect(versions_home)
    for version in (1, 2):
        deploy(tmp_path, find(version))
    reader = {"generator": endpoint.url, "generator_model": "m", "text": False}
    config = configure(tmp_path, index=index, **reader)
    with serve_in_thread(tmp_path, config):
        CanaryPlan(tmp_path, find(1), 0.5, PATIENT).begin()
    with serve_in_thread(tmp_path, config) as (_, running):
        assert control.is_ready(running.grpc, 1) and control.is_ready(running.grpc, 2)
    damaged = version_folder(tmp_path, 1) / "adapter" / "adapter_model.safetensors"
    damaged.write_bytes(b"no weights")
    with serve_in_thread(tmp_path, config) as (_, running), Client(running.grpc, WAIT) as client:
        assert not control.is_ready(running.grpc, 1)
        endpoint.knowledge[QUESTION] = ["Orland"]
        assert {ask_for_version(client, f"{QUESTION} {n}") for n in range(8)} == {"2"}


def test_the_version_that_a_request_names_answers_and_one_that_is_not_loaded_is_unknown(service, triton):
    inputs = [text("task", "route", batch=True), text("prompt", "Question: who?\nRoute:", batch=True)]
    for named in ("", "1"):
        assert triton.infer(REVELATOR, inputs, named).get_response().model_version == "1"
    for absent in ("2", "77", "two"):
        with pytest.raises(InferenceServerException, match="unknown model") as refused:
            triton.infer(REVELATOR, inputs, absent)
        assert refused.value.status() == "StatusCode.NOT_FOUND"
        assert not triton.is_model_ready(REVELATOR, absent)


def load(service: Service, token: str, **arguments: object) -> None:
    with grpc_client.InferenceServerClient(service.url) as triton:
        triton.register_plugin(Headers(token))
        triton.load_model(REVELATOR, **arguments)


def test_only_the_home_folder_that_is_served_changes_versions(service, triton, tmp_path):
    for stranger in (lambda: triton.load_model(REVELATOR), lambda: load(service, "c0ffee")):
        with pytest.raises(InferenceServerException, match="control token"):
            stranger()
    with pytest.raises(ConfigError, match="another control token"):
        control.load(tmp_path, service.url, [1])


def test_a_load_that_cannot_be_done_says_why_and_changes_nothing(service, triton):
    token = read_control_token(service.home)
    missing = '{"version_policy": {"specific": {"versions": [1, 77]}}}'
    with pytest.raises(InferenceServerException, match=r"revelator/77: there is no such version"):
        load(service, token, config=missing)
    with pytest.raises(ArtifactError, match=r"does not load: .*no such version"):
        control.load(service.home, service.url, [1, 77])
    for config in ("no JSON", '{"version_policy": 3}'):
        with pytest.raises(InferenceServerException, match="cannot be read"):
            load(service, token, config=config)
    with pytest.raises(InferenceServerException) as refused:
        triton.unload_model(REVELATOR)
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"
    assert triton.is_model_ready(REVELATOR, "1") and not triton.is_model_ready(REVELATOR, "77")


def test_a_service_with_mutual_tls_changes_versions_by_the_environment_s_certificates(
    versions_home: Path, index: Path, endpoint: Endpoint, authority: Tls, tmp_path: Path, monkeypatch
):
    registry.connect(versions_home)
    deploy(tmp_path, find(1))
    reader = {"generator": endpoint.url, "generator_model": "m", "text": False}
    config = configure(tmp_path, index=index, **reader)
    with serve_in_thread(tmp_path, config, Exposure(tls=authority, mutual=True)) as (_, running):
        with pytest.raises(Unavailable):
            deploy(tmp_path, find(2))
        assert read_release(tmp_path).version == 1
        for name, value in authority.to_environment().items():
            monkeypatch.setenv(name, value)
        assert deploy(tmp_path, find(2)).url == running.grpc
        assert control.is_ready(running.grpc, 2) and not control.is_ready(running.grpc, 1)


def test_where_an_endpoint_plans_and_judges_a_deploy_is_recorded_alone(
    versions_home: Path, config: ServingConfig, tmp_path: Path, endpoint: Endpoint
):
    registry.connect(versions_home)
    planner = {"url": endpoint.url, "model": "m"}
    asked = ServingConfig(**{**dict(config), "planner": planner})
    with serve_in_thread(tmp_path, asked) as (_, running):
        done = deploy(tmp_path, find(1))
        assert (done.url, done.release.version) == (None, 1)
        with pytest.raises(ArtifactError, match="runs no versions"):
            control.load(tmp_path, running.grpc, [1])
