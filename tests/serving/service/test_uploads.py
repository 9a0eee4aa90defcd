"""Documents that people add from the page: to a real index that is served, and in a real browser."""

from __future__ import annotations

import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from revelator.client import Client
from serving.home.config import ServingConfig
from serving.retrieval import build_index
from serving.service.addresses import Exposure
from tests.conftest import Endpoint
from tests.service_thread import serve_in_thread
from tests.serving.inspector.test_page import list_violations, opened
from tests.serving.service.conftest import WAIT, Service

GUIDE = "# The Flume Laboratory\n\nThe head of the Flume Laboratory is Ines Calloway.\n"
QUESTION = "Who is the head of the Flume Laboratory?"


@pytest.fixture
def served(home: Path, config: ServingConfig, endpoint: Endpoint, tmp_path: Path) -> Iterator[Service]:
    """A service over a home folder and an index of its own."""
    own = shutil.copytree(home, tmp_path / "home")
    (tmp_path / "harbour.md").write_text("# Port Velm\n\nPort Velm has a harbour.\n")
    build_index([tmp_path / "harbour.md"], tmp_path / "ix")
    with serve_in_thread(own, config.model_copy(update={"index": tmp_path / "ix"})) as (questions, running):
        yield Service(own, running, questions, endpoint)


def send(served: Service, name: str, body: bytes | str) -> httpx.Response:
    url = f"{served.running.http}/api/documents"
    return httpx.post(url, params={"name": name}, content=body, timeout=WAIT * 10, trust_env=False)


def list_documents(served: Service) -> list[str]:
    return httpx.get(f"{served.running.http}/api/documents", trust_env=False).json()["documents"]


def find_texts(served: Service) -> str:
    with Client(served.url, timeout=WAIT) as client:
        nodes = client.ask(QUESTION, strategy="single").trace.nodes
    return "\n".join(passage.text for node in nodes for passage in node.documents)


def test_a_document_is_searched_from_the_next_question_on_and_may_be_changed(served: Service) -> None:
    assert "Calloway" not in find_texts(served)
    added = send(served, "guide.md", GUIDE)
    assert added.json() == {"name": "guide.md", "passages": 1, "version": 2}
    assert "Calloway" in find_texts(served)
    assert send(served, "guide.md", GUIDE.replace("Calloway", "Berg")).json()["version"] == 3
    assert "Ines Berg" in find_texts(served) and "Calloway" not in find_texts(served)
    assert list_documents(served) == ["harbour.md", "guide.md"]
    assert stat.S_IMODE((served.home / "uploads" / "guide.md").stat().st_mode) == 0o600


def test_a_document_that_some_may_read_is_added_and_not_named(served: Service) -> None:
    assert send(served, "guide.md", f"---\nallowed: [hr]\n---\n{GUIDE}").json()["passages"] == 1
    assert list_documents(served) == ["harbour.md"] and "Calloway" not in find_texts(served)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("", "x", "not a file's name"),
        ("../guide.md", "x", "not a file's name"),
        ("a\\b.md", "x", "not a file's name"),
        (".hidden.md", "x", "not a file's name"),
        ("a\nb.md", "x", "not a file's name"),
        ("run.exe", "x", "no kind of document"),
        ("guide.md", "", "the file is empty"),
        ("harbour.md", "x", "another document of this name"),
        ("broken.pdf", b"%PDF-1.7 \x00\x01", "cannot be read as PDF"),
    ],
)
def test_what_is_no_document_is_refused_and_leaves_nothing(
    served: Service, name: str, body: bytes | str, said: str
) -> None:
    refused = send(served, name, body)
    assert refused.status_code in (400, 404) and said in refused.json()["error"]["message"]
    assert list_documents(served) == ["harbour.md"] and not list(served.home.glob("uploads/*"))


def test_beyond_this_machine_the_page_adds_nothing_unless_it_is_told_to(
    home: Path, config: ServingConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVELATOR_TOKEN", "t")
    for uploads, status in ((None, 404), (True, 200)):
        told = config.model_copy(update={"uploads": uploads})
        with serve_in_thread(home, told, Exposure("0.0.0.0")) as (_, running):
            url, headers = f"{running.http}/api/documents", {"Authorization": "Bearer t"}
            assert httpx.get(url, headers=headers, trust_env=False).status_code == status
            assert httpx.get(url, trust_env=False).status_code == 401


def test_a_person_adds_a_document_and_asks_it(served: Service, browser, tmp_path: Path) -> None:
    served.endpoint.knowledge[QUESTION] = ["Ines Calloway"]
    (tmp_path / "guide.md").write_text(GUIDE)
    for page in opened(browser, served.running.http):
        page.keyboard.press("Escape")
        page.keyboard.press("d")
        expect(page.locator("#documents summary")).to_have_text("1 document is searched")
        page.locator("#document-file").set_input_files([tmp_path / "guide.md"])
        expect(page.locator(".uploads .good")).to_contain_text("guide.md: 1 passage", timeout=10 * WAIT * 1000)
        expect(page.locator("#documents summary")).to_have_text("2 documents are searched")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert list_violations(page) == [], scheme
        page.keyboard.press("Escape")
        page.locator("#where").fill('path = "guide.md"')
        page.locator("#question").fill(QUESTION)
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"\?run="))
        expect(page.locator(".answer").first).to_contain_text("Ines Calloway")
        expect(page.locator(".sources")).to_contain_text("guide.md")
        expect(page.locator(".asked .badge")).to_have_text('where path = "guide.md"')
        page.reload()
        expect(page.locator("#where")).to_have_value('path = "guide.md"')
