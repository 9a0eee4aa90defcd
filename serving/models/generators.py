"""The generator behind an OpenAI-compatible endpoint: a language model that reads passages and merges answers.

A reply is one JSON object, held to its form as tightly as the server can (`revelator.reply_forms`). Its `kind` comes
first: what the passages say is one value, a list, a verdict, or nothing; its log probability tells how likely they
answer at all. Then come the facts that decide a verdict, the bare values, and the number of the sentence that says
them. No sentence is copied out. A reply that cannot be read is asked for once more, with the reason, and then the
question stays unanswered: raw text is never an answer.

Passages and steps reach the model as JSON strings between `<data>` marks, in which `<` is escaped: no document can
close the mark, and the system prompt says that documents give no orders.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.resources import files
from string import Template
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from revelator.config import find_first_fault
from revelator.errors import Unavailable
from revelator.language_model import Endpoint, RefusedError, Reply
from revelator.reply_forms import THOUGHT_BEGINS, THOUGHT_ENDS, JsonForm, Way, drop_thoughts
from revelator.sentences import is_punctuation, split_sentences
from revelator.tasks.chat_prompts import Message, quote_data
from revelator.trace import Passage
from serving.latency import offload
from serving.models.likelihoods import LIKELIEST, read_probabilities
from serving.protocols import GenerateRequest, Reading

PASSAGE_CHARACTERS = 4000  # about 900 words a passage
REPLY_TOKENS = 1024  # of a reply in JSON: a model may think first
SHOWN_CHARACTERS = 2_000  # of a reply that cannot be read, when it is asked for again
VALUE_CHARACTERS = 2_000  # of one value
JSON_BEGINS = re.compile(r"""\s*(?:\{\s*["}]|\[\s*(?:["{\]]|-?\d+\s*,))""")  # a citation may begin with [1990]
OBJECTS = 100  # braces in a reply at which its object is looked for: each may read the rest of the text
KINDS = VALUE, LIST, VERDICT, UNKNOWN = "value", "list", "verdict", "unknown"
VERDICTS = ("yes", "no")
MOST_ITEMS = 32  # of a list: a small model that repeats itself ends there
MESSAGES = GREETING, QUESTION, _ = "greeting", "question", UNKNOWN  # kinds of a message that is to be rewritten
TEXTS = ("compose", "write")  # modes whose reply is a text


def _check_value(value: Any) -> Any:
    """Refuses what is no bare value: true, a number that is none, JSON inside a text, whole or cut off, and a text of
    the length of a page."""
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("answers: a text or a number is needed")
    if isinstance(value, str) and len(value) > VALUE_CHARACTERS:
        raise ValueError(f"answers: a value has at most {VALUE_CHARACTERS} characters")
    if isinstance(value, str) and JSON_BEGINS.match(value):
        raise ValueError("answers: a bare value is needed, not JSON")
    return value


def _read_verdict(answer: str | int | float) -> str:
    return str(answer).strip(" .!").lower()


class ReadReply(BaseModel):
    """The object that a reply holds."""

    model_config = ConfigDict(extra="ignore")

    kind: Literal["value", "list", "verdict", "unknown", "greeting", "question"]
    answers: list[Annotated[str | int | float, BeforeValidator(_check_value)]] = []
    sentence: int | None = None

    @model_validator(mode="after")
    def _has_answers_of_its_kind(self) -> ReadReply:
        if self.kind == VERDICT and tuple(map(_read_verdict, self.answers)) not in (("yes",), ("no",)):
            raise ValueError("answers: a verdict is yes or no")
        if self.kind in (VALUE, LIST, QUESTION) and not self.answers:
            raise ValueError("answers: at least one is needed")
        return self


@dataclass(frozen=True)
class Sentence:
    """A sentence of a passage, as the prompt numbers it."""

    text: str
    passage: str  # its id


class EndpointGenerator:
    """`serving.protocols.Generator` of any OpenAI-compatible chat endpoint; arguments and errors are those of
    `Endpoint`. `Reading.method` says how the reply was read: `endpoint` (the JSON asked for), `endpoint:embedded` (JSON
    inside other text), `endpoint:text` (a text was asked for), or `endpoint:unreadable`. What a server refuses (a
    schema, log probabilities, a stream) is left out.

    A text is streamed from the second that an endpoint writes on: only a whole one shows whether the model thinks
    first without a mark at the beginning, as some chat templates have it.
    """

    def __init__(
        self, base_url: str, model: str, *, api_key: str | None = None, timeout: float | None = None, retries: int = 2
    ) -> None:
        self._model = model
        self._endpoint = Endpoint(base_url, model, api_key=api_key, timeout=timeout, retries=retries)
        self._thinks: bool | None = None  # whether the last text had thoughts before it; None: there was none

    async def answer(self, request: GenerateRequest) -> Reading:
        if request.mode in TEXTS:
            ways = [Way("chat", build_messages(request))]
            listener = None if self._thinks is None else request.listener
            options = {"temperature": 0, **_want_tokens(request.logprobs)}
            reply = await self._endpoint.ask_in_form(
                request.mode, ways, listener=listener and partial(self._tell_text, listener), **options
            )
            text = reply.text.strip()
            if request.mode == "compose":
                self._thinks = THOUGHT_ENDS in text
                text = drop_thoughts(text).strip()
            return self._make_reading(reply, sentence=text, answers=(text,) if text else (), method="endpoint:text")
        sentences = number_sentences(request.passages) if request.mode == "read" else []
        messages = build_messages(request)
        kinds = MESSAGES if request.mode == "rewrite" else KINDS
        form = make_form(kinds, bool(sentences))
        options = {"max_tokens": REPLY_TOKENS, "temperature": 0, **_want_tokens(True)}
        reply = await self._endpoint.ask_in_form(form.name, form.list_ways(messages), **options)
        found, fault, method = await offload(len(reply.text), lambda: _read_whole(reply, kinds))
        if found is None:
            again = f"That reply cannot be read: {fault}. Reply with the JSON object and nothing else."
            shown = reply.text.strip()[:SHOWN_CHARACTERS] or "{}"
            said: list[Message] = [{"role": "assistant", "content": shown}, {"role": "user", "content": again}]
            with suppress(RefusedError, Unavailable):  # the chat may have become too long
                second_ways = form.list_ways([*messages, *said])
                second = await self._endpoint.ask_in_form(form.name, second_ways, **options)
                costs = reply.tokens_in + second.tokens_in, reply.tokens_out + second.tokens_out
                reply = replace(second, tokens_in=costs[0], tokens_out=costs[1])
                found, fault, method = await offload(len(reply.text), lambda: _read_whole(reply, kinds))
        if found is None:
            reason = f"the language model's reply cannot be read: {fault}"
            return self._make_reading(reply, method="endpoint:unreadable", reason=reason, is_degraded=True)
        number = found.sentence or 0
        evidence = sentences[number - 1] if 0 < number <= len(sentences) else Sentence("", "")
        answers = list_answers(found)
        return self._make_reading(
            reply,
            sentence=evidence.text if answers else "",
            answers=answers,
            document=evidence.passage if answers else "",
            probability=estimate_answerable(found.kind, reply) if request.mode == "read" else None,
            method=method,
            reason="" if answers else "the language model finds no answer in the passages",
            is_verdict=found.kind == VERDICT,
            asks_nothing=found.kind == GREETING,
        )

    def _tell_text(self, listener: Callable[[str], object], text: str) -> None:
        """Hands on the text so far, once it cannot be a thought any more."""
        written = text.strip()
        may_think = THOUGHT_BEGINS.startswith(written) or (self._thinks and THOUGHT_ENDS not in written)
        if not may_think and (said := drop_thoughts(written).strip()):
            listener(said)

    def _make_reading(self, reply: Reply, sentence: str = "", answers: tuple[str, ...] = (), **rest: Any) -> Reading:
        name = reply.model or self._model
        cost = reply.tokens_in, reply.tokens_out
        return Reading(sentence, answers, *cost, tokens=reply.tokens, model=name, **rest)

    async def close(self) -> None:
        await self._endpoint.close()


def _want_tokens(wanted: bool) -> dict[str, Any]:
    return {"logprobs": True, "top_logprobs": LIKELIEST} if wanted else {}


def make_form(kinds: Sequence[str], has_sentences: bool) -> JsonForm:
    """The form of a reply: an object for each kind. A verdict alone has the facts that decide it: written down first,
    they make a small model's verdicts right more often; of a value they cost tokens, and a model of 0.5 B reads worse
    after them (dev questions: docs/results.md). OpenAI's `strict` wants no alternatives at the root."""
    text, verdict = {"type": "string"}, {"type": "string", "enum": [*VERDICTS]}
    number: dict[str, Any] = {"sentence": {"type": "integer"}} if has_sentences else {}
    fields: dict[str, dict[str, Any]] = {
        VALUE: {"answers": _describe_list(text, 1), **number},
        LIST: {"answers": _describe_list(text, MOST_ITEMS), **number},
        VERDICT: {"facts": text, "answers": _describe_list(verdict, 1), **number},
        UNKNOWN: {},
        GREETING: {},
        QUESTION: {"answers": _describe_list(text, 1)},
    }
    forms = [_describe_object({"kind": {"type": "string", "enum": [kind]}} | fields[kind]) for kind in kinds]
    return JsonForm("reading", _describe_object({"reply": {"anyOf": forms}}))


