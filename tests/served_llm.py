"""A real language model behind llama.cpp's server, for the tests marked `llm`: the one of `make llm`, or a running one.

The model has 0.5 B parameters: these tests hold the protocol and the form of what comes back, not how right it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served_base import serve

LLM = Path(os.environ.get("REVELATOR_LLM", Path(__file__).parents[1] / ".venv" / "llm"))  # `make llm` makes it
MODEL = "qwen-0.5b"


@pytest.fixture(scope="session")
def llm_url() -> Iterator[str]:
    """The base URL of a chat endpoint with a language model."""
    if url := os.environ.get("REVELATOR_LLM_URL"):
        yield url
        return
    if not (LLM / "complete").is_file():
        pytest.skip(f"no language model in {LLM}: `make llm` installs one, or name an endpoint in REVELATOR_LLM_URL")
    command = [str(LLM / "llama-server"), "-m", str(LLM / f"{MODEL}.gguf"), "-c", "8192", "-np", "2", "-t", "1"]
    with serve(command, {}) as url:
        yield url
