"""The whole system as an MLflow agent, behind MLflow's own servers and its OpenAI-compatible routes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import mlflow
import openai
import pytest
from click.testing import CliRunner
from mlflow.exceptions import MlflowException
from mlflow.types.responses import ResponsesAgentResponse, ResponsesAgentStreamEvent

from evaluation.publish.export import export
from revelator import registry
from revelator.errors import ConfigError
from serving.agent.parts import AGENT, URL, collect_parts
from serving.deploy.deploy import release_embedded_base
from serving.home.config import ServingConfig
from serving.retrieval import build_index
from tests.loopback import find_port
from tests.service_thread import serve_in_thread
from tests.serving.toy_model import write_adapter
from tests.tracking_server import MLFLOW, until_it_answers

ROOT = Path(__file__).resolve().parents[3]
QUESTION = "Who is the harbour master of Velm?"
ASKED = {"input": [{"role": "user", "content": QUESTION}]}
FOLLOW_UP = "Where was she born?"
READ_AS = "Where was Ana Berg born?"
HARBOUR = "# The harbour of Velm\n\nThe harbour master of Velm is Ana Berg.\n"
PEOPLE = "# Bo Falk\n\nBo Falk was born in Kiel.\n\n# Ana Berg\n\nAna Berg was born in Lund.\n"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("harbour")
    (folder / "harbour.md").write_text(HARBOUR)
    (folder / "people.md").write_text(PEOPLE)
    build_index([folder / "harbour.md", folder / "people.md"], folder / "index")
    return folder / "index"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def logged(home: Path, harbour: Path) -> dict[str, Any]:
    """The embedded base over the harbour's index, as a model at MLflow."""
    return log("base", "--index", str(harbour), "--home", str(home))


