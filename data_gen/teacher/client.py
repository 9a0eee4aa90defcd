"""Asks an OpenAI-compatible endpoint: from the cache, or over the network within the budget, with retries.

Only the configured address is asked: redirects are not followed, and proxies of the environment are not used. The cache
is one SQLite file in WAL mode; an answer is on the disk before it is used, so a process that is killed loses only calls
that had no answer yet. Its key is a digest of what decides an answer: model, prompt and parameters, not the address. A
call is only made when its dearest outcome still fits the budget, so the budget is never exceeded.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_gen.teacher.config import BudgetConfig, EndpointConfig
from revelator.errors import DataError, DeadlineExceeded, RevelatorError, ServingError, Unavailable
from revelator.files import sha256_text
from revelator.language_model import Endpoint, RefusedError, Reply
from revelator.tasks.chat_prompts import Message

WAIT = 30.0  # seconds for another process that is writing
KEPT = ("text", "tokens_in", "tokens_out", "finish")  # fields of a reply


class Cache:
    """Replies by request. One event loop, or one thread, at a time; several processes may share the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._explain_errors():
            self._store = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
            self._store.execute("PRAGMA journal_mode=WAL")
            self._store.execute("PRAGMA synchronous=FULL")
            self._store.execute("CREATE TABLE IF NOT EXISTS calls (key TEXT PRIMARY KEY, request TEXT, reply TEXT)")

    def get(self, request: Mapping[str, Any]) -> Reply | None:
        with self._explain_errors():
            row = self._store.execute("SELECT reply FROM calls WHERE key = ?", (_hash_request(request),)).fetchone()
        return Reply(**json.loads(row[0])) if row else None

    def put(self, request: Mapping[str, Any], reply: Reply) -> None:
        """Returns when the reply is on the disk."""
        kept = {name: getattr(reply, name) for name in KEPT}
        values = (_hash_request(request), _write_canonical(request), json.dumps(kept, ensure_ascii=False))
        with self._explain_errors():
            self._store.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", values)

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            hint = "free space if the disk is full; a damaged file must be moved away, its answers are then asked again"
            raise DataError(f"the cache of answers: {error}", where=str(self.path), hint=hint) from error


def _hash_request(request: Mapping[str, Any]) -> str:
    return sha256_text(_write_canonical(request))


def _write_canonical(request: Mapping[str, Any]) -> str:
    return json.dumps(request, sort_keys=True, ensure_ascii=False)


MILLION = 1_000_000
TEMPLATE_TOKENS = 64  # that a chat template adds to each message, at most


class BudgetSpentError(RevelatorError):
    """The next call does not fit into the budget any more."""


class Budget:
    """Counts tokens and money; `hold` sets aside what a call may cost at most until it is `charge`d."""

    def __init__(self, config: BudgetConfig) -> None:
        self.config = config
        self.tokens_in = self.tokens_out = 0
        self._held: list[tuple[int, int]] = []
        self._settled = asyncio.Condition()

    @property
    def money(self) -> float:
        return self._price(self.tokens_in, self.tokens_out)

    def charge(self, reply: Reply) -> None:
        self.tokens_in += reply.tokens_in
        self.tokens_out += reply.tokens_out

    @asynccontextmanager
    async def hold(self, most_in: int, most_out: int) -> AsyncIterator[None]:
        """Waits for calls under way where their outcome decides; raises BudgetSpentError when it does not fit."""
        call = (most_in, most_out)
        async with self._settled:
            while not self._fits(call):
                if not self._held:
                    raise BudgetSpentError("the budget is spent")
                await self._settled.wait()
            self._held.append(call)
        try:
            yield
        finally:
            self._held.remove(call)
            async with self._settled:
                self._settled.notify_all()

    def _fits(self, call: tuple[int, int]) -> bool:
        calls = [(self.tokens_in, self.tokens_out), *self._held, call]
        tokens_in, tokens_out = (sum(side) for side in zip(*calls, strict=True))
        within_tokens = self.config.tokens is None or tokens_in + tokens_out <= self.config.tokens
        return within_tokens and (self.config.money is None or self._price(tokens_in, tokens_out) <= self.config.money)

    def _price(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.config.price_in + tokens_out * self.config.price_out) / MILLION


class Client:
    """One endpoint and model. `ask` raises BudgetSpentError, RefusedError, Unavailable or DeadlineExceeded after the
    retries, and ServingError for what no retry mends (a wrong key, model or address). `calls` counts the answers that
    came over the network, `cached` those of the cache."""

    def __init__(self, config: EndpointConfig, cache: Cache, budget: Budget, max_tokens: int) -> None:
        self.config, self.cache, self.budget, self.max_tokens = config, cache, budget, max_tokens
        self.calls = self.cached = 0
        self._failed: RevelatorError | None = None  # what ended the asking; calls under way still end
        self._endpoint = Endpoint(
            config.url, config.model, timeout=config.timeout, retries=config.retries, is_patient=True
        )
        self._slots = asyncio.Semaphore(config.concurrency)

    async def ask(self, messages: list[Message], temperature: float, seed: int) -> Reply:
        """The reply to a chat. The same chat, temperature and seed are answered from the cache once they were asked."""
        options = {"temperature": temperature, "max_tokens": self.max_tokens, "seed": seed}
        request = {"model": self.config.model, "messages": messages, **options}
        if (known := self.cache.get(request)) is not None:
            self.cached += 1
            self.budget.charge(known)
            return known
        most_in = sum(len(message["content"].encode()) + TEMPLATE_TOKENS for message in messages)
        async with self._slots, self.budget.hold(most_in, self.max_tokens):
            if self._failed:
                raise self._failed
            reply = await self._ask_endpoint(messages, options, self.config.retries)
            if not (reply.tokens_in and reply.tokens_out):  # what reports no tokens is charged the most
                reply = replace(reply, tokens_in=reply.tokens_in or most_in)
                reply = replace(reply, tokens_out=reply.tokens_out or len(reply.text.encode()))
            self.cache.put(request, reply)
            self.budget.charge(reply)
        self.calls += 1
        return reply

    async def close(self) -> None:
        await self._endpoint.close()

    async def _ask_endpoint(self, messages: list[Message], options: dict[str, Any], retries: int) -> Reply:
        """The endpoint retries after refusals and lost connections, this function after a malformed reply."""
        try:
            return await self._endpoint.chat(messages, **options)
        except RefusedError:
            raise
        except ServingError as error:
            if retries and isinstance(error, Unavailable) and not error.final:
                return await self._ask_endpoint(messages, options, retries - 1)
            if isinstance(error, Unavailable | DeadlineExceeded):
                goes_on = f"run the same command again: the answers so far are kept in {self.cache.path}"
                error.hint = "; ".join(filter(None, [error.hint, goes_on]))
            self._failed = self._failed or error
            raise
