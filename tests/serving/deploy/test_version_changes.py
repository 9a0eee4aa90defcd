"""What Triton 2.51 does when load calls change a model's versions: what `TritonRelease.load` (serving/models/triton.py)
and a deploy stand on.

The model here answers with its version and process id, and notes each start of a process; no torch, so a load is quick.
"""

from __future__ import annotations

import os
import py_compile
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.utils import InferenceServerException

from revelator.channels import make_channel_arguments
from revelator.errors import ArtifactError
from serving.models.triton import TritonModels
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer
from tests.triton_wheel import require_triton

CONFIG = """
name: "probe" backend: "python" max_batch_size: 0
input [{ name: "hold" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "pid" data_type: TYPE_INT32 dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
version_policy { specific { versions: [ 1 ] } }
"""
MODEL = """
import os, time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.home = Path(args["model_repository"]).parents[1]
        version = args["model_version"]
        with (self.home / "started").open("a") as file:
            file.write(version + "\\n")
        while (self.home / f"loading-{version}").exists():
            time.sleep(0.01)
        if (self.home / f"broken-{version}").exists():
            raise RuntimeError("this version does not load")

    def execute(self, requests):
        for request in requests:
            held = pb_utils.get_input_tensor_by_name(request, "hold").as_numpy()[0].decode()
            if held:
                (self.home / "holding").touch()
            while held and (self.home / held).exists():
                time.sleep(0.01)
        pid = pb_utils.Tensor("pid", np.array([os.getpid()], dtype=np.int32))
        return [pb_utils.InferenceResponse([pid]) for _ in requests]
"""


class Probe:
    """The server with the model `probe`, and what a test does to it."""

    def __init__(self, home: Path, running: TritonServer) -> None:
        self.home, self.folder, self.running = home, home / "model_repo" / "probe", running
        self.client = self.connect()

    def connect(self) -> grpc_client.InferenceServerClient:
        return grpc_client.InferenceServerClient(**make_channel_arguments(self.running.url, self.running.tls))

    def add(self, version: int) -> None:
        aside = self.folder / f".{version}"
        aside.mkdir(parents=True)
        (aside / "model.py").write_text(MODEL)
        py_compile.compile(
            str(aside / "model.py"), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )
        aside.rename(self.folder / str(version))

    def config(self, *versions: int) -> str:
        """The configuration of a load call: these versions."""
        config = text_format.Parse(CONFIG, ModelConfig())
        config.version_policy.specific.versions[:] = versions
        return json_format.MessageToJson(config, preserving_proto_field_name=True)

    def load(self, *versions: int) -> None:
        self.client.load_model("probe", config=self.config(*versions))

    def ready(self) -> list[int]:
        return [v for v in (1, 2, 3) if self.client.is_model_ready("probe", str(v))]

    def started(self) -> list[str]:
        """Versions in the order in which their processes began."""
        return (self.home / "started").read_text().split()

    def ask(self, version: str = "", hold: str = "") -> str:
        """The version that answered."""
        given = grpc_client.InferInput("hold", [1], "BYTES").set_data_from_numpy(np.array([hold.encode()], np.object_))
        with self.connect() as client:
            return client.infer("probe", [given], model_version=version).get_response().model_version

    @contextmanager
    def asked_all_the_time(self, version: str = "") -> Iterator[list[str]]:
        """The versions that answered, one after another, to a client that asks until the block ends."""
        answers: list[str] = []
        enough = threading.Event()

        def ask() -> None:
            while not enough.is_set():
                answers.append(self.ask(version))

        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(ask)
            try:
                yield answers
                seen = len(answers)
                while len(answers) < seen + 5 and not asking.done():
                    enough.wait(0.01)
            finally:
                enough.set()
            asking.result()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    require_triton()
    home = tmp_path_factory.mktemp("probe")
    (home / "model_repo" / "probe").mkdir(parents=True)
    (home / "model_repo" / "probe" / "config.pbtxt").write_text(CONFIG)
    log = home / "triton.log"
    with TritonServer(find_installation(home / "triton"), home / "model_repo", log) as running:
        yield Probe(home, running)


@pytest.fixture
def probe(server: Probe) -> Iterator[Probe]:
    """Version 1 is served; folders 2 and 3 lie beside it, unloaded."""
    for version in (1, 2, 3):
        if not (server.folder / str(version)).exists():
            server.add(version)
        (server.home / f"broken-{version}").unlink(missing_ok=True)
    (server.home / "holding").unlink(missing_ok=True)
    server.load(1)
    (server.home / "started").write_text("")
    yield server


