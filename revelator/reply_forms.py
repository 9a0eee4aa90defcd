"""What holds a language model's reply to a form: the ways that servers have, from the tightest to none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from revelator.plans.decoding import make_json_grammar
from revelator.tasks.chat_prompts import Message

THOUGHT_BEGINS, THOUGHT_ENDS = "<think>", "</think>"


@dataclass(frozen=True)
class Way:
    """A request that holds the reply to its form in one way. A `prompt` that is a text is continued, without a chat
    template. `fields` are those of the protocol, `extra_body` those of a server's own. A reply that has not the form of
    `holds` shows that the server took the fields and did not heed them."""

    name: str
    prompt: Sequence[Message] | str
    fields: Mapping[str, Any] = field(default_factory=dict)
    holds: Callable[[str], bool] | None = None


@dataclass(frozen=True)
class JsonForm:
    """Replies that are one JSON object of a schema. `is_strict` says that no field may be left out, as OpenAI's own
    `strict` demands."""

    name: str
    schema: dict[str, Any]
    is_strict: bool = True

    def list_ways(self, chat: Sequence[Message]) -> tuple[Way, ...]:
        """A JSON schema (OpenAI, vLLM, SGLang, llama.cpp, Ollama, LM Studio), a grammar in GBNF (llama.cpp before
        schemas, KoboldCpp), any JSON object (DeepSeek, Mistral), and the chat alone."""
        described = {"name": self.name, "strict": self.is_strict, "schema": self.schema}
        grammar = _write_grammar(json.dumps(self.schema))
        return (
            Way("json_schema", chat, {"response_format": {"type": "json_schema", "json_schema": described}}, self.fits),
            Way("grammar", chat, {"extra_body": {"grammar": grammar}}, self.fits),
            Way("json_object", chat, {"response_format": {"type": "json_object"}}, is_json),
            Way("chat", chat),
        )

    def fits(self, reply: str) -> bool:
        """Whether a reply is JSON that has the fields which the schema requires at its root, and nothing else."""
        return is_json(reply, self.schema.get("required", ()))


@cache
def _write_grammar(schema: str) -> str:
    return f"root ::= output\n{make_json_grammar(json.loads(schema)).ebnf}"


def is_json(reply: str, fields: Iterable[str] = ()) -> bool:
    """Whether a reply is JSON, of an object with these fields if there are any, and nothing else."""
    try:
        value = json.loads(drop_thoughts(reply))
    except (ValueError, RecursionError):
        return False
    return all(isinstance(value, dict) and name in value for name in fields)


def drop_thoughts(reply: str) -> str:
    """A reply without what a model thought before it: nothing is left of one that ends in the middle of a thought."""
    said = reply.rpartition(THOUGHT_ENDS)[2]
    return "" if THOUGHT_BEGINS in said else said
