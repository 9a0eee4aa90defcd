"""`revelator serve` for somebody who has documents, and has trained and deployed nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pytriton", reason="no Triton server is installed: `pip install 'revelator[server]'`")

from evaluation.harness.config import RunConfig
from evaluation.harness.systems import describe_system
from revelator.client import Client
from revelator.errors import RevelatorError, Unavailable
from serving.commands.serve import serve
from serving.models.endpoint_revelator import PlannerConfig
from serving.models.releases import EMBEDDED_VERSION, read_release
from serving.retrieval import build_index
from serving.triton.config import read_serving
from serving.triton.repository import configure, lay_out
from serving.triton.running import find_running_server
from tests.chat_server import Reply, cuts, fails, running
from tests.planner_server import ASKED, PLAN, Planner

GUIDE = """# The Lomvi

The captain of the Lomvi is Ana Berg.

# Ana Berg

Ana Berg was born in Holm.
"""

START_SECONDS, STOP_SECONDS = 120, 60


@contextmanager
def serve_locally(home: Path, arguments: Sequence[str]) -> Iterator[str]:
    """Runs `revelator serve` and yields its gRPC address once it is ready. Its output goes to logs/serve.log."""
    log = home / "logs" / "serve.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    program = Path(sys.executable).with_name("revelator")
    with log.open("wb") as output:
        process = subprocess.Popen([program, *arguments], stdout=output, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + START_SECONDS
        while (server := find_running_server(home)) is None:
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield server.grpc
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def test_documents_alone_are_enough_to_be_asked(tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text(GUIDE)
    build_index([tmp_path / "guide.md"], tmp_path / "ix")
    home = tmp_path / "new"
    with serve_locally(home, ("serve", "--home", str(home), "--index", str(tmp_path / "ix"))) as url:
        with Client(url) as client:
            answer = client.ask(
                "Where was the captain of the Lomvi born?",
                plan="Who is the captain of the Lomvi? * Where was {captain} born?",
            )
        assert answer.answers == ("Holm",) and answer.trace.versions["revelator"] == "0"
        said = (home / "logs" / "serve.log").read_text()
    assert "nothing is deployed: the embedded base plans" in said
    assert "release 0, the embedded base: ready" in said
    release = read_release(home)
    assert release is not None and release.version == EMBEDDED_VERSION


def test_an_index_that_is_not_named_cannot_be_remembered(tmp_path: Path) -> None:
    done = CliRunner().invoke(serve, ["--home", str(tmp_path), "--remember"])
    assert done.exception is not None and "no index is given" in str(done.exception)


def test_without_an_index_nothing_is_left_behind(tmp_path: Path) -> None:
    done = CliRunner().invoke(serve, ["--home", str(tmp_path)])
    assert done.exception is not None and "which index is to be searched?" in str(done.exception)
    assert not list(tmp_path.iterdir())


KEY = "key-of-the-test"


def test_a_language_model_plans_on_the_server_and_no_adapter_is_loaded(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("REVELATOR_EVENTS", str(tmp_path / "events.jsonl"))
    with running() as server:
        Planner(server).logprobs = True
        options = ("--planner", server.url, "--planner-model", "m")
        home = tmp_path / "home"
        with serve_locally(home, ("serve", "--home", str(home), "--index", str(index), *options)) as url:
            with Client(url) as client:
                answer = client.ask(ASKED)
                trace = answer.trace
                assert (answer.answers, trace.plan, trace.versions["revelator"]) == (("Port Velm",), PLAN, "m")
                assert trace.usage.tokens_in == 31 * trace.usage.model_calls > 0
                asked = {"benchmark": {"format": "nq", "path": "x"}, "system": {"strategy": "auto"}, "url": url}
                described = describe_system(RunConfig.model_validate(asked))
                assert described["adapter"] == {"planner": f"m at {server.url}, chat prompt"}
                server.replies = [fails(503, f"down, {KEY}")]
                with pytest.raises(Unavailable, match="503: down"):
                    client.ask("Who directed The Glass Orchard?")
            assert {request["key"] for request in server.requests} == {f"Bearer {KEY}"}
        logs = "".join(path.read_text() for path in (home / "logs").iterdir())
    assert f"planner m at {server.url}, chat prompt (release 0: no adapter is loaded)" in logs
    assert "revelator version" not in logs and read_release(home) is None
    assert "Traceback" not in logs and '"revelator": "m"' in (tmp_path / "events.jsonl").read_text()
    assert KEY not in logs + json.dumps(trace.to_json())
    assert KEY not in (home / "model_repo" / "executor" / "config.pbtxt").read_text()
    assert KEY not in (home / "serving.json").read_text()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (fails(401, "wrong key"), "401: wrong key"),
        (fails(404, "no model m"), "404: no model m"),
        (None, "no connection"),
    ],
)
def test_a_planner_that_cannot_answer_ends_the_start(
    tmp_path: Path, index: Path, fault: Reply | None, said: str
) -> None:
    with running() as server:
        server.replies = [fault] if fault else [cuts]
        options = ["--planner", server.url, "--planner-model", "m"]
        done = CliRunner().invoke(serve, ["--home", str(tmp_path / "home"), "--index", str(index), *options])
    assert isinstance(done.exception, RevelatorError) and said in str(done.exception)
    assert list((tmp_path / "home").iterdir()) == []


def test_the_release_plans_again_when_it_is_asked_for(tmp_path: Path, index: Path) -> None:
    endpoint = PlannerConfig(url="http://127.0.0.1:9/v1", model="m")
    lay_out(tmp_path, configure(tmp_path, index=index, planner=endpoint))
    lay_out(tmp_path, configure(tmp_path, index=index))
    assert read_serving(tmp_path).planner == endpoint
    lay_out(tmp_path, configure(tmp_path, index=index, planner="deployed"))
    assert read_serving(tmp_path).planner is None