def test_a_folder_that_appears_is_not_served_until_it_is_loaded(probe):
    assert probe.ready() == [1] and probe.ask() == "1"
    with pytest.raises(InferenceServerException, match="Request for unknown model"):
        probe.ask("2")


def test_a_version_loaded_beside_another_leaves_that_one_alone_and_takes_what_names_no_version(probe):
    with probe.asked_all_the_time() as unversioned, probe.asked_all_the_time("1") as versioned:
        (probe.home / "loading-2").touch()
        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(probe.load, 1, 2)
            while probe.started() != ["2"]:
                threading.Event().wait(0.01)
            before = len(versioned)
            while len(versioned) < before + 5:
                threading.Event().wait(0.01)
            assert probe.ready() == [1] and probe.ask() == "1"
            (probe.home / "loading-2").unlink()
            loading.result()
        assert probe.ready() == [1, 2] and probe.ask() == "2"
    assert probe.started() == ["2"]  # version 1 was not loaded again
    assert set(versioned) == {"1"}
    assert unversioned == sorted(unversioned) and set(unversioned) == {"1", "2"}  # a clean change, without an error


def test_a_load_call_that_names_the_loaded_versions_starts_nothing(probe):
    probe.load(1, 2)
    with probe.asked_all_the_time("1") as answers:
        probe.load(1, 2)
    assert probe.ready() == [1, 2] and probe.started() == ["2"] and set(answers) == {"1"}


def test_a_load_call_unloads_what_it_does_not_name_without_an_error_for_others(probe):
    probe.load(1, 2)
    with probe.asked_all_the_time("2") as new, probe.asked_all_the_time() as unversioned:
        probe.load(2)
        assert probe.ready() == [2]
    assert set(new) == set(unversioned) == {"2"} and probe.started() == ["2"]  # nor was version 2 loaded twice
    with pytest.raises(InferenceServerException, match="Request for unknown model") as refused:
        probe.ask("1")
    assert refused.value.status() == "StatusCode.UNAVAILABLE"


def test_requests_that_an_unloaded_version_has_are_finished_by_it(probe):
    (probe.home / "held").touch()
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(probe.ask, "1", "held")
        while not (probe.home / "holding").exists():
            threading.Event().wait(0.01)
        probe.load(2)
        (probe.home / "held").unlink()
        assert asked.result() == "1"
    assert probe.ready() == [2]


@pytest.mark.parametrize("versions", [(1, 2), (2,)])
def test_a_version_that_does_not_load_leaves_the_others_as_they_were(probe, versions):
    (probe.home / "broken-2").touch()
    with probe.asked_all_the_time() as answers:
        with pytest.raises(InferenceServerException, match="load failed"):
            probe.load(*versions)
        assert probe.ready() == [1]
    assert set(answers) == {"1"}


async def test_the_client_of_the_models_says_why_a_version_does_not_load(probe):
    (probe.home / "broken-2").touch()
    models = TritonModels(probe.running.url, probe.running.tls)
    try:
        with pytest.raises(ArtifactError, match="this version does not load"):
            await models.load("probe", probe.config(1, 2), ["1", "2"])
        assert await models.is_ready("probe", "1") and not await models.is_ready("probe", "2")
    finally:
        await models.close()


def test_a_load_goes_on_when_its_caller_is_gone(probe):
    (probe.home / "loading-2").touch()
    with pytest.raises(InferenceServerException, match="Deadline"):
        probe.client.load_model("probe", config=probe.config(1, 2), client_timeout=0.5)
    (probe.home / "loading-2").unlink()
    while probe.ready() != [1, 2]:
        threading.Event().wait(0.01)
    assert probe.ask("2") == "2"


def test_a_version_whose_files_changed_is_loaded_again_while_the_old_process_answers(probe):
    later = time.time() + 1  # than any tick of the clock in which the fixture wrote
    os.utime(probe.folder / "1" / "model.py", (later, later))
    with probe.asked_all_the_time("1") as answers:
        probe.load(1)
    assert probe.started() == ["1"] and set(answers) == {"1"}
    own = f"model.{sys.implementation.cache_tag}.pyc"
    assert not any(path.name != own for path in probe.folder.glob("*/__pycache__/*"))


def test_only_who_holds_the_key_of_the_certificate_reaches_the_server(probe):
    with grpc_client.InferenceServerClient(probe.running.url) as stranger, pytest.raises(InferenceServerException):
        stranger.is_server_live(client_timeout=5)
