"""From the registry into the home folder: whole versions only, and one that fails leaves the old one serving.

Deploys into a running service: tests/serving/service/test_versions.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import mlflow
import pytest
from click.testing import CliRunner

from revelator import registry
from revelator.artifact import digest_base, verify_files, write_manifest
from revelator.client import Answer, Client
from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_folder, try_lock
from revelator.plans.language import LANGUAGES
from revelator.tasks import TASKS
from serving.commands.deploy import deploy as command
from serving.commands.deploy import rollback
from serving.deploy.deploy import deploy, release_embedded_base, roll_back, smoke_test
from serving.home.config import write_serving
from serving.home.configure import configure
from serving.home.versions import list_versions
from serving.models import releases
from serving.models.endpoint_revelator import PlannerConfig
from serving.models.releases import find_choice, read_release
from serving.protocols import Completion
from tests.service_thread import serve_in_thread
from tests.serving.toy_model import write_adapter


@pytest.fixture
def versions(registered) -> dict[int, registry.Version]:
    registry.connect(registered)
    return {number: registry.resolve(registry.NAME, number) for number in (1, 2)}


def is_whole(folder: Path) -> bool:
    release = json.loads((folder / "version.json").read_text())
    verify_files(folder / "adapter")
    return sha256_folder(folder / "adapter") == release["files"]


@dataclass
class Smoked:
    """An engine whose version 2 answers each task; a plan of the task `silent` has no text."""

    silent: str = ""
    asked: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def open_revelator(self) -> AsyncIterator[Smoked]:
        yield self

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        self.asked.append(task)
        find_choice().answered["revelator"].add("2")
        return [Completion("" if task == self.silent else "x", {"yes": 1.0} if TASKS[task].labels else {})]


TRANSLATIONS = [f"translate_{name}" for name in LANGUAGES]


@pytest.mark.parametrize("silent", TRANSLATIONS)
def test_a_version_is_asked_for_a_plan_in_each_language_that_it_has_learned_and_in_no_other(silent: str) -> None:
    with pytest.raises(ArtifactError, match=silent):
        asyncio.run(smoke_test(Smoked(silent), 2, TRANSLATIONS))
    engine = Smoked(silent)
    learned = [task for task in TRANSLATIONS if task != silent]
    asyncio.run(smoke_test(engine, 2, learned))
    assert engine.asked == ["route", "relevance", *learned]


def test_a_deployed_version_is_whole_and_recorded(versions, base, tmp_path):
    done = deploy(tmp_path, versions[1])
    assert done.folder == tmp_path / "model_repo" / "revelator" / "1" and is_whole(done.folder)
    assert (done.url, done.release.previous, done.release.base["folder"]) == (None, None, str(base))
    assert {path.name for path in done.folder.iterdir()} == {"adapter", "version.json"}
    assert "registered_model_meta" not in sha256_folder(done.folder / "adapter")
    assert releases.read_release(tmp_path) == done.release
    assert registry.resolve(registry.NAME, 1).tags["deployed"].endswith(str(tmp_path))


def test_the_next_version_names_the_one_before_and_an_old_one_comes_back_untouched(versions, tmp_path):
    first = deploy(tmp_path, versions[1])
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    second = deploy(tmp_path, versions[2])
    assert (second.release.version, second.release.previous) == (2, 1)
    again = deploy(tmp_path, versions[1])
    assert (again.release.files, again.release.previous) == (first.release.files, 2)
    assert deploy(tmp_path, versions[1]).release == again.release
    assert {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")} == before


def test_a_rollback_returns_to_the_version_before_without_the_registry_and_back_again(versions, tmp_path, monkeypatch):
    deploy(tmp_path, versions[1])
    with pytest.raises(ArtifactError, match="no version is recorded"):
        roll_back(tmp_path)
    deploy(tmp_path, versions[2])
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")  # `set_tracking_uri` would leave it set
    mlflow.set_tracking_uri("http://127.0.0.1:1")
    done = roll_back(tmp_path)
    assert (done.release.version, done.release.previous) == (1, 2)
    assert done.registry_error is not None and "127.0.0.1:1" in done.registry_error
    assert roll_back(tmp_path).release.version == 2


def test_the_command_rolls_back_a_home_that_has_no_registry_and_makes_none(versions, tmp_path, monkeypatch):
    for number in (1, 2):
        deploy(tmp_path / "home", versions[number])
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(rollback, ["--served", "--home", "home", "--json"])
    done = json.loads(result.stdout)
    assert done["version"] == 1 and "nothing stands there" in done["registry_error"]
    assert not list(tmp_path.rglob("mlflow.db"))


def test_old_versions_beyond_the_number_to_keep_go_but_never_the_previous_one(versions, tmp_path):
    models = tmp_path / "model_repo" / "revelator"
    deploy(tmp_path, versions[1])
    for old in ("0", "3", "4"):
        shutil.copytree(models / "1", models / old)
    assert deploy(tmp_path, versions[2]).removed == (0,)
    assert list_versions(tmp_path) == [1, 2, 3, 4]


def test_a_version_whose_base_has_changed_is_refused_and_nothing_is_left(versions, base, tmp_path):
    changed = tmp_path / "base"
    shutil.copytree(base, changed)
    digest = digest_base(changed)
    adapter = write_adapter(tmp_path / "adapter", changed, seed=9)
    write_manifest(adapter, base_name=str(changed), base_digest=digest, data_digest="9", run_id="")
    number = registry.register_adapter(adapter, name="changed")
    (changed / "config.json").write_text((changed / "config.json").read_text() + "\n")
    with pytest.raises(ArtifactError, match="when the adapter was trained"):
        deploy(tmp_path / "home", registry.resolve("changed", number))
    assert list_versions(tmp_path / "home") == []
    assert [p.name for p in (tmp_path / "home" / "model_repo" / "revelator").iterdir()] == []


def state(home: Path) -> dict[str, str | int]:
    """Every file below a home folder by its digest and time."""
    files = sha256_folder(home, leave_out=frozenset({".deploy.lock"}))
    return files | {f"{name} time": (home / name).stat().st_mtime_ns for name in files}


def test_a_damaged_adapter_is_refused_before_the_live_version_is_touched(versions, registered, base, tmp_path):
    deploy(tmp_path / "home", versions[1])
    before = state(tmp_path / "home")
    stored = set(registered.rglob("adapter_model.safetensors"))
    number = registry.register_adapter(write_adapter(tmp_path / "adapter", base, seed=7), name="damaged")
    [weights] = set(registered.rglob("adapter_model.safetensors")) - stored
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")  # one byte, in the artifact store
    with pytest.raises(ArtifactError, match="has changed") as refused:
        deploy(tmp_path / "home", registry.resolve("damaged", number))
    assert "adapter_model.safetensors" in str(refused.value)
    assert state(tmp_path / "home") == before


def test_a_version_that_cannot_select_sources_is_refused_where_the_release_selects_them(versions, index, tmp_path):
    deploy(tmp_path, versions[1])
    sources = tmp_path / "sources.yaml"
    sources.write_text("sources: [{kind: text}]")
    write_serving(tmp_path, configure(tmp_path, index=index, sources=sources))
    sources.write_text("select: revelator\nsources: [{kind: text}]")
    with pytest.raises(ArtifactError, match="has not learned the task select"):
        deploy(tmp_path, versions[2])
    assert read_release(tmp_path).version == 1
    sources.write_text("select: all\nsources: [{kind: text}]")
    assert deploy(tmp_path, versions[2]).release.version == 2


def test_a_release_that_has_not_learned_to_read_does_not_read(versions, index, tmp_path):
    with pytest.raises(ArtifactError, match="has not learned the task read"):
        configure(tmp_path, index=index, generator="revelator")
    planner = PlannerConfig(url="http://127.0.0.1:1/v1", model="m", prompt="trained")
    config = configure(tmp_path, index=index, generator="revelator", planner=planner)
    assert config.reader == "revelator"
    deploy(tmp_path, versions[1])
    with pytest.raises(ArtifactError, match="has not learned the task read"):
        configure(tmp_path, index=index, generator="revelator")


def test_a_full_disk_is_refused_before_the_live_version_is_touched(versions, tmp_path, capfd):
    first = deploy(tmp_path, versions[1])
    before = state(tmp_path)
    largest = max(path.stat().st_size for path in first.folder.rglob("*"))
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    with capfd.disabled():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest - 1, old[1]))  # no file can be written that is as large
        try:
            with pytest.raises(ArtifactError, match="disk is full or a quota is reached"):
                deploy(tmp_path, versions[2])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert state(tmp_path) == before
    assert deploy(tmp_path, versions[2]).release.version == 2


def test_two_deploys_at_once_are_not_allowed(versions, tmp_path):
    with try_lock(tmp_path / ".deploy.lock"), pytest.raises(ConfigError, match="another deploy"):
        deploy(tmp_path, versions[1])


@pytest.mark.parametrize("place", ["none", "local"])
def test_serving_before_any_deploy_says_what_to_do(index, tmp_path, place):
    config = configure(tmp_path, index=index)
    served = serve_in_thread(tmp_path, config, place=place)
    with pytest.raises(ArtifactError, match="no version is released") as refused, served:
        pass
    assert "revelator model deploy" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"index": None}, "which index"),
        ({"index": Path("/nowhere")}, "not an index"),
        ({"generator": "llama"}, "neither `embedded`, `revelator` nor a URL"),
        ({"generator": "http://127.0.0.1:1/v1"}, "name of a model"),
        ({"generator": "http://user:pa55@127.0.0.1:1/v1", "generator_model": "m"}, "no user, query"),
        ({"limits": {"leafs": 8}}, "there is no limit 'leafs'"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_nothing_behind(given, message, index, tmp_path):
    with pytest.raises(ConfigError, match=message) as refused:
        configure(tmp_path, **{"index": index, **given})
    assert "pa55" not in str(refused.value) and not list(tmp_path.iterdir())


def test_the_embedded_base_is_released_once_and_a_deploy_takes_its_place(versions, tmp_path):
    release_embedded_base(tmp_path)
    first = read_release(tmp_path)
    assert (first.model, first.files, first.previous) == ("embedded base", {}, None)
    release_embedded_base(tmp_path)
    assert read_release(tmp_path) == first
    release = deploy(tmp_path, versions[1]).release
    assert (release.version, release.previous) == (1, None)
    release_embedded_base(tmp_path)
    assert read_release(tmp_path) == release


def test_a_start_leaves_nothing_to_the_next_but_cards_and_the_only_index_is_found(index, tmp_path):
    shutil.copytree(index, tmp_path / "indexes" / "only")
    shutil.copytree(index, tmp_path / "other")
    before = configure(tmp_path, index=tmp_path / "other", judge="none", max_in_flight=7)
    write_serving(tmp_path, before.model_copy(update={"gpus": (1,), "measured_deadline_ms": 70_000}))
    config = configure(tmp_path)
    assert (config.index, config.judge, config.max_in_flight) == (tmp_path / "indexes" / "only", "embedded", 64)
    assert (config.gpus, config.measured_deadline_ms) == ((1,), None), "the next start measures anew"
    with pytest.raises(ConfigError, match="name of a model"):
        configure(tmp_path, generator="http://127.0.0.1:2/v1")


# A child that kills itself with -9 at the n-th file operation below its home folder, for n = 1, 8, 15, …
KILLED = """
import os, signal, sys
from pathlib import Path
import mlflow.store.model_registry.sqlalchemy_store, mlflow.store.tracking.sqlalchemy_store  # once, not in each child
from revelator import registry
from serving.deploy.deploy import deploy