def _describe_object(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}


def _describe_list(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


def number_sentences(passages: Sequence[Passage]) -> list[Sentence]:
    """The sentences of all passages, one after the other: number N of the prompt is the one at N - 1."""
    return [
        Sentence(" ".join(said.split()), passage.id)
        for passage in passages
        for said in split_sentences(passage.text[:PASSAGE_CHARACTERS])
    ]


def build_messages(request: GenerateRequest) -> list[Message]:
    """The chat of one request: a system prompt with worked examples, and a message with everything foreign as JSON.
    Passages that an operator was asked for are read by its own prompt (AtomR, section 3.3)."""
    if request.mode == "write":
        return [{"role": "user", "content": request.question}]
    name = request.operator.partition("(")[0].lower() if request.operator else request.mode
    passages: list[Any] = _show_passages(request.passages)
    if request.mode == "compose":
        passages = [
            {"number": number, "title": p.title, "text": p.text[:PASSAGE_CHARACTERS]}
            for number, p in enumerate(request.passages, 1)
        ]
    user = Template(_load_prompt(name)).substitute(
        question=quote_data(request.question),
        passages=quote_data(passages),
        steps=quote_data([asdict(step) for step in request.steps]),
        operator=quote_data(request.operator),
        style=quote_data(request.style),
    )
    system = {"compose": "system_text", "read": "system", "rewrite": "system_rewrite"}.get(request.mode, "system_value")
    return [{"role": "system", "content": _load_prompt(system)}, {"role": "user", "content": user}]


def _show_passages(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    number = 0
    for passage in passages:
        numbered = [f"{number + i}. {s.text}" for i, s in enumerate(number_sentences([passage]), 1)]
        number += len(numbered)
        shown.append({"title": passage.title, "sentences": numbered})
    return shown


@cache
def _load_prompt(name: str) -> str:
    return files("serving.models").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8").rstrip()


def _read_whole(reply: Reply, kinds: Collection[str]) -> tuple[ReadReply | None, str, str]:
    found, fault, method = read_reply(reply.text, kinds)
    if found is None and reply.finish == "length":
        fault = f"it was cut off at {REPLY_TOKENS:,} tokens"
    return found, fault, method


def read_reply(text: str, kinds: Collection[str] = KINDS) -> tuple[ReadReply | None, str, str]:
    """The object in a reply, why there is none, and the method. What a model thought before it does not count. Of two
    objects that could be meant none is taken: one of them may be quoted from a document."""
    text = drop_thoughts(text).strip()
    fault = "it holds no JSON object"
    found: list[ReadReply] = []
    start, is_all = 0, False
    for _ in range(OBJECTS):
        if (start := text.find("{", start)) < 0:
            break
        try:
            value, end = json.JSONDecoder().raw_decode(text, start)
            one = ReadReply.model_validate(value["reply"] if value.keys() == {"reply"} else value)
        except ValidationError as error:
            fault = ": ".join(filter(None, find_first_fault(error)))
        except (ValueError, RecursionError):
            pass
        else:
            if one.kind in kinds:
                found.append(one)
                is_all, start = (start, end) == (0, len(text)), end
                continue
            fault = f"kind: must be one of {', '.join(kinds)}"
        start += 1
    if len(found) == 1:
        return found[0], "", "endpoint" if is_all else "endpoint:embedded"
    return None, "it holds more than one object" if found else fault, "endpoint:unreadable"


def list_answers(found: ReadReply) -> tuple[str, ...]:
    """The bare values that a reply gives."""
    if found.kind in (UNKNOWN, GREETING):
        return ()
    if found.kind == VERDICT:
        return (_read_verdict(found.answers[0]),)
    said = (" ".join(str(answer).split()) for answer in found.answers)
    return tuple(dict.fromkeys(text for text in said if text.lower() != UNKNOWN and not is_punctuation(text)))


def estimate_answerable(kind: str, reply: Reply) -> float | None:
    """P(the passages answer the question), by the tokens that spell the kind; None without log probabilities."""
    if not reply.tokens:
        return None
    text, spelled = "".join(token for token, _ in reply.tokens), []
    place = re.search(rf'"kind"\s*:\s*"{kind}', text)
    if place is None:
        return None
    end = 0
    for token, likely in reply.tokens:
        spelled.append((token, likely))
        end += len(token)
        if end >= place.end():
            break
    return 1.0 - read_probabilities(kind, KINDS, spelled)[UNKNOWN]
