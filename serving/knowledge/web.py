"""Web search as a knowledge source: SearXNG and Brave, whose APIs answer in JSON.

An API is two functions: what is sent for a query, and where the results stand in the reply. A result becomes a
passage of its title and snippet, cleaned to plain text; the page behind it is never fetched, and no address in a
reply is ever asked. A reply is read in a thread, and only as far as passages are wanted: 8 MB may hold 30,000 results.
Keys come from the environment (`BRAVE_API_KEY`), travel in a header, and are blanked in passages.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from revelator.endpoints import check_key
from revelator.errors import ConfigError, Unavailable
from revelator.trace import Passage
from serving.knowledge.http import HttpEndpoint
from serving.knowledge.operators import Found, Query, SourceKind

TITLE_CHARACTERS = 200
TEXT_CHARACTERS = 2_000
MARKUP = 4  # characters of a raw text that are read for each that is kept
QUERY_CHARACTERS = 400  # Brave's limit; the others allow more
_TAG = re.compile(r"<[^<>]{0,200}>")


@dataclass(frozen=True)
class Result:
    """One hit as the API tells it."""

    url: str
    title: str
    snippet: str


@dataclass(frozen=True)
class SearchApi:
    """How one API is spoken: default address (None: it must be given), header and environment variable of its key, its
    parameters, and its hits."""

    url: str | None
    parameters: Callable[[str, int], dict[str, Any]]
    results: Callable[[Any], Iterable[Result]]
    key_header: str = ""
    key_variable: str = ""


def _read_hits(rows: Any, url: str, title: str, *snippets: str) -> Iterator[Result]:
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict):
            said = " ".join(text for name in snippets for text in _list_texts(row.get(name)))
            yield Result(" ".join(_list_texts(row.get(url))), " ".join(_list_texts(row.get(title))), said)


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for text in value if isinstance(text, str)]
    return [value] if isinstance(value, str) else []


def _read_brave(reply: Any) -> Iterable[Result]:
    results = (reply.get("web") or {}).get("results")
    return _read_hits(results, "url", "title", "description", "extra_snippets")


APIS: dict[str, SearchApi] = {
    "searxng": SearchApi(
        None,
        lambda query, k: {"q": query, "format": "json"},
        lambda reply: _read_hits(reply.get("results"), "url", "title", "content"),
    ),
    "brave": SearchApi(
        "https://api.search.brave.com/res/v1/web/search",
        lambda query, k: {"q": query, "count": str(k), "text_decorations": "false"},
        _read_brave,
        key_header="X-Subscription-Token",
        key_variable="BRAVE_API_KEY",
    ),
}


class WebSource:
    """Searches with one API. `timeout` is in seconds and covers one search.

    Raises ConfigError for an API that does not exist, an address that is missing, or a key that is not set; `find`
    raises Unavailable and DeadlineExceeded.
    """

    kind: SourceKind = "web"

    def __init__(self, api: str, name: str = "web", *, url: str | None = None, timeout: float = 5.0) -> None:
        if api not in APIS:
            raise ConfigError(f"there is no search API {api!r}", where="api", hint=f"one of {', '.join(APIS)}")
        self.api, self.name, self.timeout = APIS[api], name, timeout
        address = url or self.api.url
        if address is None:
            raise ConfigError(
                f"{api} has no address of its own", where="url", hint="give your instance's /search address"
            )
        self._http = HttpEndpoint(address, timeout=timeout, **_read_key(self.api))

    async def find(self, query: Query, k: int) -> Found:
        found = await asyncio.gather(*(self._search(text[:QUERY_CHARACTERS], k) for text in query.texts))
        return Found(passages=tuple(found))

    async def close(self) -> None:
        await self._http.close()

    async def _search(self, text: str, k: int) -> tuple[Passage, ...]:
        parameters = self.api.parameters(text, k)
        body = await self._http.get(parameters)
        return await asyncio.to_thread(self._read_passages, body, k)

    def _read_passages(self, body: bytes, k: int) -> tuple[Passage, ...]:
        try:
            results = self.api.results(json.loads(body))
        except (ValueError, AttributeError, RecursionError) as error:
            raise Unavailable("the reply is not the JSON that the API promises", where=self._http.url) from error
        passages = (self._make_passage(result, 1 / rank) for rank, result in enumerate(results, start=1))
        return tuple(islice((passage for passage in passages if passage.text), k))

    def _make_passage(self, result: Result, score: float) -> Passage:
        return Passage(
            id=self._clean(result.url, TEXT_CHARACTERS),
            title=self._clean(result.title, TITLE_CHARACTERS),
            text=self._clean(result.snippet, TEXT_CHARACTERS),
            score=round(score, 4),
        )

    def _clean(self, text: str, length: int) -> str:
        return self._http.without_key(clean(text[: MARKUP * length]))[:length]


def clean(text: str) -> str:
    """Plain text: entities read, tags and control characters removed, white space folded."""
    plain = _TAG.sub(" ", html.unescape(_TAG.sub(" ", text)))
    kept = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in plain)
    return " ".join("".join(c for c in kept if unicodedata.category(c) not in ("Cf", "Cs", "Co")).split())


def _read_key(api: SearchApi) -> Mapping[str, Any]:
    if not api.key_variable:
        return {}
    key = check_key(os.environ.get(api.key_variable, ""), api.key_variable)
    return {"key": key, "headers": {api.key_header: key}}
