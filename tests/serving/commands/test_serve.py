"""`revelator serve` for somebody who has documents, and has trained and deployed nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pytriton", reason="no Triton server is installed: `pip install 'revelator[server]'`")

from evaluation.chain import serve_locally
from revelator.client import Client
from serving.commands.serve import serve
from serving.models.releases import EMBEDDED_VERSION, read_release
from serving.retrieval import build_index

GUIDE = """# The Lomvi

The captain of the Lomvi is Ana Berg.

# Ana Berg

Ana Berg was born in Holm.
"""


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
        assert answer.answers == ("Holm",)
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