home, registered = sys.argv[1:]
at = 1
while True:
    child = os.fork()
    if child == 0:
        seen = 0
        def watch(event, args):
            global seen
            if event in ("open", "os.rename", "os.mkdir", "os.remove") and str(args[0]).startswith(home):
                seen += 1
                if seen == at:
                    os.kill(os.getpid(), signal.SIGKILL)
        registry.connect(Path(registered))
        version = registry.resolve(registry.NAME, 2)
        sys.addaudithook(watch)
        deploy(Path(home), version)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    folders = sorted(p.name for p in Path(home, "model_repo", "revelator").glob("[0-9]*"))
    print(at, os.waitstatus_to_exitcode(status), *folders, flush=True)
    for name in folders:
        os.rename(f"{home}/model_repo/revelator/{name}", f"{home}/seen-{at}-{name}")
    at += 7
    if status == 0:
        break
"""


def test_a_deploy_killed_at_any_moment_leaves_whole_versions_only(registered, tmp_path):
    arguments = [str(tmp_path), str(registered)]
    result = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
    )
    assert result.returncode == 0, result.stderr
    runs = [line.split() for line in result.stdout.splitlines()]
    killed = [run for run in runs if int(run[1]) == -signal.SIGKILL]
    assert len(killed) == len(runs) - 1 >= 5
    assert runs[-1][1:] == ["0", "2"]
    found = list(tmp_path.glob("seen-*"))
    assert len(found) >= 2  # killed after the rename, and not killed
    assert all(is_whole(folder) for folder in found)


@contextmanager
def asked_all_the_time(client: Client, question: str) -> Iterator[list[Answer]]:
    """Answers to the same question, asked over and over by another thread until the block ends."""
    answers: list[Answer] = []
    enough = threading.Event()

    def ask() -> None:
        while not enough.wait(0.2):
            answers.append(client.ask(question, strategy="single"))

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(ask)
        try:
            yield answers
        finally:
            enough.set()
            asking.result()


def test_a_deploy_says_that_an_endpoint_plans_meanwhile(registered, index, tmp_path, monkeypatch):
    endpoint = PlannerConfig(url="http://127.0.0.1:9/v1", model="m")
    write_serving(tmp_path, configure(tmp_path, index=index, planner=endpoint))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{registered / 'mlflow.db'}")
    done = CliRunner().invoke(command, ["--home", str(tmp_path)], catch_exceptions=False)
    assert "m at http://127.0.0.1:9/v1, chat prompt plans until" in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "vllm"], "needs the address of a running vLLM server"),
        (["--engine", "vllm", "--watch"], "needs the address of a running vLLM server"),
        (["--url", "http://127.0.0.1:9"], "give --engine vllm, too"),
        (["--engine", "vllm", "--url", "http://127.0.0.1:9", "--gpus", "0"], "place our own engine"),
        (["--engine", "vllm", "--url", "http://127.0.0.1:9", "--canary", "0.1"], "the engine of the release"),
    ],
)
def test_engine_and_address_go_together(options: list[str], said: str) -> None:
    done = CliRunner().invoke(command, options)
    assert done.exit_code == 2 and said in " ".join(done.output.split())
