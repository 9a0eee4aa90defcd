"""`revelator serve` for somebody who has documents, and has trained and deployed nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from evaluation.harness.config import RunConfig
from evaluation.harness.system_versions import describe_system
from revelator.client import Client
from revelator.errors import ConfigError, DeadlineExceeded, RevelatorError, Unavailable
from revelator.limits import Limits
from serving.commands.serve import allow_time, describe_callers, describe_pace, serve
from serving.executor.judges import JudgeConfig
from serving.home.config import ServingConfig, read_settings
from serving.home.configure import configure
from serving.home.running import find_running_server
from serving.http.callers import Clients
from serving.http.issuer import TokenIssuer
from serving.models.endpoint_revelator import PlannerConfig
from serving.models.releases import EMBEDDED_VERSION, read_release
from serving.retrieval import build_index
from serving.service.addresses import Exposure
from serving.service.pace import Pace, measure_pace
from tests.chat_server import Reply, Server, cuts, fails, running, says, write_reading
from tests.planner_server import ASKED, PLAN, Planner, read_chat, read_prompt
from tests.triton_wheel import require_triton

GUIDE = """# The Lomvi

The captain of the Lomvi is Ana Berg.

# Ana Berg

Ana Berg was born in Holm.
"""

START_SECONDS, STOP_SECONDS = 120, 60


def write_settings(folder: Path, **settings: Any) -> list[str]:
    """Writes serving.yaml, and returns the option that names it."""
    path = folder / "serving.yaml"
    path.write_text(json.dumps(settings))
    return ["--config", str(path)]


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


@pytest.mark.parametrize("place", ["none", "local"])
def test_documents_alone_are_enough_to_be_asked(tmp_path: Path, place: str) -> None:
    if place == "local":
        require_triton()
    (tmp_path / "guide.md").write_text(GUIDE)
    build_index([tmp_path / "guide.md"], tmp_path / "ix")
    home = tmp_path / "new"
    options = ("--index", str(tmp_path / "ix"), "--triton", place)
    with serve_locally(home, ("serve", "--home", str(home), *options)) as url:
        with Client(url) as client:
            answer = client.ask(
                "Where was the captain of the Lomvi born?",
                plan="Who is the captain of the Lomvi? * Where was {captain} born?",
            )
        assert answer.answers == ("Holm",) and answer.trace.versions["revelator"] == "0"
        said = (home / "logs" / "serve.log").read_text()
    assert "nothing is deployed: the embedded base plans" in said
    assert "revelator embedded base: ready" in said and "\nmay ask everybody on this machine\n" in said
    assert (home / "logs" / "triton.log").exists() == (place == "local")
    release = read_release(home)
    assert release is not None and release.version == EMBEDDED_VERSION


WIKI, PRESS = ({"name": name, "sha256": digit * 64} for name, digit in (("wiki", "0"), ("press", "1")))
ISSUER = TokenIssuer(issuer="https://id.example", audience="revelator", jwks="https://id.example/keys")


@pytest.mark.parametrize(
    ("exposure", "token", "said"),
    [
        (Exposure(), None, "everybody on this machine"),
        (Exposure(), "s3cret", "callers on this machine with REVELATOR_TOKEN"),
        (
            Exposure(clients=Clients.model_validate({"clients": [WIKI]})),
            None,
            "callers on this machine with a token of 1 client",
        ),
        (
            Exposure("0.0.0.0", clients=Clients.model_validate({"clients": [WIKI, PRESS]}), issuer=ISSUER),
            None,
            "callers with a token of 2 clients or a verified token of https://id.example",
        ),
        (
            Exposure(clients=Clients(groups_header="X-Groups")),
            None,
            "everybody on this machine; the header X-Groups names their groups",
        ),
    ],
)
def test_a_start_says_who_may_ask(exposure: Exposure, token: str | None, said: str) -> None:
    assert describe_callers(exposure, token) == said


def test_without_an_index_nothing_is_left_behind(tmp_path: Path) -> None:
    done = CliRunner().invoke(serve, ["--home", str(tmp_path)])
    assert done.exception is not None and "which index is to be searched?" in str(done.exception)
    assert not list(tmp_path.iterdir())


KEY = "key-of-the-test"


def test_a_language_model_plans_on_the_server_and_the_embedded_base_judges(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("REVELATOR_EVENTS", str(tmp_path / "events.jsonl"))
    with running() as server:
        Planner(server).logprobs = True
        home = tmp_path / "home"
        file = write_settings(tmp_path, planner={"url": server.url, "model": "m"})
        with serve_locally(home, ("serve", "--home", str(home), "--index", str(index), *file)) as url:
            with Client(url) as client:
                answer = client.ask(ASKED)
                trace = answer.trace
                assert (answer.answers, trace.plan, trace.versions["revelator"]) == (("Port Velm",), PLAN, "m")
                assert trace.versions["judge"] == "0", "the embedded base judges"
                calls = [call for node in trace.nodes for call in node.list_calls() if "tokens_in" in call]
                planned = [call for call in calls if call["task"] == "translate_bnf"]
                assert [call["tokens_in"] for call in planned] == [31]
                assert "relevance" in {call["task"] for call in calls}
                assert tasks_asked(server) == {"route", "translate_bnf"}, "a route warms it up"
                assert "route" not in {call["task"] for call in calls}, "its plan says the route"
                asked = {"benchmark": {"format": "nq", "path": "x"}, "system": {"strategy": "auto"}, "url": url}
                described = describe_system(RunConfig.model_validate(asked | {"home": str(home)}))
                assert described["adapter"] == {"planner": f"m at {server.url}, chat prompt"}
                assert described["index"]["folder"] == str(index) and described["generator"] == "embedded"
                elsewhere = describe_system(RunConfig.model_validate(asked | {"home": str(tmp_path)}))
                assert elsewhere == {"adapter": {"version": "0"}, "index": {}, "generator": f"that of {url}"}
                server.replies = [fails(503, f"down, {KEY}")]
                with pytest.raises(Unavailable, match="503: down"):
                    client.ask("Who directed The Glass Orchard?")
            assert {request["key"] for request in server.requests} == {f"Bearer {KEY}"}
        logs = "".join(path.read_text() for path in (home / "logs").iterdir())
    assert f"planner m at {server.url}, chat prompt\njudge   embedded\nreader  embedded" in logs
    assert "nothing is deployed: the embedded base judges" in logs and "a question of 3 steps takes about 0 s" in logs
    assert "Traceback" not in logs and '"revelator": "m"' in (tmp_path / "events.jsonl").read_text()
    assert KEY not in logs + json.dumps(trace.to_json())
    assert KEY not in (home / "serving.json").read_text()


def test_a_server_whose_planner_and_judge_are_endpoints_loads_no_adapter(tmp_path: Path, index: Path) -> None:
    home = tmp_path / "home"
    with running() as planning, running() as judging:
        Planner(planning)
        judging.replies = [says('{"numbers": [1, 2, 3]}')]
        judge = {"url": judging.url, "model": "j"}
        file = write_settings(tmp_path, index=str(index), planner={"url": planning.url, "model": "m"}, judge=judge)
        with serve_locally(home, ("serve", "--home", str(home), *file)) as url:
            timed = len(judging.requests)
            with Client(url) as client:
                trace = client.ask(ASKED).trace
            assert (trace.answers, len(judging.requests) - timed) == (["Port Velm"], 2), "one call for each leaf"
    assert {node.detail["judge"] for node in trace.nodes if node.kind == "atomic"} == {"m"}, "as the endpoint says"
    assert f"judge   j at {judging.url}" in (home / "logs" / "serve.log").read_text()
    assert read_release(home) is None


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
        options = write_settings(tmp_path, planner={"url": server.url, "model": "m"})
        done = CliRunner().invoke(serve, ["--home", str(tmp_path / "home"), "--index", str(index), *options])
    assert isinstance(done.exception, RevelatorError) and said in str(done.exception)
    assert list((tmp_path / "home").iterdir()) == []


def test_an_option_goes_before_the_file_and_a_file_before_the_defaults(tmp_path: Path, index: Path) -> None:
    judge = {"url": "http://127.0.0.1:9/v1", "model": "j"}
    write_settings(tmp_path, judge=judge, max_in_flight=7, generator="http://127.0.0.1:9/v1", generator_model="r")
    chosen = read_settings(tmp_path).chosen
    config = configure(tmp_path, **chosen | {"index": index})
    assert (config.judge, config.max_in_flight) == (JudgeConfig(**judge), 7)
    assert (config.reader, config.planner, config.answer_cache) == ("r at http://127.0.0.1:9/v1", None, True)
    assert read_settings(tmp_path / "elsewhere").chosen == {}
    done = CliRunner().invoke(serve, ["--home", str(tmp_path), "--generator", "http://127.0.0.1:8/v1"])
    assert "generator_model: an endpoint needs the name of a model" in str(done.exception), "the file's is another's"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"judge": "somebody"}, "judge"),
        ({"judge": {"url": "http://127.0.0.1:9/v1"}}, "model"),
        ({"judge": {"url": "somebody", "model": "m"}}, "not an http or https address"),
        ({"judges": "none"}, "judges"),
        ({"limits": {"leafs": 3}}, "leafs"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"tls": {"cert": "a.pem"}}, "tls.key"),
        ({"triton": "somewhere"}, "not where models can be hosted"),
        ({"logic": {"negation": "never"}}, "negation"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_field(
    tmp_path: Path, index: Path, settings: dict[str, Any], said: str
) -> None:
    options = ["--home", str(tmp_path / "home"), "--index", str(index), *write_settings(tmp_path, **settings)]
    done = CliRunner().invoke(serve, options)
    assert isinstance(done.exception, ConfigError) and said in str(done.exception)
    assert not (tmp_path / "home").exists()


def test_a_judge_that_cannot_answer_ends_the_start(tmp_path: Path, index: Path) -> None:
    with running() as server:
        server.replies = [fails(401, "wrong key")]
        options = write_settings(tmp_path, judge={"url": server.url, "model": "m"})
        done = CliRunner().invoke(serve, ["--home", str(tmp_path / "home"), "--index", str(index), *options])
    assert isinstance(done.exception, RevelatorError)
    assert "`judge: embedded` lets the release judge" in str(done.exception)
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (fails(401, "wrong key"), "401: wrong key"),
        (fails(404, "no such page"), "404: no such page"),
        (fails(404, "no model r"), "its models are other"),
        (fails(400, "r is no model"), "its models are other"),
    ],
)
def test_a_reader_that_refuses_ends_the_start(tmp_path: Path, index: Path, fault: Reply, said: str) -> None:
    with running() as server:
        server.replies, server.models = [fault], {"other": "me"} if "model" in said else {}
        options = ["--generator", server.url, "--generator-model", "r"]
        done = CliRunner().invoke(serve, ["--home", str(tmp_path / "home"), "--index", str(index), *options])
    assert isinstance(done.exception, RevelatorError) and said in str(done.exception)
    assert "--generator embedded reads without a language model" in str(done.exception)
    assert list((tmp_path / "home").iterdir()) == []


@pytest.mark.parametrize("fault", [fails(503, "loading the model"), cuts, None])
async def test_a_reader_that_is_not_up_yet_is_a_warning(index: Path, fault: Reply | None) -> None:
    with running() as server:
        server.replies = [fault or (lambda handler: (server.release.wait(30), cuts(handler))[1])]
        config = ServingConfig(index=index, generator=server.url, generator_model="r", timeout=None if fault else 0.3)
        pace = await measure_pace(config)
    assert pace.reading == 0 and server.url in pace.silence
    assert "warning: the reader does not answer" in " ".join(describe_pace(pace, config))


@pytest.mark.parametrize("who", ["planner", "judge"])
async def test_one_timeout_bounds_the_calls_of_every_endpoint(index: Path, who: str) -> None:
    with running() as server:
        server.replies = [lambda handler: (server.release.wait(30), cuts(handler))[1]]
        endpoint = {"planner": PlannerConfig, "judge": JudgeConfig}[who](url=server.url, model="m")
        with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.3 s, the timeout of a call"):
            await measure_pace(ServingConfig.model_validate({"index": index, who: endpoint, "timeout": 0.3}))


async def test_a_call_of_each_kind_is_timed_at_the_endpoints_and_a_reader_may_be_missing(index: Path) -> None:
    with running() as planning, running() as judging:
        Planner(planning)
        judging.replies = [says('{"numbers": [1]}')]
        config = ServingConfig(
            index=index,
            planner=PlannerConfig(url=planning.url, model="m"),
            judge=JudgeConfig(url=judging.url, model="j"),
            generator="http://127.0.0.1:9/v1",
            generator_model="r",
        )
        pace = await measure_pace(config)
    assert pace.plan > 0 and pace.judgement > 0 and pace.reading == 0 and "no connection" in pace.silence
    assert tasks_asked(planning) == {"route", "translate_bnf"}
    assert len(judging.requests) == 2, "a short question, and ten documents in one call"
    assert await measure_pace(ServingConfig(index=index)) == Pace()


async def test_where_the_planner_reads_its_reading_is_timed_too(index: Path) -> None:
    with running() as planning:
        Planner(planning, read="unanswerable")
        planner = PlannerConfig(url=planning.url, model="m", prompt="trained")
        pace = await measure_pace(ServingConfig(index=index, planner=planner, judge="none", generator="revelator"))
        assert tasks_asked(planning) == {"route", "translate_bnf", "read"}
    assert pace.plan > 0 and pace.reading > 0 and not pace.silence


def test_the_deadline_follows_from_the_pace_unless_somebody_set_it(tmp_path: Path, index: Path) -> None:
    pace = Pace(plan=5, judgement=2, reading=4, last_readings=1)
    assert pace.question == 2 * 5 + 3 * 2 + 4 * 4 and pace.deadline_ms == 70_000
    usual, chosen = ServingConfig(), ServingConfig(limits={"deadline_ms": 20_000})
    raised, kept = allow_time(usual, pace), allow_time(chosen, pace)
    assert raised.executor_limits.deadline_ms == 70_000 and kept.executor_limits.deadline_ms == 20_000
    said, warned = " ".join(describe_pace(pace, raised)), " ".join(describe_pace(pace, kept))
    assert "about 32 s" in said and "deadline 70 s" in said and "warning" not in said
    assert "deadline_ms=20000 is shorter: deadline_ms: 70000" in warned
    assert allow_time(usual, Pace(plan=1)) == usual and not [*describe_pace(Pace(), usual)]


def test_a_question_has_at_least_as_long_as_a_call_of_an_endpoint_may_take(tmp_path: Path, index: Path) -> None:
    def deadline_ms(**values: Any) -> float:
        return ServingConfig.model_validate(values).executor_limits.deadline_ms

    assert deadline_ms() == deadline_ms(timeout=5) == Limits().deadline_ms
    assert deadline_ms(timeout=200) == 200_000
    assert deadline_ms(timeout=200, measured_deadline_ms=300_000) == 300_000
    assert deadline_ms(timeout=200, limits={"deadline_ms": 20_000}) == 20_000, "somebody chose it"
    slow, pace = ServingConfig(timeout=200), Pace(plan=150)
    assert allow_time(slow, pace).executor_limits.deadline_ms == pace.deadline_ms == 600_000
    assert "timeout: 200 is short: a call of 150.0 s" in " ".join(describe_pace(pace, slow))
    for wrong in (0, -1, 3_601, float("nan")):
        with pytest.raises(ValidationError, match="timeout"):
            ServingConfig(timeout=wrong)


def test_a_served_question_says_whether_the_timeout_of_a_call_or_its_deadline_ended_it(
    tmp_path: Path, index: Path
) -> None:
    home = tmp_path / "home"
    with running() as server:
        server.replies = [says(write_reading())]  # while the start times its calls
        reader = {"generator": server.url, "generator_model": "r"}
        file = write_settings(tmp_path, index=str(index), **reader, text=False, judge="none", timeout=2)
        command = ("serve", "--home", str(home), *file)
        with serve_locally(home, command) as url, Client(url) as client:
            server.replies = [lambda handler: (server.release.wait(60), cuts(handler))[1]]
            late = client.ask("Who directed Lantern Row?", strategy="single")
            with pytest.raises(DeadlineExceeded, match="within 1500 ms, its deadline"):
                client.ask("Who directed Lantern Row?", strategy="single", deadline_ms=1_500)
    assert late.outcome == "failed"
    assert f"{server.url}: no answer within 2 s, the timeout of a call" in str(late.trace.reason)


def tasks_asked(server: Server) -> set[str]:
    asked = (read_prompt(one["prompt"]) if "prompt" in one else read_chat(one["messages"]) for one in server.requests)
    return {task.name for task, _ in asked}