def log(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(
        export, [*arguments, "--format", "agent", "--json"], catch_exceptions=True, standalone_mode=False
    )
    if result.exception:
        raise result.exception
    return json.loads(result.stdout)


def test_a_model_holds_the_settings_of_the_home_folder(tmp_path: Path, harbour: Path) -> None:
    """But what one machine alone has is refused: a file of sources, a collection of Milvus."""
    file = tmp_path / "serving.yaml"
    file.write_text("judge: none\nlimits: {kept: 2}")
    packed = collect_parts("base", harbour, tmp_path).describe()["serving"]
    assert (packed["judge"], packed["limits"]) == ("none", {"kept": 2})
    (tmp_path / "sources.yaml").write_text("sources: [{kind: text}]")
    for setting in (f"sources: {tmp_path}/sources.yaml\nindex: {harbour}", "index: milvus://127.0.0.1:19530/harbour"):
        file.write_text(setting)
        with pytest.raises(ConfigError, match=r"a model holds no (file of sources|collection of Milvus)"):
            collect_parts("base", None, tmp_path)


@contextmanager
def running(command: list[str], health: str, **environment: str) -> Iterator[None]:
    """A server that starts without this checkout, where its command does not lead to it. MLflow looks for uvicorn on
    the path."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    plain["PATH"] = f"{MLFLOW.parent}{os.pathsep}{plain['PATH']}"
    with subprocess.Popen(command, env=plain | environment, start_new_session=True) as process:
        try:
            until_it_answers(health, process)
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def served(logged: dict[str, Any], home: Path) -> Iterator[httpx.Client]:
    port = find_port()
    command = [str(MLFLOW), "models", "serve", "-m", logged["uri"], "--env-manager", "local", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with (
        running(command, f"{url}/ping", MLFLOW_TRACKING_URI=registry.find_store(home)),
        httpx.Client(base_url=url, timeout=120) as client,
    ):
        yield client


def test_mlflow_models_serve_answers_with_the_passages_as_annotations(served: httpx.Client) -> None:
    said = served.post("/invocations", json=ASKED)
    assert said.status_code == 200, said.text
    response = ResponsesAgentResponse(**said.json())
    [message] = response.output
    [part] = message.content
    [note] = part["annotations"]
    assert (note["type"], note["filename"]) == ("file_citation", "harbour.md")
    assert part["text"].startswith("Ana Berg") and part["text"][note["index"] :].strip().startswith("[1]")
    told = response.custom_outputs
    assert told and (told["answers"], told["outcome"], told["versions"]["revelator"]) == (["Ana Berg"], "answered", "0")
    assert told["sources"][0]["text"] == "The harbour master of Velm is Ana Berg."


def test_mlflow_models_serve_reads_a_follow_up_by_the_turns_before_it(served: httpx.Client) -> None:
    first = served.post("/invocations", json=ASKED).json()
    follow_up = {"role": "user", "content": FOLLOW_UP}
    talk = {"input": [*ASKED["input"], *first["output"], follow_up]}  # the items as they came
    plain = {"input": [*ASKED["input"], {"role": "assistant", "content": "Ana Berg"}, follow_up]}
    named = {"input": [follow_up], "custom_inputs": {"previous_response_id": first["id"]}}
    for body in (talk, plain, named):
        said = served.post("/invocations", json=body)
        assert said.status_code == 200, said.text
        assert read_text(said.json()).startswith("Lund\n") and f"Read as: {READ_AS}" in read_text(said.json())
        assert said.json()["custom_outputs"]["sources"][0]["text"] == "Ana Berg was born in Lund."
    alone = served.post("/invocations", json={"input": [follow_up]})
    assert "Read as" not in read_text(alone.json())


def read_text(response: dict[str, Any]) -> str:
    [message] = response["output"]
    [part] = message["content"]
    return part["text"]


def test_what_mlflow_s_request_has_no_field_for_is_a_custom_input(served: httpx.Client) -> None:
    where = served.post("/invocations", json=ASKED | {"custom_inputs": {"where": 'path = "people.md"'}})
    assert {one["name"] for one in where.json()["custom_outputs"]["sources"]}.isdisjoint({"harbour.md"})
    assert where.status_code == 200 and "Ana Berg\n\n> Sources:\n> - [1] The harbour" not in read_text(where.json())
    for given, status, reason in [
        ({"where": "year = 3"}, 400, "there is no field 'year'"),
        ({"wher": "year = 3"}, 400, "custom_inputs.wher: there is no such field"),
        ({"previous_response_id": "resp_1"}, 404, "there is no run 1"),
    ]:
        refused = served.post("/invocations", json=ASKED | {"custom_inputs": given})
        assert refused.status_code == status and reason in refused.json()["message"], refused.text


def test_the_loaded_model_streams_the_same_response(logged: dict[str, Any]) -> None:
    model = mlflow.pyfunc.load_model(logged["uri"])
    whole, events = model.predict(ASKED), list(model.predict_stream(ASKED))
    kinds = [ResponsesAgentStreamEvent(**event).type for event in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    [part] = whole["output"][0]["content"]
    assert "".join(event["delta"] for event in events if event["type"].endswith("delta")) == part["text"]
    notes = [event["annotation"] for event in events if event["type"] == "response.output_text.annotation.added"]
    assert notes == part["annotations"] and events[-1]["custom_outputs"]["answers"] == ["Ana Berg"]


def test_what_is_no_question_is_the_client_s_fault_and_says_why(served: httpx.Client) -> None:
    last = {"input": [{"role": "assistant", "content": "Ana Berg"}]}
    refused = served.post("/invocations", json=last)
    assert refused.status_code == 400 and "the last message must be the user's" in refused.text
    pictured = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}]}
    refused = served.post("/invocations", json=pictured)
    assert refused.status_code == 400 and "type: input should be 'input_text' or 'output_text'" in refused.text
    call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    refused = served.post("/invocations", json={"input": [call, *ASKED["input"]]})
    assert refused.status_code == 400 and "input.list.0.type: input should be 'message'" in refused.text


def test_the_agent_server_answers_openai_s_client_with_a_conversation_and_a_stream(
    logged: dict[str, Any], home: Path
) -> None:
    port = find_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "serving.agent.server:make_app", "--port", str(port)]
    command += ["--app-dir", str(ROOT)]
    given = {"MLFLOW_TRACKING_URI": registry.find_store(home), "REVELATOR_AGENT": logged["uri"]}
    with running(command, f"http://127.0.0.1:{port}/health", **given):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}", api_key="none", timeout=120)
        talk_1 = {"context": {"conversation_id": "talk-1", "user_id": "ana"}}
        first = client.responses.create(input=[{"role": "user", "content": QUESTION}], extra_body=talk_1)
        assert first.output_text.startswith("Ana Berg") and first.output[0].content[0].annotations
        follow_up = {"role": "user", "content": FOLLOW_UP}
        talk = [*ASKED["input"], first.output[0].model_dump(exclude_none=True), follow_up]
        second = client.responses.create(input=talk)
        assert second.output_text.startswith("Lund\n") and f"Read as: {READ_AS}" in second.output_text
        *_, last = client.responses.create(
            input=[follow_up], stream=True, extra_body={"custom_inputs": {"previous_response_id": first.id}}
        )
        assert last.response.output_text == second.output_text
        events = list(client.responses.create(input=ASKED["input"], stream=True))
        kinds = [event.type for event in events]
        assert "".join(one.delta for one in events if one.type == "response.output_text.delta") == first.output_text
        assert kinds[-1] == "response.completed"
        about = httpx.get(f"http://127.0.0.1:{port}/agent/info").json()
        assert about["agent_api"] == "responses"
        again = client.responses.create(input=talk, extra_body=talk_1)  # its trace waits while the server ends
        assert again.output_text == second.output_text
    registry.connect(home)
    kept = [one.info.trace_metadata for one in mlflow.search_traces(return_type="list")]
    named = [one for one in kept if "mlflow.trace.session" in one]
    assert [(one["mlflow.trace.session"], one["mlflow.trace.user"]) for one in named] == [("talk-1", "ana")] * 2


def test_a_running_service_is_asked_and_nothing_else_is_opened(
    harbour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    release_embedded_base(home)
    with serve_in_thread(home, ServingConfig(index=harbour)) as (_, running_at):
        made = log("--url", running_at.grpc, "--home", str(home))
        model = mlflow.pyfunc.load_model(made["uri"])
        assert model.predict(ASKED)["custom_outputs"]["answers"] == ["Ana Berg"]
        source = Path(mlflow.artifacts.download_artifacts(made["uri"]))
        assert not (source / "artifacts").exists() and not (source / "code" / "training").exists()
        monkeypatch.setenv(URL, running_at.grpc)
        assert mlflow.pyfunc.load_model(made["uri"]).predict(ASKED)["output"]
    with pytest.raises(MlflowException, match=r"127\.0\.0\.1") as gone:
        model.predict(ASKED)
    assert gone.value.get_http_status_code() == 503


def test_an_agent_holds_a_version_and_each_tells_of_the_other(base: Path, harbour: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    registry.connect(home)
    number = registry.register_adapter(write_adapter(tmp_path / "adapter", base, 1))
    made = log("latest", "--index", str(harbour), "--home", str(home))
    assert registry.resolve(registry.NAME, number).tags["agent"] == f"{AGENT}/{made['version']}"
    assert registry.resolve(AGENT, made["version"]).tags["revelator"] == str(number)
    said = mlflow.pyfunc.load_model(made["uri"]).predict(ASKED)
    assert said["custom_outputs"]["versions"]["revelator"] == str(number)


def test_what_a_model_cannot_hold_is_refused(harbour: Path, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    with pytest.raises(ConfigError, match="searches its own index"):
        log("--url", "127.0.0.1:1", "--index", str(harbour), "--home", home)
    with pytest.raises(ConfigError, match="which index is to be searched"):
        log("base", "--home", home)
