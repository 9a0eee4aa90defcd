"""A language model behind an OpenAI-compatible endpoint: the connection, what its replies hold, and its errors.

Only the configured address is asked: redirects are not followed, and proxies of the environment are not used. The
package openai comes with the extras `data` and `serve`; it takes half a second to import, which only a process that
asks an endpoint pays.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from revelator import spans
from revelator.endpoints import check_key, check_url, mask_key
from revelator.errors import DeadlineExceeded, ServingError, Unavailable
from revelator.limits import LONGEST_MS
from revelator.reply_forms import Way
from revelator.tasks.chat_prompts import Message

CALL_SECONDS = LONGEST_MS / 1000  # of a call without a timeout: the deadline of its question ends it before
CONNECT_SECONDS = 20.0  # of each attempt, until there is a connection
MESSAGE_CHARACTERS = 500  # of a server's own error text
REPLY_CHARACTERS = 200_000  # of an endpoint's reply; the executor takes half as many of its answers
NAME_CHARACTERS = 200  # of the model that an endpoint reports
KEY_VARIABLE = "OPENAI_API_KEY"
PROVIDER = "openai"  # in spans: by OpenTelemetry's conventions that of the protocol, whoever serves the model
ONE_REQUEST = frozenset({400, 413, 422})  # refusals of this one request; another may pass
PASSING = frozenset({408, 409, 425, 429})  # refusals that pass, as faults of the server (500 and above) do
SURE = 2  # calls in a row that refuse a field or do not heed it, after which it is not sent any more
WAIVABLE = ("logprobs", "max_tokens", "max_completion_tokens", "temperature")  # some models refuse them, by name
STREAMING = ("stream_options", "stream")  # as `WAIVABLE`, whatever the status of the refusal
ENDED = ("", "stop")  # reasons of a reply that is whole: another says nothing about what the server heeds
MORE_TIME = "allow a call more time: `timeout` in serving.yaml or a configuration, --timeout SECONDS of `eval`"
NO_STREAM = "the reply to a request for a stream is no stream"
NO_TEXT = "the reply is not what the protocol promises: no choices with a text"


@dataclass(eq=False, repr=False)
class RefusedError(ServingError):
    """The endpoint refuses this one request: a part of it that it does not know, or its prompt."""

    _: KW_ONLY
    status: int


@dataclass(frozen=True)
class Reply:
    """A text and why it ended: `stop`, or `length` if it was cut. `model` is the name that the endpoint reports.

    `tokens` are the tokens of the text, each with the log probabilities of the likeliest tokens in its place; () where
    the endpoint gave none that can be read.
    """

    text: str
    finish: str = ""
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens: tuple[tuple[str, dict[str, float]], ...] = field(default=(), repr=False)


def explain_failure(error: Exception, url: str, model: str, key: str | None, *, final: bool) -> ServingError:
    """The error of an endpoint as one of ours, in which the key is blanked. `final`: the client has tried again."""
    import httpx
    import openai

    if isinstance(error, openai.APIConnectionError | httpx.TransportError):
        hint = "is the server running, and is the address its OpenAI-compatible base (often ending in /v1)?"
        message = mask_key(f"no connection: {str(error.__cause__ or '') or error}", key)
        return Unavailable(message, where=url, hint=hint, final=final)
    if not isinstance(error, openai.APIStatusError):
        return Unavailable("the reply is not what the protocol promises", where=url)
    own = error.body.get("message") if isinstance(error.body, dict) else None
    said = mask_key(own if isinstance(own, str) else error.message, key)[:MESSAGE_CHARACTERS]
    message = f"the endpoint answered {error.status_code}: {said}"
    if error.status_code in PASSING or error.status_code >= 500:
        return Unavailable(message, where=url, hint="try again later", final=final)
    if error.status_code in ONE_REQUEST:
        hint = f"the server says why; is {model!r} one of its models, and is its context long enough?"
        return RefusedError(message, where=url, hint=hint, status=error.status_code)
    hint = f"check the model name {model!r} and the key in {KEY_VARIABLE}"
    if error.status_code < 400:
        hint = "a redirect is not followed: give the address that answers"
    return ServingError(message, where=url, hint=hint)


def _find_refused(error: ServingError, way: Way, ways: Sequence[Way], options: Mapping[str, Any]) -> str | None:
    """What to leave out of a request that was refused: what the message names, else the log probabilities, else the
    stream, else the way; None where nothing is left, so that it is the prompt that is refused. Another status than
    those of a refused request counts where its message names the way: some servers answer 404 or 500 to a field that
    they lack."""
    message, loose = str(error.message), way is not ways[-1]
    form = way.fields.get("response_format", {}).get("type")
    sent = [*way.fields, *way.fields.get("extra_body", ()), *([form] if form else [])]
    if loose and any(name in message for name in sent):
        return way.name
    named = [name for name in STREAMING if name in options and re.search(rf"\b{name}", message)]
    if not isinstance(error, RefusedError):
        return next(iter(named), None)
    named += [name for name in WAIVABLE if name in options and name in message]
    unnamed = [name for name in ("logprobs", "stream") if name in options]
    return next(iter([*named, *unnamed, *([way.name] if loose else [])]), None)


def read_key(given: str | None = None) -> str | None:
    """The key that is given, else that of the environment; None without one."""
    key = given or os.environ.get(KEY_VARIABLE, "")
    return check_key(key, KEY_VARIABLE) if key.strip() else None


class Endpoint:
    """`timeout` is in seconds and covers one call, retries included; where the caller `is_patient`, it covers each
    attempt. Without one, a call may take as long as its caller waits, an hour at most. The key is `api_key` or the
    environment variable OPENAI_API_KEY; servers that want none ignore it. The openai client makes the retries, after a
    pause as long as a server asks for with Retry-After.

    Raises ConfigError for an address that is none or carries a user, and for a key that no header can hold. Calls
    raise Unavailable (no connection, 408, 409, 425, 429 or 5xx after the retries, no reply of the protocol),
    DeadlineExceeded, RefusedError (400, 413, 422), and ServingError with the server's message for any other refusal.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float | None = None,
        retries: int = 2,
        is_patient: bool = False,
    ) -> None:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

        self.base_url = check_url(base_url)
        self.model = model
        self.timeout = timeout or CALL_SECONDS
        self.retries = retries
        self._whole = None if is_patient else self.timeout
        self._refusals: Counter[tuple[str, str]] = Counter()  # calls in a row, by their kind and what was refused
        self._key = read_key(api_key)
        self._client = AsyncOpenAI(
            base_url=base_url,
            api_key=self._key or "none",
            timeout=Timeout(self.timeout, connect=min(self.timeout, CONNECT_SECONDS)),
            max_retries=retries,
            http_client=DefaultAsyncHttpxClient(follow_redirects=False, trust_env=False),
        )

    async def chat(
        self, messages: Sequence[Message], listener: Callable[[str], object] | None = None, **options: Any
    ) -> Reply:
        """The reply to a chat; `options` are fields of the protocol, and `extra_body` those of a server's own. Of a
        `stream`, `listener` is told the text as far as it has come, with each piece."""
        create: Any = self._client.chat.completions.create
        ask = partial(create, model=self.model, messages=list(messages), **options)
        with spans.open_completion("chat", self.model, PROVIDER) as span:
            if options.get("stream"):
                tell = listener or (lambda text: None)
                reply = await self._call(lambda: self._follow(ask, tell))
            else:
                reply = self._read(await self._call(ask), lambda choice: choice.message.content, _read_chat_tokens)
            spans.describe_completion(span, reply.model, reply.tokens_in, reply.tokens_out)
        return reply

    async def ask_in_form(
        self, kind: str, ways: Sequence[Way], *, listener: Callable[[str], object] | None = None, **options: Any
    ) -> Reply:
        """The reply to the first of `ways` that the server takes, with as many of the options as it takes.

        What it refuses is left out of the same call, made again, and after `SURE` calls of this `kind` in a row of
        later ones, and so is a way that it took and did not heed: once, the prompt may have been the reason. A refusal
        of the last way, without options that may be left out, is raised. A server that refuses `max_tokens` is given
        OpenAI's later name for it. With a `listener` (`chat`) the reply is asked for as a stream; of a server that
        makes none it comes whole.
        """
        if listener:
            options |= {"stream": True, "stream_options": {"include_usage": True}}
        refused = {what for (own, what), count in self._refusals.items() if own == kind and count >= SURE}
        while True:
            way = next((way for way in ways if way.name not in refused), ways[-1])
            given = {name: value for name, value in options.items() if name not in refused}
            if "max_tokens" in options.keys() & refused and "max_completion_tokens" not in refused:
                given["max_completion_tokens"] = options["max_tokens"]
            if "logprobs" not in given:
                given.pop("top_logprobs", None)
            if "stream" not in given:
                given.pop("stream_options", None)
            fields = {**way.fields, **given}
            try:
                if isinstance(way.prompt, str):
                    reply = await self.continue_text(way.prompt, **fields)
                else:
                    reply = await self.chat(way.prompt, listener, **fields)
            except ServingError as error:
                left_out = _find_refused(error, way, ways, given)
                if left_out is None:
                    raise
                refused.add(left_out)
                continue
            self._refusals.update((kind, what) for what in refused)
            is_whole = reply.finish in ENDED and reply.text.strip()
            was_ignored = way.holds is not None and is_whole and not way.holds(reply.text)
            for name in given if was_ignored else (way.name, *given):
                del self._refusals[kind, name]
            if was_ignored:
                self._refusals[kind, way.name] += 1
            return reply

    async def continue_text(self, prompt: str, model: str | None = None, **options: Any) -> Reply:
        """What the model, or another one of the endpoint, writes behind a prompt, without a chat template
        (`/completions`)."""
        create: Any = self._client.completions.create
        name = model or self.model
        ask = partial(create, model=name, prompt=prompt, **options)
        with spans.open_completion("text_completion", name, PROVIDER) as span:
            reply = self._read(await self._call(ask), lambda choice: choice.text, _read_text_tokens)
            spans.describe_completion(span, reply.model, reply.tokens_in, reply.tokens_out)
        return reply

    async def list_models(self) -> dict[str, str]:
        """The names of the endpoint's models, each with its owner ("vllm" says who serves it)."""

        async def read() -> dict[str, str]:
            page = await self._client.models.list()
            return {str(model.id): str(getattr(model, "owned_by", "")) for model in page.data}

        try:
            return await self._call(read)
        except (AttributeError, TypeError) as error:
            raise Unavailable("the list of models is not what the protocol promises", where=self.base_url) from error

    async def close(self) -> None:
        await self._client.close()

    async def _call(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        import httpx
        import openai

        try:
            async with asyncio.timeout(self._whole):
                return await ask()
        except (TimeoutError, openai.APITimeoutError, httpx.TimeoutException) as error:
            if isinstance(error.__cause__, httpx.ConnectTimeout):
                raise explain_failure(error, self.base_url, self.model, self._key, final=self.retries > 0) from error
            message = f"no answer within {self.timeout:g} s, the timeout of a call"
            raise DeadlineExceeded(message, where=self.base_url, hint=MORE_TIME) from error
        except (openai.OpenAIError, httpx.TransportError, ValueError, RecursionError) as error:
            raise explain_failure(error, self.base_url, self.model, self._key, final=self.retries > 0) from error

    async def _follow(self, ask: Callable[[], Awaitable[Any]], tell: Callable[[str], object]) -> Reply:
        """Reads a stream to its end. One that breaks off is not asked for again once a piece of it was told."""
        import httpx
        import openai

        text, finish, model, usage, is_stream = "", "", "", None, False
        try:
            async with await ask() as chunks:
                async for chunk in chunks:
                    is_stream = True
                    model, usage = chunk.model or model, getattr(chunk, "usage", None) or usage
                    for choice in chunk.choices or ():
                        finish = choice.finish_reason or finish
                        if choice.delta.content:
                            text += choice.delta.content
                            self._check_length(text)
                            tell(_replace_surrogates(text))
        except (AttributeError, TypeError) as error:
            raise Unavailable(NO_TEXT, where=self.base_url, final=bool(text)) from error
        except (openai.OpenAIError, httpx.TransportError, ValueError) as error:
            if not text:
                raise
            failure = explain_failure(error, self.base_url, self.model, self._key, final=True)
            message = f"the reply broke off: {failure.message}"
            raise Unavailable(message, where=self.base_url, final=True) from error
        if not is_stream:
            raise RefusedError(NO_STREAM, where=self.base_url, status=400)
        if not finish:
            raise Unavailable("the reply broke off", where=self.base_url, final=bool(text))
        choice = SimpleNamespace(finish_reason=finish, logprobs=None)
        whole = SimpleNamespace(choices=[choice], model=model, usage=usage)
        return self._read(whole, lambda _: text, _read_chat_tokens)

    def _check_length(self, text: str) -> None:
        if len(text) > REPLY_CHARACTERS:
            message = f"the reply has {len(text)} characters; at most {REPLY_CHARACTERS} are read"
            raise ServingError(message, where=self.base_url)

    def _read(self, reply: Any, read_text: Callable[[Any], Any], read_tokens: Callable[[Any], Any]) -> Reply:
        """The openai client checks no reply, so any JSON may be in this one. Half of a surrogate pair in the text
        becomes a question mark, for nothing could write it down."""
        try:
            choice = reply.choices[0]
            text = read_text(choice) or ""
            if not isinstance(text, str):
                raise TypeError("the text is none")
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise Unavailable(NO_TEXT, where=self.base_url) from error
        self._check_length(text)
        finish, model = getattr(choice, "finish_reason", ""), getattr(reply, "model", "")
        name = model[:NAME_CHARACTERS] if isinstance(model, str) else ""
        usage = getattr(reply, "usage", None)
        counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
        tokens_in, tokens_out = (count if isinstance(count, int) and count > 0 else 0 for count in counts)
        try:
            tokens = tuple(read_tokens(choice.logprobs))
        except (AttributeError, KeyError, TypeError, ValueError):
            tokens = ()
        return Reply(
            _replace_surrogates(text),
            finish if isinstance(finish, str) else "",
            _replace_surrogates(name),
            tokens_in,
            tokens_out,
            tokens,
        )


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _read_chat_tokens(logprobs: Any) -> list[tuple[str, dict[str, float]]]:
    """Of a chat: `content` holds an entry a token, which lists the likeliest ones in its place. What is not of that
    form raises AttributeError, TypeError or ValueError."""
    return [
        (_text(entry.token), {_text(one.token): _number(one.logprob) for one in [*(entry.top_logprobs or ()), entry]})
        for entry in (logprobs.content or () if logprobs else ())
    ]


def _read_text_tokens(logprobs: Any) -> list[tuple[str, dict[str, float]]]:
    """Of a continued text: parallel lists of tokens, their log probabilities, and maps of the likeliest ones; of
    llama.cpp, which the client does not know, the entries of a chat."""
    if not logprobs:
        return []
    if content := getattr(logprobs, "content", None):
        return [
            (
                _text(entry["token"]),
                {_text(one["token"]): _number(one["logprob"]) for one in [*entry["top_logprobs"], entry]},
            )
            for entry in content
        ]
    tops = logprobs.top_logprobs or [None] * len(logprobs.tokens)
    rows = zip(logprobs.tokens, logprobs.token_logprobs, tops, strict=True)
    return [
        (_text(token), {_text(other): _number(value) for other, value in {**(top or {}), token: own}.items()})
        for token, own, top in rows
    ]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a token is no text")
    return value


def _number(value: Any) -> float:
    """A log probability: a number that is not above 0, but for rounding."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-3:
        raise ValueError("this is no log probability")
    return min(float(value), 0.0)
