"""A language model of the tests' own that plans, behind a real server on loopback: it knows a few questions about the
small world of `tests.serving.toy_model`, in the chat protocol and as a continued text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from revelator.tasks import TASKS, Task
from revelator.tasks.chat_prompts import load_chat_prompt
from tests.chat_server import Handler, Server, fails, says

ASKED = "Where was the director of Lantern Row born?"
PLAN = "Who directed Lantern Row? * Where was {1} born?"
STEPS = '[{"ask": "Who directed Lantern Row?"}, {"ask": "Where was {1} born?"}]'
TREE = {
    "question": ASKED,
    "children": [
        {"question": "Who directed Lantern Row?", "relate": {"head": "Lantern Row", "to": "director"}},
        {"question": "Where was [1] born?", "relate": {"head": "[1]", "to": "place of birth"}},
    ],
}
OUTPUTS = {
    "route": "complex",
    "decompose": '["Who directed Lantern Row?", "When was Sarnath founded?"]',
    "refine": "Who directed Lantern Row?",
    "rewrite": "Who directed Lantern Row?",
    "end": "yes",
    "select": "yes",
    "read": "Ines Calloway",
    "translate_bnf": PLAN,
    "translate_logic": '"ferry" AND NOT "harbour"',
    "translate_art": json.dumps(TREE),
}


class Planner:
    """Answers every task; a document is relevant where it shares a capitalised word with the question.

    `outputs` are by task. Fields in `refuses` are refused with status 400, as a server does that does not know them.
    With `logprobs` the tokens of an output come with probabilities, its own 0.9 and the next label's 0.1; behind a
    prompt in OpenAI's form, or `as_llama_cpp` gives them.
    """

    def __init__(self, server: Server, **outputs: str) -> None:
        self.outputs = OUTPUTS | outputs
        self.refuses: set[str] = set()
        self.logprobs = False
        self.as_llama_cpp = False
        server.replies = [self.reply]

    def reply(self, handler: Handler) -> None:
        body = handler.body
        if refused := sorted(self.refuses & body.keys()):
            return fails(400, f"this server does not know the field {refused[0]}")(handler)
        trained = "prompt" in body
        task, values = read_prompt(body["prompt"]) if trained else read_chat(body["messages"])
        output = self.outputs.get(task.name) or say_relevance(values)
        output = STEPS if output == PLAN and not trained else output
        text = self.write(body, output)
        tokens = self.spell_tokens(task, output, text, trained) if self.logprobs and "logprobs" in body else None
        if not trained:
            return says(text, logprobs=tokens)(handler)
        choice = {"index": 0, "text": f" {text}", "finish_reason": "stop", "logprobs": tokens}
        used = {"prompt_tokens": 31, "completion_tokens": 7}
        reply = {"id": "x", "object": "text_completion", "created": 0, "model": "m", "choices": [choice], "usage": used}
        return handler.send(200, json.dumps(reply).encode())

    def write(self, body: Mapping[str, Any], output: str) -> str:
        """The output in the form that the request asks for."""
        if "response_format" not in body:
            return output
        schema = body["response_format"]["json_schema"]["schema"]
        [(name, inner)] = schema["properties"].items()
        return json.dumps({name: output if inner.get("type") == "string" else json.loads(output)})

    def spell_tokens(self, task: Task, output: str, text: str, trained: bool) -> Any:
        labels = task.labels or (output, "—")
        other = next(label for label in labels if label[:1] != output[:1])
        before, _, after = text.partition(output)
        if trained and self.as_llama_cpp:
            likely = [{"token": f" {output}", "logprob": -0.105}, {"token": f" {other}", "logprob": -2.303}]
            return {"content": [{**likely[0], "id": 7, "top_logprobs": likely}]}
        if trained:
            return {"tokens": [f" {output}"], "token_logprobs": [-0.105], "top_logprobs": [{f" {other}": -2.303}]}
        one = {"token": output, "logprob": -0.105}
        rows = [{"token": token, "logprob": 0.0, "top_logprobs": []} for token in (before, after)]
        middle = {**one, "top_logprobs": [one, {"token": other, "logprob": -2.303}]}
        return {"content": [row for row in (rows[0], middle, rows[1]) if row["token"]]}


def read_chat(messages: list[dict[str, str]]) -> tuple[Task, dict[str, str]]:
    """The task whose description the system message holds, and the data of the last message."""
    task = next(task for task in TASKS.values() if load_chat_prompt(task.name) in messages[0]["content"])
    return task, json.loads(messages[-1]["content"].removeprefix("<data>\n").removesuffix("\n</data>"))


def read_prompt(prompt: str) -> tuple[Task, dict[str, str]]:
    task = next(task for task in TASKS.values() if prompt.startswith(task.template.partition("\n")[0]))
    return task, task.read_values(prompt)


def say_relevance(values: Mapping[str, str]) -> str:
    names = {word.strip("?,.") for word in values["question"].split()[1:] if word[0].isupper()}
    return "yes" if any(name in values["document"] for name in names) else "no"
