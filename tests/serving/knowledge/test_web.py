"""Web search over a real server that speaks the formats of SearXNG and Brave, and misbehaves."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from revelator.errors import ConfigError, DeadlineExceeded, Unavailable
from serving.knowledge.http import HttpEndpoint
from serving.knowledge.operators import SourceResult, build_direct_query
from serving.knowledge.web import WebSource, clean, read_hits
from tests.serving.knowledge.toy_web import Web

KEY = "k3y-of-the-tests"
PATH = "/search"
SEARXNG = {
    "query": "q",
    "results": [
        {
            "url": "http://a.example/1",
            "title": "Tin <b>Comet</b>",
            "content": "A 1987 film &amp; comedy.\u202e\x00 <i>By</i> Ada Quill",
        },
        {"url": "http://a.example/2", "title": "No text", "content": ""},
        {"url": "http://a.example/3", "title": None, "content": ["Second ", "part"]},
        "not an object",
    ],
}
BRAVE = {
    "web": {"results": [{"url": "http://b.example", "title": "B", "description": "one", "extra_snippets": ["two"]}]}
}
BOMB = gzip.compress(gzip.compress(bytes(20_000_000)))


@pytest.fixture
async def source(web: Web) -> AsyncIterator[WebSource]:
    source = WebSource("searxng", url=web.url + PATH, timeout=20)
    yield source
    await source.close()


async def ask(source: WebSource, question: str = "Who made Tin Comet?", k: int = 3) -> SourceResult:
    return await source.find(build_direct_query(question), k)


async def test_searxng_results_become_clean_passages(web: Web, source: WebSource) -> None:
    web.replies[PATH] = SEARXNG
    [passages] = (await ask(source)).passages
    assert [(p.id, p.title, p.text) for p in passages] == [
        ("http://a.example/1", "Tin Comet", "A 1987 film & comedy. By Ada Quill"),
        ("http://a.example/3", "", "Second part"),
    ]
    assert web.seen[0][1] == {"q": "Who made Tin Comet?", "format": "json"}
    assert web.seen[0][2]["Accept-Encoding"] == "identity"


async def test_a_long_reply_is_read_in_a_thread_and_only_as_far_as_passages_are_wanted(
    web: Web, source: WebSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = []

    def hits(reply: Any) -> Iterator[tuple[str, str, str]]:
        for hit in read_hits(reply):
            readers.append(threading.current_thread())
            yield hit

    monkeypatch.setattr("serving.knowledge.web.read_hits", hits)
    web.replies[PATH] = {"results": [{"url": "u", "title": "t", "content": text} for text in ("", *"abcd" * 1_000)]}
    [passages] = (await ask(source)).passages
    assert [p.text for p in passages] == ["a", "b", "c"]
    assert len(readers) == 4
    assert threading.main_thread() not in readers


async def test_only_the_beginning_of_a_snippet_is_read(web: Web, source: WebSource) -> None:
    late, long = "<i> </i>" * 2_000 + "late", "word " * 2_000
    web.replies[PATH] = {"results": [{"url": "u", "title": "t", "content": text} for text in (late, long)]}
    [[passage]] = (await ask(source)).passages
    assert passage.text == long[:2_000]


async def test_a_key_goes_from_the_environment_into_a_header(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    web.replies[PATH] = BRAVE
    source = WebSource("brave", url=web.url + PATH)
    [passages] = (await ask(source)).passages
    await source.close()
    assert [p.text for p in passages] == ["one two"]
    path, sent, headers = web.seen[0]
    assert {k.lower(): v for k, v in headers.items()}["x-subscription-token"] == KEY
    assert sent == {"q": "Who made Tin Comet?", "count": "3", "text_decorations": "false"} and path == PATH


@pytest.mark.parametrize("key", ["", "two\nlines", "clé"])
def test_a_key_that_is_missing_or_no_header_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", key)
    with pytest.raises(ConfigError, match="BRAVE_API_KEY") as caught:
        WebSource("brave")
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (429, "answered 429"),
        (500, "answered 500"),
        (b"{broken", "not the JSON"),
        (b"[]", "not the JSON"),
        (b"\xff\xfe\x00", "not the JSON"),
        (b"[" * 100_000, "not the JSON"),
        (b"x" * 8_100_000, "longer than"),
        ((200, {"Content-Encoding": "gzip, gzip"}, BOMB), "compressed"),
        ((200, {"Content-Encoding": "br"}, b"x"), "compressed"),
        ((503, {"Content-Encoding": "gzip"}, BOMB), "answered 503: \n"),
        ("http://127.0.0.1:9/", "a redirect to http://127.0.0.1:9/"),
        ("//10.0.0.1/x", "a redirect to //10.0.0.1/x"),
        ("file:///etc/passwd", "a redirect to file:///etc/passwd"),
        ("/search/", "a redirect to /search/"),
    ],
)
async def test_a_fault_is_one_clear_error(web: Web, source: WebSource, reply: Any, says: str) -> None:
    web.replies[PATH] = reply
    with pytest.raises(Unavailable, match=says) as caught:
        await ask(source)
    assert caught.value.where == web.url + PATH
    assert {path for path, _, _ in web.seen} == {PATH}


async def test_a_slow_answer_ends_with_the_timeout(web: Web) -> None:
    web.replies[PATH] = threading.Event()
    source = WebSource("searxng", url=web.url + PATH, timeout=0.2)
    with pytest.raises(DeadlineExceeded, match=r"0\.2 s"):
        await ask(source)
    await source.close()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    source = WebSource("searxng", url="http://127.0.0.1:9/search")
    with pytest.raises(Unavailable, match="no answer"):
        await ask(source)
    await source.close()


async def test_no_address_in_a_reply_is_ever_asked(web: Web, source: WebSource) -> None:
    trap = f"{web.url}/trap"
    web.replies[PATH] = {
        "results": [{"url": trap, "title": trap, "content": f'<img src="{trap}"> see {trap}'}],
        "next": trap,
    }
    await ask(source)
    assert [path for path, _, _ in web.seen] == [PATH]


async def test_a_proxy_of_the_environment_is_not_used(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    web.replies[PATH] = SEARXNG
    source = WebSource("searxng", url=web.url + PATH)
    assert (await ask(source)).passages[0]
    await source.close()


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_a_server_that_echoes_the_key_does_not_get_it_into_errors_or_logs(
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("BRAVE_API_KEY", KEY)
    web.replies[PATH] = status
    source = WebSource("brave", url=web.url + PATH)
    with pytest.raises(Unavailable) as caught:
        await ask(source)
    await source.close()
    assert "***" in str(caught.value)
    assert KEY not in str(caught.value) + caplog.text


async def test_a_server_that_echoes_the_key_in_a_result_does_not_get_it_into_a_passage(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is written: in another case, in JSON's escapes, or in HTML's."""
    key = "K3y/of-the+tests"
    monkeypatch.setenv("BRAVE_API_KEY", key)
    echo = "".join(f"\\u{ord(c):04x}" for c in key)
    body = (
        f'{{"url": "http://x.example/{key.lower()}", "title": "{key}", "description": "K3y&#x2F;of-the+tests {echo}"}}'
    )
    web.replies[PATH] = f'{{"web": {{"results": [{body}]}}}}'.encode()
    source = WebSource("brave", url=web.url + PATH)
    [[passage]] = (await ask(source)).passages
    await source.close()
    assert (passage.id, passage.title, passage.text) == ("http://x.example/***", "***", "*** ***")


async def test_a_redirect_to_an_address_that_holds_the_key_does_not_show_it(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "Sk-Secret")
    web.replies[PATH] = "http://Sk-Secret.example.com/?key=%73k-Secret"
    source = WebSource("brave", url=web.url + PATH)
    with pytest.raises(Unavailable, match=r"redirect to http://\*\*\*\.example\.com/\?key=\*\*\*"):
        await ask(source)
    await source.close()


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example",
        "http://",
        "http://user:pw@a.example/",
        "http://a.example/?key=1",
        "file:///etc/passwd",
        "a",
        "http://[",
    ],
)
def test_an_endpoint_is_an_http_address_without_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HttpEndpoint(url, timeout=1)
    assert "pw" not in str(caught.value)


def test_text_is_cleaned_of_marks_and_controls() -> None:
    assert clean("a\x1b[31m<script>x</script>&lt;b&gt;\u200bc\n d") == "a [31m x c d"


def test_an_api_that_does_not_exist_or_has_no_address_is_a_configuration_error() -> None:
    for api, says in (("altavista", "no search API"), ("searxng", "no address of its own")):
        with pytest.raises(ConfigError, match=says):
            WebSource(api)
