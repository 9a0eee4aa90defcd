"""The revelator behind an OpenAI-compatible endpoint: a language model that plans, or a fine-tuned adapter on a server.

Both are one class with another prompt. `chat` describes a task in plain words, with examples, to any model
(`revelator.tasks.chat_prompts`; the few-shot prompts of QCompiler, appendix J, in words of our own). `trained` is the
prompt that an adapter was trained with, put to `/completions` without a chat template; the adapter's name is the model.

What holds a reply to its form (`structure`): the field `structured_outputs` of vLLM (a choice, a regular expression or
a grammar), the form of a JSON object (`revelator.reply_forms`), or nothing. Whatever wrote it, a reply is read and
checked like any other model's.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import Field

from revelator.config import Strict
from revelator.endpoints import Address
from revelator.errors import DeadlineExceeded, ExpressionError, InvalidRequest, ServingError, Unavailable
from revelator.language_model import Endpoint, RefusedError, Reply
from revelator.plans.decoding import make_json_grammar
from revelator.plans.language import BNF
from revelator.plans.steps import read_steps
from revelator.reply_forms import JsonForm, Way
from revelator.tasks import TASKS, QuestionInput, Task
from revelator.tasks.chat_prompts import build_chat, read_examples, read_last_line
from serving.batching import gather_all
from serving.models.likelihoods import (
    LIKELIEST,
    find_mean_probability,
    read_first_probability,
    read_probabilities,
)
from serving.models.releases import find_choice
from serving.protocols import TEXT, Completion, PlannerPrompt, Structure

CALLS = 32  # to one endpoint at a time: ten documents of each of some questions
CHAT_TOKENS = 1024  # of a reply to a chat: a model may think first
TEXT_TOKENS = 256  # of a trained model's sub-question or list of parts
ONE_LINE = "[^\\n]+"
OWNER = "vllm"  # of the models that vLLM lists
FIELD = "output"  # of the JSON object of a reply


class PlannerConfig(Strict):
    """An OpenAI-compatible endpoint that plans; its key is read from OPENAI_API_KEY."""

    url: Address
    model: str = Field(min_length=1)  # with `trained` the name of the adapter
    prompt: PlannerPrompt = "chat"  # a chat with examples, or the prompt that an adapter was trained with
    structure: Structure = "auto"  # what holds replies to their form; auto: vllm on vLLM, else a JSON schema

    def __str__(self) -> str:
        return f"{self.model} at {self.url}, {self.prompt} prompt"


class EndpointRevelator:
    """`serving.protocols.Revelator` of an OpenAI-compatible endpoint; its key, timeout and retries are those of
    `Endpoint`.

    A label task has the probabilities of the labels by the log probabilities of their tokens. Where the endpoint gives
    none, or wrong ones, the label that was said has 1. A reply that says no label is `degraded`: all labels are equally
    likely, and the last one, after which most is looked up, stands for it.

    A plan that the endpoint cut off is replaced by the question itself, `degraded`; one that does not check is returned
    as it is, for the executor to see why and to ask again at a higher temperature.

    `complete` raises the errors of `Endpoint`, and InvalidRequest for a prompt that the endpoint refuses.
    """

    needs_structure = False  # whether a structure that is refused is an error, and not left out

    def __init__(
        self, config: PlannerConfig, *, api_key: str | None = None, timeout: float | None = None, retries: int = 2
    ) -> None:
        self.config = config
        self._endpoint = Endpoint(config.url, config.model, api_key=api_key, timeout=timeout, retries=retries)
        self._calls = asyncio.Semaphore(CALLS)
        self._is_vllm: bool | None = None
        lead = " " if config.prompt == "trained" else ""  # a completion of the training set begins with a space
        self._vllm_structures = {name: make_vllm_structure(task, config.prompt, lead) for name, task in TASKS.items()}
        if config.prompt == "chat":
            read_examples()  # 50 ms, which the event loop would stand still

    async def check(self) -> None:
        """Asks for the model, and puts a question to it where no list of models names it. Raises what `complete` does,
        with the names of the models that there are."""
        names = await self._list_models()
        if self.config.model in names:
            return
        try:
            await self.complete("route", [TASKS["route"].render(QuestionInput("Who built the Hollow Bell Bridge?"))])
        except ServingError as error:
            if names and not isinstance(error, Unavailable):
                error.hint = f"its models are {', '.join(sorted(names))}"[:500]
            raise

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        """One call a prompt, `CALLS` at once; the first error ends the others."""
        return await gather_all([self._complete_one(TASKS[task], prompt, temperature) for prompt in prompts])

    async def _complete_one(self, task: Task, prompt: str, temperature: float) -> Completion:
        reply = await self._ask(task, prompt, temperature)
        find_choice().answered["revelator"].add(self._name_answer(reply.model or self.config.model))
        used = reply.tokens_in, reply.tokens_out
        text = read_output(reply.text)
        if task.labels:
            said = read_label(text, task.labels)
            if said is None:
                equal = dict.fromkeys(task.labels, 1 / len(task.labels))
                return Completion(task.labels[-1], equal, *used, degraded=True)
            shares = read_probabilities(said, task.labels, reply.tokens)
            return Completion(max(shares, key=shares.__getitem__), shares, *used)
        if reply.finish != "length":
            return Completion(_spell_plan(text) if task.language is BNF else text, _read_shares(task, reply), *used)
        if task.language:
            return Completion(task.write_fallback(prompt), {}, *used, degraded=True)
        return Completion("", {}, *used)

    async def _ask(self, task: Task, prompt: str, temperature: float) -> Reply:
        """The reply to the fullest request that the endpoint takes."""
        trained = self.config.prompt == "trained"
        most = task.language.token_limit if task.language else TEXT_TOKENS
        options: dict[str, Any] = {"temperature": temperature, "max_tokens": most if trained else CHAT_TOKENS}
        if task.labels or trained:
            options |= {"logprobs": LIKELIEST} if trained else {"logprobs": True, "top_logprobs": LIKELIEST}
        async with self._calls:
            ways = await self._list_ways(task, prompt)
            try:
                return await self._endpoint.ask_in_form("label" if task.labels else task.name, ways, **options)
            except RefusedError as error:
                raise InvalidRequest(error.message, where=error.where, hint=error.hint) from error

    async def _list_ways(self, task: Task, prompt: str) -> list[Way]:
        """The requests that may be sent, the tightest first. A trained model writes no JSON around its output."""
        wanted = self.config.structure
        structured = {"extra_body": {"structured_outputs": self._vllm_structures[task.name]}}
        if self.config.prompt == "trained":
            fields = {"model": self._name_model(), "stop": ["\n"]}
            ways = [Way("structured_outputs", prompt, fields | structured)] * (wanted in ("auto", "vllm"))
            return ways if self.needs_structure else [*ways, Way("prompt", prompt, fields)]
        if wanted == "auto" and self._is_vllm is None:
            self._is_vllm = OWNER in (await self._list_models()).values()
        plain = build_chat(task, prompt)
        if wanted == "none":
            return [Way("chat", plain)]
        note = f'Write it as a JSON object with the one field "{FIELD}".'
        *held, _ = make_form(task).list_ways(build_chat(task, prompt, partial(_wrap, task), note))
        is_vllm = wanted == "vllm" or (wanted == "auto" and self._is_vllm)
        return [*[Way("structured_outputs", plain, structured)] * bool(is_vllm), *held, Way("chat", plain)]

    async def _list_models(self) -> dict[str, str]:
        """The endpoint's models, each with its owner; none where it has no list. Whether it is down, or the key is
        wrong, a first question tells."""
        try:
            return await self._endpoint.list_models()
        except DeadlineExceeded:
            raise
        except ServingError:
            return {}

    def _name_model(self) -> str:
        """The model that a training prompt is put to."""
        return self.config.model

    def _name_answer(self, model: str) -> str:
        """What a trace calls a model that answered."""
        return model

    async def close(self) -> None:
        await self._endpoint.close()


def _read_shares(task: Task, reply: Reply) -> dict[str, float]:
    """The probability of a text, and of the task's refusal, where the endpoint gives log probabilities."""
    if not reply.tokens:
        return {}
    shares = {TEXT: find_mean_probability(reply.tokens)}
    return shares | {task.refusal: read_first_probability(task.refusal, reply.tokens)} if task.refusal else shares


