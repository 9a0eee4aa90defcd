"""The generator behind an OpenAI-compatible endpoint.

Passages and steps reach it as JSON strings between `<data>` marks, in which `<` is escaped: no document can close the
mark, and the system prompt says that documents give no orders. Only the configured address is asked: redirects are not
followed, and proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import openai
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from revelator.endpoints import check_key, check_url, mask_key
from revelator.errors import DeadlineExceeded, ServingError, Unavailable
from serving.protocols import GenerateRequest, Reading

PASSAGE_CHARACTERS = 4000  # about 900 words a passage
MESSAGE_CHARACTERS = 500  # of a server's own error text
REPLY_CHARACTERS = 200_000  # of an endpoint's reply; the executor takes half as many of its answers
OBJECTS = 100  # braces in a reply at which its answers are looked for: each may read the rest of the text
KEY_VARIABLE = "OPENAI_API_KEY"


class EndpointGenerator:
    """Any OpenAI-compatible chat endpoint.

    `timeout` is in seconds and covers one answer, retries included. The key is `api_key` or the environment variable
    OPENAI_API_KEY; servers that want none ignore it. `Reading.method` says how the reply was read: `endpoint` (the
    JSON asked for), `endpoint:embedded` (JSON inside other text) or `endpoint:text` (no JSON: the text is the answer).

    Raises ConfigError for an address that is none or carries a user, and for a key that no header can hold. `answer`
    raises Unavailable (no connection, 429 or 5xx after the retries), DeadlineExceeded, and ServingError with the
    server's message for any other refusal.
    """

    def __init__(
        self, base_url: str, model: str, *, api_key: str | None = None, timeout: float = 60.0, retries: int = 2
    ) -> None:
        self.base_url = check_url(base_url)
        self.model = model
        self.timeout = timeout
        self.retries = retries
        key = api_key or os.environ.get(KEY_VARIABLE, "")
        self._key = check_key(key, KEY_VARIABLE) if key.strip() else None
        self._client = AsyncOpenAI(
            base_url=base_url,
            api_key=self._key or "none",
            timeout=timeout,
            max_retries=retries,
            http_client=DefaultAsyncHttpxClient(follow_redirects=False, trust_env=False),
        )

    async def answer(self, request: GenerateRequest) -> Reading:
        try:
            async with asyncio.timeout(self.timeout):
                reply = await self._client.chat.completions.create(
                    model=self.model, messages=build_messages(request), temperature=0
                )
        except (TimeoutError, openai.APITimeoutError) as error:
            raise DeadlineExceeded(f"no answer within {self.timeout:g} s", where=self.base_url) from error
        except openai.APIConnectionError as error:
            hint = "is the server running, and is the address its OpenAI-compatible base (often ending in /v1)?"
            message = mask_key(f"no connection: {error.__cause__ or error}", self._key)
            raise Unavailable(message, where=self.base_url, hint=hint, final=self.retries > 0) from error
        except openai.APIStatusError as error:
            raise self._make_error(error) from error
        except (openai.OpenAIError, json.JSONDecodeError) as error:
            raise Unavailable("the reply is not what the protocol promises", where=self.base_url) from error
        return self._make_reading(reply, request)

    def _make_error(self, error: openai.APIStatusError) -> ServingError:
        said = mask_key(error.message, self._key)[:MESSAGE_CHARACTERS]
        message = f"the endpoint answered {error.status_code}: {said}"
        if error.status_code == 429 or error.status_code >= 500:
            return Unavailable(message, where=self.base_url, hint="try again later", final=self.retries > 0)
        hint = f"check the model name {self.model!r} and the key"
        if error.status_code < 400:
            hint = "a redirect is not followed: give the address that answers"
        return ServingError(message, where=self.base_url, hint=hint)

    def _make_reading(self, reply: Any, request: GenerateRequest) -> Reading:
        """The openai client checks no reply, so any JSON may be in this one."""
        try:
            text = reply.choices[0].message.content or ""
            if len(text) > REPLY_CHARACTERS:
                message = f"the reply has {len(text)} characters; at most {REPLY_CHARACTERS} are read"
                raise ServingError(message, where=self.base_url)
            sentence, answers, method = read_reply(text) if request.mode != "write" else take_text(text)
        except (AttributeError, IndexError, TypeError) as error:
            message = "the reply is not what the protocol promises: no choices with a text"
            raise Unavailable(message, where=self.base_url) from error
        counts = [getattr(reply.usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
        tokens_in, tokens_out = (count if isinstance(count, int) else 0 for count in counts)
        return Reading(sentence, answers, tokens_in=tokens_in, tokens_out=tokens_out, method=method)

    async def close(self) -> None:
        await self._client.close()


def build_messages(request: GenerateRequest) -> Any:
    """The chat of one request: a system prompt, and one user message with everything foreign as JSON."""
    if request.mode == "write":
        return [{"role": "user", "content": request.question}]
    passages = [{"title": p.title, "text": p.text[:PASSAGE_CHARACTERS]} for p in request.passages]
    user = Template(_load_prompt(request.mode)).substitute(
        question=quote_data(request.question),
        passages=quote_data(passages),
        steps=quote_data([asdict(step) for step in request.steps]),
    )
    return [{"role": "system", "content": _load_prompt("system")}, {"role": "user", "content": user}]


def quote_data(value: Any) -> str:
    """JSON in which no text can close a `<data>` mark."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


@cache
def _load_prompt(name: str) -> str:
    return files("serving.models").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8").rstrip()


def read_reply(text: str) -> tuple[str, tuple[str, ...], str]:
    """Sentence, answers and method of a reply. Never fails: what is no JSON is taken as one answer."""
    text = text.strip()
    whole = _read_answer_object(text, 0)
    if whole is not None and whole[2] == len(text):
        return whole[0], whole[1], "endpoint"
    start = -1
    for _ in range(OBJECTS):
        if (start := text.find("{", start + 1)) < 0:
            break
        found = _read_answer_object(text, start)
        if found is not None:
            return found[0], found[1], "endpoint:embedded"
    return text, (text,) if text else (), "endpoint:text"


def take_text(text: str) -> tuple[str, tuple[str, ...], str]:
    """The same three of a text that was asked for as it is."""
    text = text.strip()
    return text, (text,) if text else (), "endpoint:text"


def _read_answer_object(text: str, start: int) -> tuple[str, tuple[str, ...], int] | None:
    """Sentence, answers and end of the JSON object at `start`, if it is one that has `answers`."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("answers"), list):
        return None
    answers = tuple(str(a).strip() for a in value["answers"] if isinstance(a, str | int | float) and str(a).strip())
    sentence = value.get("sentence")
    return sentence.strip() if isinstance(sentence, str) else "", answers, end
