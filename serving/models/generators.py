"""The generator behind an OpenAI-compatible endpoint.

Passages and steps reach it as JSON strings between `<data>` marks, in which `<` is escaped: no document can close the
mark, and the system prompt says that documents give no orders.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache, partial
from importlib.resources import files
from string import Template

from revelator.language_model import Endpoint, RefusedError
from revelator.tasks.chat_prompts import Message, quote_data
from serving.latency import offload
from serving.protocols import GenerateRequest, Reading

PASSAGE_CHARACTERS = 4000  # about 900 words a passage
LIKELIEST = 5  # tokens in each place whose log probabilities are asked for: what every server gives
OBJECTS = 100  # braces in a reply at which its answers are looked for: each may read the rest of the text


class EndpointGenerator:
    """`serving.protocols.Generator` of any OpenAI-compatible chat endpoint; arguments and errors are those of
    `Endpoint`. `Reading.method` says how the reply was read: `endpoint` (the JSON asked for), `endpoint:embedded` (JSON
    inside other text) or `endpoint:text` (no JSON: the text is the answer).
    """

    def __init__(
        self, base_url: str, model: str, *, api_key: str | None = None, timeout: float = 60.0, retries: int = 2
    ) -> None:
        self._model = model
        self._endpoint = Endpoint(base_url, model, api_key=api_key, timeout=timeout, retries=retries)

    async def answer(self, request: GenerateRequest) -> Reading:
        ask = partial(self._endpoint.chat, build_messages(request), temperature=0)
        try:
            reply = await ask(logprobs=True, top_logprobs=LIKELIEST) if request.logprobs else await ask()
        except RefusedError:
            if not request.logprobs:
                raise
            reply = await ask()  # some models give no log probabilities
        read = take_text if request.mode in ("compose", "write") else read_reply
        sentence, answers, method = await offload(len(reply.text), partial(read, reply.text))
        name = reply.model or self._model
        cost = reply.tokens_in, reply.tokens_out
        return Reading(sentence, answers, *cost, method=method, tokens=reply.tokens, model=name)

    async def close(self) -> None:
        await self._endpoint.close()


def build_messages(request: GenerateRequest) -> list[Message]:
    """The chat of one request: a system prompt, and one user message with everything foreign as JSON. Passages that an
    operator was asked for are read by its own prompt (AtomR, section 3.3)."""
    if request.mode == "write":
        return [{"role": "user", "content": request.question}]
    passages: list[dict[str, object]] = [
        {"title": p.title, "text": p.text[:PASSAGE_CHARACTERS]} for p in request.passages
    ]
    if request.mode == "compose":
        passages = [{"number": number, **passage} for number, passage in enumerate(passages, 1)]
    name = request.operator.partition("(")[0].lower() if request.operator else request.mode
    user = Template(_load_prompt(name)).substitute(
        question=quote_data(request.question),
        passages=quote_data(passages),
        steps=quote_data([asdict(step) for step in request.steps]),
        operator=quote_data(request.operator),
    )
    system = _load_prompt("system_text" if request.mode == "compose" else "system")
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


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
