"""Web search as a knowledge source: SearXNG and Brave, whose APIs answer in JSON.

A hit becomes a passage of its title and snippet, cleaned to plain text; the page behind it is never fetched, and no
address in a reply is ever asked. A reply is read in a thread, and only as far as passages are wanted: 8 MB may hold
30,000 hits. Keys come from the environment (`BRAVE_API_KEY`), travel in a header, and are blanked in passages.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from revelator.endpoints import check_key
from revelator.errors import ConfigError, Unavailable
from revelator.trace import Passage
from serving.knowledge.http import HttpEndpoint
from serving.knowledge.operators import Query, SourceKind, SourceResult

TITLE_CHARACTERS = 200
TEXT_CHARACTERS = 2_000
MARKUP = 4  # characters of a raw text that are read for each that is kept
QUERY_CHARACTERS = 400  # Brave's limit; the others allow more
SNIPPETS = ("content", "description", "extra_snippets")  # SearXNG has the first, Brave the others
_TAG = re.compile(r"<[^<>]{0,200}>")


@dataclass(frozen=True)
class SearchApi:
    """How one API is spoken: default address (None: it must be given), parameters of every query, the parameter that
    says how many hits are wanted, header and environment variable of its key."""

    url: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    count: str = ""
    key_header: str = ""
    key_variable: str = ""


APIS = {
    "searxng": SearchApi(parameters={"format": "json"}),
    "brave": SearchApi(
        "https://api.search.brave.com/res/v1/web/search",
        {"text_decorations": "false"},
        "count",
        key_header="X-Subscription-Token",
        key_variable="BRAVE_API_KEY",
    ),
}


def read_hits(reply: Any) -> Iterator[tuple[str, str, str]]:
    """Address, title and snippet of each hit of a reply: SearXNG's stand in `results`, Brave's in `web`."""
    hits = (reply.get("web") or reply).get("results")
    for hit in hits if isinstance(hits, list) else []:
        if isinstance(hit, dict):
            yield _join_texts(hit, "url"), _join_texts(hit, "title"), _join_texts(hit, *SNIPPETS)


def _join_texts(hit: Mapping[str, Any], *names: str) -> str:
    values = [hit.get(name) for name in names]
    texts = [text for value in values for text in (value if isinstance(value, list) else [value])]
    return " ".join(text for text in texts if isinstance(text, str))


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

    async def find(self, query: Query, k: int) -> SourceResult:
        found = await asyncio.gather(*(self._search(text[:QUERY_CHARACTERS], k) for text in query.texts))
        return SourceResult(passages=tuple(found))

    async def close(self) -> None:
        await self._http.close()

    async def _search(self, text: str, k: int) -> tuple[Passage, ...]:
        wanted = {self.api.count: str(k)} if self.api.count else {}
        body = await self._http.get({"q": text, **self.api.parameters, **wanted})
        return await asyncio.to_thread(self._read_passages, body, k)

    def _read_passages(self, body: bytes, k: int) -> tuple[Passage, ...]:
        try:
            found = (
                self._make_passage(1 / rank, *hit) for rank, hit in enumerate(read_hits(json.loads(body)), start=1)
            )
            return tuple(islice((passage for passage in found if passage.text), k))
        except (ValueError, AttributeError, RecursionError) as error:
            raise Unavailable("the reply is not the JSON that the API promises", where=self._http.url) from error

    def _make_passage(self, score: float, url: str, title: str, snippet: str) -> Passage:
        return Passage(
            id=self._clean(url, TEXT_CHARACTERS),
            title=self._clean(title, TITLE_CHARACTERS),
            text=self._clean(snippet, TEXT_CHARACTERS),
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
