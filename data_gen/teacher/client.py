"""Asks an OpenAI-compatible endpoint: from the cache, or over the network within rates and budget, with retries.

Only the configured address is asked: redirects are not followed, and proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import openai
from aiolimiter import AsyncLimiter
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from data_gen.teacher.budget import TEMPLATE_TOKENS, Budget
from data_gen.teacher.cache import Cache, Reply
from data_gen.teacher.config import EndpointConfig
from revelator.endpoints import check_key, mask_key
from revelator.errors import RevelatorError, ServingError, Unavailable

KEY_VARIABLE = "OPENAI_API_KEY"
MESSAGE_CHARACTERS = 300  # of a server's own error text
LONGEST_WAIT = 60.0  # seconds between two attempts
RETRYABLE = frozenset({408, 409, 425, 429})
ONE_REQUEST = frozenset({400, 413, 422})  # refusals of this prompt; the next one may pass

Message = dict[str, str]


class RefusedError(RevelatorError):
    """The endpoint refuses this one prompt: too long, or against its rules."""


@dataclass
class Tally:
    """Calls answered over the network, answers from the cache, and attempts that failed and were made again."""

    calls: int = 0
    cached: int = 0
    retries: int = 0


class Client:
    """One endpoint and model. `ask` raises BudgetSpentError, RefusedError, Unavailable after the retries, and
    ServingError for what no retry mends (a wrong key, model or address). `sleep` passes the time between attempts."""

    def __init__(
        self,
        config: EndpointConfig,
        cache: Cache,
        budget: Budget,
        max_tokens: int,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.config, self.cache, self.budget, self.max_tokens = config, cache, budget, max_tokens
        self._sleep = sleep
        self.tally = Tally()
        self._failed: RevelatorError | None = None  # what ended the asking; calls under way still end
        key = os.environ.get(KEY_VARIABLE, "")
        self._key = check_key(key, KEY_VARIABLE) if key.strip() else None
        self._openai = AsyncOpenAI(
            base_url=config.url,
            api_key=self._key or "none",
            timeout=config.timeout,
            max_retries=0,  # `_answered` waits and counts
            http_client=DefaultAsyncHttpxClient(follow_redirects=False, trust_env=False),
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
            self.tally.cached += 1
            self.budget.charge(known)
            return known
        most_in = sum(len(message["content"].encode()) + TEMPLATE_TOKENS for message in messages)
        async with self._slots, self.budget.hold(most_in, self.max_tokens):
            if self._failed:
                raise self._failed
            reply = await self._answered(request, most_in)
            self.cache.put(request, reply)
            self.budget.charge(reply)
        self.tally.calls += 1
        return reply

    async def close(self) -> None:
        await self._openai.close()

    async def _answered(self, request: dict[str, Any], most_in: int) -> Reply:
        for attempt in range(self.config.retries + 1):
            await self._within_rates(most_in)
            try:
                async with asyncio.timeout(self.config.timeout):
                    completion = await self._openai.chat.completions.create(**request)
                return _reply(completion, most_in)
            except (openai.OpenAIError, TimeoutError, ValueError, RecursionError, _MalformedError) as error:
                fault, wait = self._fault(error), self._wait(error, attempt)
                if not isinstance(fault, Unavailable) or attempt == self.config.retries or self._failed:
                    self._failed = self._failed or (None if isinstance(fault, RefusedError) else fault)
                    raise fault from error
            self.tally.retries += 1
            await self._sleep(wait)
        raise AssertionError("unreachable")

    async def _within_rates(self, most_in: int) -> None:
        if self._requests:
            await self._requests.acquire()
        if self._tokens:
            await self._tokens.acquire(min(most_in // 4 + self.max_tokens, self._tokens.max_rate))

    def _wait(self, error: Exception, attempt: int) -> float:
        """Seconds until the next attempt: what the server asks for, else doubling, with jitter so that calls spread."""
        if isinstance(error, openai.APIStatusError) and (asked := _retry_after(error)) is not None:
            return min(asked, LONGEST_WAIT)
        return min(self.config.backoff * 2**attempt, LONGEST_WAIT) * random.uniform(0.75, 1.25)

    def _fault(self, error: Exception) -> RevelatorError:
        where = self.config.url
        if isinstance(error, openai.APIStatusError):
            said = mask_key(error.message, self._key)[:MESSAGE_CHARACTERS]
            message, status = f"the endpoint answered {error.status_code}: {said}", error.status_code
            if status in ONE_REQUEST:
                return RefusedError(f"the endpoint refused the prompt ({status})", where=where, hint=said)
            if status in RETRYABLE or status >= 500:
                return Unavailable(message, where=where, hint=_again(self.cache))
            hint = f"check the model name {self.config.model!r} and the key in {KEY_VARIABLE}"
            hint = hint if status >= 400 else "a redirect is not followed: give the address that answers"
            return ServingError(message, where=where, hint=hint)
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            return Unavailable(f"no answer within {self.config.timeout:g} s", where=where, hint=_again(self.cache))
        if isinstance(error, openai.APIConnectionError):
            message = mask_key(f"no connection: {error.__cause__ or error}", self._key)
            return Unavailable(message, where=where, hint=_again(self.cache))
        return Unavailable("the reply is not what the protocol promises", where=where, hint=_again(self.cache))


class _MalformedError(Exception):
    """A reply without a text."""


def _reply(completion: Any, most_in: int) -> Reply:
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
    tokens_in = _count(completion.usage, "prompt_tokens", most_in)
    tokens_out = _count(completion.usage, "completion_tokens", len(text.encode()))
    return Reply(text, tokens_in, tokens_out, finish if isinstance(finish, str) else "")


def _count(usage: Any, name: str, otherwise: int) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) and value >= 0 else otherwise


def _retry_after(error: openai.APIStatusError) -> float | None:
    """Seconds that the server asks for, as a number or as the date until which to wait; None where it asks nothing."""
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    try:
        until = parsedate_to_datetime(headers.get("retry-after", ""))
    except (ValueError, OverflowError):
        return None
    return max(0.0, (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _again(cache: Cache) -> str:
    return f"run the same command again: the answers so far are kept in {cache.path}"
