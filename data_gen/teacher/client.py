"""Asks an OpenAI-compatible endpoint: from the cache, or over the network within rates and budget, with retries.

Only the configured address is asked: redirects are not followed, and proxies of the environment are not used. The cache
is one SQLite file in WAL mode; an answer is on the disk before it is used, so a process that is killed loses only calls
that had no answer yet. Its key is a digest of what decides an answer: model, prompt and parameters, not the address. A
call is only made when its dearest outcome still fits the budget, so the budget is never exceeded.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
from aiolimiter import AsyncLimiter
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from data_gen.teacher.config import BudgetConfig, EndpointConfig
from revelator.endpoints import check_key, mask_key
from revelator.errors import DataError, RevelatorError, ServingError, Unavailable
from revelator.files import sha256_text
from revelator.tasks.chat_prompts import Message

WAIT = 30.0  # seconds for another process that is writing


@dataclass(frozen=True)
class Reply:
    """A model's text, the tokens that it was charged for, and why it ended (`stop`, or `length` if it was cut)."""

    text: str
    tokens_in: int
    tokens_out: int
    finish: str


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
        values = (_hash_request(request), _write_canonical(request), json.dumps(vars(reply), ensure_ascii=False))
        with self._explain_errors():
            self._store.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", values)

    def __len__(self) -> int:
        with self._explain_errors():
            return int(self._store.execute("SELECT count(*) FROM calls").fetchone()[0])

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


KEY_VARIABLE = "OPENAI_API_KEY"
MESSAGE_CHARACTERS = 300  # of a server's own error text
RETRYABLE = frozenset({408, 409, 425, 429})
ONE_REQUEST = frozenset({400, 413, 422})  # refusals of this prompt; the next one may pass


class RefusedError(RevelatorError):
    """The endpoint refuses this one prompt: too long, or against its rules."""


class Client:
    """One endpoint and model. `ask` raises BudgetSpentError, RefusedError, Unavailable after the retries, and
    ServingError for what no retry mends (a wrong key, model or address). `calls` counts the answers that came over the
    network, `cached` those of the cache."""

    def __init__(self, config: EndpointConfig, cache: Cache, budget: Budget, max_tokens: int) -> None:
        self.config, self.cache, self.budget, self.max_tokens = config, cache, budget, max_tokens
        self.calls = self.cached = 0
        self._failed: RevelatorError | None = None  # what ended the asking; calls under way still end
        key = os.environ.get(KEY_VARIABLE, "")
        self._key = check_key(key, KEY_VARIABLE) if key.strip() else None
        self._openai = AsyncOpenAI(
            base_url=config.url,
            api_key=self._key or "none",
            timeout=config.timeout,
            max_retries=config.retries,
            http_client=DefaultAsyncHttpxClient(
                follow_redirects=False, trust_env=False, event_hooks={"request": [self._wait_for_rates]}
            ),
        )
        self._slots = asyncio.Semaphore(config.concurrency)
        rate, tokens = config.requests_per_minute, config.tokens_per_minute
        self._requests = AsyncLimiter(max(1.0, rate / 60), max(1.0, 60 / rate)) if rate else None  # evenly
        self._tokens = AsyncLimiter(tokens, 60) if tokens else None

    async def ask(self, messages: list[Message], temperature: float, seed: int) -> Reply:
        """The reply to a chat. The same chat, temperature and seed are answered from the cache once they were asked."""
        request = {
            "model": self.config.model,
            "messages": messages,
            "temperature": temperature,
            "max_tokens": self.max_tokens,
            "seed": seed,
        }
        if (known := self.cache.get(request)) is not None:
            self.cached += 1
            self.budget.charge(known)
            return known
        most_in = sum(len(message["content"].encode()) + TEMPLATE_TOKENS for message in messages)
        async with self._slots, self.budget.hold(most_in, self.max_tokens):
            if self._failed:
                raise self._failed
            reply = await self._ask_endpoint(request, most_in)
            self.cache.put(request, reply)
            self.budget.charge(reply)
        self.calls += 1
        return reply

    async def close(self) -> None:
        await self._openai.close()

    async def _ask_endpoint(self, request: dict[str, Any], most_in: int) -> Reply:
        """The openai client retries after refusals and lost connections, this function after a malformed reply."""
        fault: RevelatorError
        for _ in range(self.config.retries + 1):
            try:
                return _read_reply(await self._openai.chat.completions.create(**request), most_in)
            except openai.APIError as error:
                fault = self._describe_fault(error)
                break
            except (openai.OpenAIError, ValueError, RecursionError, _MalformedError):
                hint = self._hint_again()
                fault = Unavailable("the reply is not what the protocol promises", where=self.config.url, hint=hint)
        if not isinstance(fault, RefusedError):
            self._failed = self._failed or fault
        raise fault

    async def _wait_for_rates(self, request: httpx.Request) -> None:
        """Before each attempt. A token has about 4 bytes."""
        if self._requests:
            await self._requests.acquire()
        if self._tokens:
            await self._tokens.acquire(min(len(request.content) // 4 + self.max_tokens, self._tokens.max_rate))

    def _describe_fault(self, error: openai.APIError) -> RevelatorError:
        where = self.config.url
        if isinstance(error, openai.APIStatusError):
            said, status = mask_key(error.message, self._key)[:MESSAGE_CHARACTERS], error.status_code
            if status in ONE_REQUEST:
                return RefusedError(f"the endpoint refused the prompt ({status})", where=where, hint=said)
            message = f"the endpoint answered {status}: {said}"
            if status in RETRYABLE or status >= 500:
                return Unavailable(message, where=where, hint=self._hint_again())
            hint = f"check the model name {self.config.model!r} and the key in {KEY_VARIABLE}"
            hint = hint if status >= 400 else "a redirect is not followed: give the address that answers"
            return ServingError(message, where=where, hint=hint)
        message = mask_key(f"no connection: {error.__cause__ or error}", self._key)
        if isinstance(error, openai.APITimeoutError):
            message = f"no answer within {self.config.timeout:g} s"
        return Unavailable(message, where=where, hint=self._hint_again())

    def _hint_again(self) -> str:
        return f"run the same command again: the answers so far are kept in {self.cache.path}"


class _MalformedError(Exception):
    """A reply without a text."""


def _read_reply(completion: Any, most_in: int) -> Reply:
    """The openai client checks no reply, so any JSON may be in this one. What reports no tokens is charged the most;
    half of a surrogate pair in the text becomes a question mark, for nothing could write it down."""
    try:
        choice = completion.choices[0]
        text, finish = choice.message.content or "", choice.finish_reason
        if not isinstance(text, str):
            raise TypeError("content is no text")
        text = text.encode("utf-8", "replace").decode()
    except (AttributeError, IndexError, TypeError, KeyError) as error:
        raise _MalformedError from error
    tokens_in = _read_count(completion.usage, "prompt_tokens", most_in)
    tokens_out = _read_count(completion.usage, "completion_tokens", len(text.encode()))
    return Reply(text, tokens_in, tokens_out, finish if isinstance(finish, str) else "")


def _read_count(usage: Any, name: str, otherwise: int) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else otherwise
