"""`revelator inspect` as a person starts it, before a real service: it opens its page, or serves one of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest
from click.testing import CliRunner

from revelator.channels import TOKEN
from revelator.errors import ConfigError, Unavailable
from serving.commands.inspect import inspect


@contextmanager
def started(*arguments: str | Path) -> Iterator[str]:
    """The page's address, as the command prints it."""
    command = [sys.executable, "-c", "from revelator.cli import main; main()", "inspect", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        printed = ""
        while "stop:" not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        yield re.findall(r"page +(\S+)/\n", printed)[0]
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 0


def test_the_page_of_the_service_that_runs_is_printed_and_opened_in_a_browser(served, tmp_path):
    opened = tmp_path / "opened"
    command = [sys.executable, "-c", "from revelator.cli import main; main()", "inspect", "--home", str(served.home)]
    environment = {**os.environ, "BROWSER": f"sh -c 'echo \"$0\" > {opened}' %s"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert done.stdout == f"page    {served.http}/\nOpenAI  {served.http}/v1\n"
    assert opened.read_text() == f"{served.http}\n"
    assert "<html" in httpx.get(served.http).text


def test_a_page_of_its_own_asks_the_service_that_is_named_and_keeps_runs(served, tmp_path):
    question, plan = (
        "Where was the director of Lantern Row born?",
        "Who directed Lantern Row? * Where was {director} born?",
    )
    served.endpoint.knowledge |= {
        "Who directed Lantern Row?": ["Ines Calloway"],
        "Where was Ines Calloway born?": ["Port Velm"],
    }
    with started("--url", served.url, "--home", tmp_path) as url:
        [server] = httpx.get(f"{url}/api/servers").json()
        assert server["name"] == served.url and server["models"]["revelator"] == "1"
        reply = httpx.post(f"{url}/api/runs", json={"question": question, "plan": plan}, timeout=60)
        *events, saved = map(json.loads, reply.text.splitlines())
        assert [event["kind"] for event in (events[0], events[-1], saved)] == ["begun", "finished", "saved"]
        trace = httpx.get(f"{url}/api/runs/{saved['run']}").json()["trace"]
        assert trace["answer"] == "Port Velm" and trace["versions"]["revelator"] == "1"
        refused = httpx.post(f"{url}/api/runs", json={"question": question, "plan": "Who is {x}?"}, timeout=60)
        assert refused.status_code == 400 and refused.json()["error"]["diagnostics"]
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=60) as client:
            asked = [{"role": "user", "content": question}]
            assert client.chat.completions.create(model="revelator", messages=asked).choices
    assert (tmp_path / "inspected" / f"{saved['run']}.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "error", "mend"),
    [
        (["--url", "127.0.0.1:1"], Unavailable, "revelator serve"),
        ([], Unavailable, "revelator serve"),
        (["--url", "127.0.0.1:1", "--host", "192.0.2.1"], ConfigError, TOKEN),
    ],
)
def test_what_keeps_it_from_starting_says_how_to_mend_it(arguments, error, mend, tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    result = CliRunner().invoke(inspect, ["--home", str(tmp_path), "--port", "0", *arguments])
    assert isinstance(result.exception, error) and mend in (result.exception.hint or "")


def test_a_port_in_use_is_named(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(inspect, ["--url", "127.0.0.1:1", "--home", str(tmp_path), "--port", port])
    assert isinstance(result.exception, ConfigError) and port in str(result.exception)
