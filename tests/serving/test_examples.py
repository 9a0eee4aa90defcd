"""The examples of README.md and docs/serving.md, run as printed over the documents of `examples/faculty`, with the
embedded models; only the addresses are those of the test's service."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from serving.home.running import find_running_server
from serving.retrieval import build_index
from tests.serving.commands.test_serve import serve_locally

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ("README.md", "docs/serving.md")
FRAMEWORKS = re.compile(r"^from (langgraph|llama_index|haystack)\b", re.MULTILINE)
FOUND = [found for page in PAGES for found in FENCE.findall((ROOT / page).read_text(encoding="utf-8"))]
EXAMPLES = [
    (language, text) for language, text in FOUND if not re.search(r":5005|--port 5005", text)
]  # MLflow's servers


@pytest.fixture(scope="module")
def printed(tmp_path_factory) -> Iterator:
    """Runs an example against a service over the faculty's documents, and gives what it prints."""
    home = tmp_path_factory.mktemp("home")
    build_index([ROOT / "examples" / "faculty" / "documents"], home / "faculty")
    serving = ("serve", "--home", str(home), "--index", str(home / "faculty"))
    with ExitStack() as stack:
        stack.enter_context(serve_locally(home, serving))
        running = find_running_server(home)
        assert running
        addresses = {"127.0.0.1:8001": running.grpc, "http://127.0.0.1:8000": running.http}

        def run(language: str, example: str) -> str:
            for address in addresses:
                example = example.replace(address, addresses[address])
            command = [sys.executable, "-"] if language == "python" else ["sh", "-e"]
            done = subprocess.run(
                command,
                input=example,
                cwd=ROOT / "examples",  # beside the adapters, which are to be copied
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield run


def test_the_documents_show_every_way():
    together = "".join(example for _, example in EXAMPLES)
    for name in (
        "Client(",
        "AsyncClient(",
        "client.stream(",
        "tritonclient.grpc",
        "curl -s http://",
        "/v2/models/executor/infer",
        "openai.OpenAI(",
        "RevelatorRetriever(",
        "make_tool(",
        "RevelatorQueryEngine(",
        "RevelatorAnswerer(",
    ):
        assert name in together


@pytest.mark.parametrize(("language", "example"), EXAMPLES)
def test_an_example_works_as_printed(printed, language, example):
    if language == "sh" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    if (named := FRAMEWORKS.search(example)) and find_spec(named[1]) is None:
        pytest.skip(f"{named[1]} is not installed: `make adapters` installs it")
    said = printed(language, example)
    assert "4115" in said
    if language == "sh":
        assert json.loads(said)["outputs"][0]["data"] == ["4115"]