def make_vllm_structure(task: Task, prompt: PlannerPrompt, lead: str) -> dict[str, Any]:
    """vLLM's own constraint, in a form that its default backend, xgrammar, takes; `lead` stands before the output."""
    if task.labels:
        return {"choice": [f"{lead}{label}" for label in task.labels]}
    if task.language:
        chat_grammar = task.language.chat_grammar if prompt == "chat" else None
        written = (chat_grammar or task.language.grammar)().ebnf
    elif task.json_schema:
        written = make_json_grammar(task.json_schema()).ebnf
    else:
        return {"regex": f"{lead}{ONE_LINE}"}
    return {"grammar": f"root ::= {json.dumps(lead)} output\n{written}"}


def make_form(task: Task) -> JsonForm:
    """A JSON object with the one field that holds the output. A tree has fields that may be left out, which OpenAI's
    own `strict` does not allow."""
    schema = task.json_schema() if task.json_schema else {"type": "string"}
    if task.labels:
        schema = {"type": "string", "enum": list(task.labels)}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {key: value for key, value in schema.items() if key in ("type", "enum", "items", "$ref")}
    whole = {"type": "object", "properties": {FIELD: inner}, "required": [FIELD], "additionalProperties": False}
    return JsonForm(task.name, whole | definitions, is_strict=not definitions)


def _wrap(task: Task, output: str) -> str:
    """An output as the JSON object that is asked for."""
    return json.dumps({FIELD: json.loads(output) if task.json_schema else output}, ensure_ascii=False)


def read_output(reply: str) -> str:
    """The output in a reply: the value in the JSON object that was asked for, else the JSON that it is, else its last
    line; what was thought before does not count. Never fails."""
    text = reply.rpartition("</think>")[2].strip()
    last = read_last_line(text)
    for part in (text, re.sub(r"^```\w*\n|\n```$", "", text), last):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.keys() == {FIELD}:
            [value] = value.values()
            if isinstance(value, str):
                return " ".join(value.encode("utf-8", "replace").decode().split())
        if isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
    return last


def _spell_plan(text: str) -> str:
    """A list of steps as the plan that it is; another text as it stands, and so a list that is none."""
    try:
        plan = read_steps(text)
    except ExpressionError:
        return text
    return BNF.render(plan) if plan else text


def read_label(text: str, labels: Sequence[str]) -> str | None:
    """The label that a text is, or begins with; None where it says none."""
    word = re.match(r"\w+", text.lower().strip(" .'\"`*"))
    return word[0] if word and word[0] in labels else None
