"""The steps that baselines share: a search with a reading, a prompt to the language model, several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from string import Template

from revelator.tasks import Step
from revelator.tasks.chat_prompts import quote_data
from revelator.trace import Kind, Node
from serving.batching import gather_all
from serving.executor.run import QuestionRun
from serving.executor.source_answers import search_sources
from serving.knowledge.operators import build_direct_query
from serving.protocols import GenerateRequest, Reading


async def search_and_read(run: QuestionRun, question: str, k: int, query: str | None = None) -> Node:
    """Searches for `query` (the question itself if None) and reads the answer to `question` from `k` passages."""
    node = run.open("atomic", question)
    node.asked = question
    with run.recorder.record(node):
        await search(run, node, query or question, k)
        if passages := tuple({(p.title, p.text): p for p in node.documents}.values()):
            await run.models.generate(node, GenerateRequest("read", question, passages=passages))
        else:
            node.end_without_answer("nothing-found", "no document was found")
    return node


async def search(run: QuestionRun, node: Node, query: str, k: int) -> None:
    """Writes into the node the `k` best passages for a query."""
    await search_sources(run.sources, node, build_direct_query(query), k)


async def ask_generator(run: QuestionRun, kind: Kind, question: str, request: GenerateRequest) -> Node:
    node = run.open(kind, question)
    with run.recorder.record(node):
        await run.models.generate(node, request)
    return node


def fill_prompt(name: str, **values: object) -> str:
    """Fills `prompts/NAME.txt` with values, as JSON."""
    return _read_prompt(name).substitute({key: quote_data(value) for key, value in values.items()})


async def prompt_model(run: QuestionRun, name: str, **values: object) -> str:
    """Returns what the language model writes for `prompts/NAME.txt`."""
    return (await ask_generator(run, "refine", name, GenerateRequest("write", fill_prompt(name, **values)))).sentence


async def prompt_each(run: QuestionRun, name: str, values: Sequence[Mapping[str, object]]) -> list[Reading]:
    """Puts the prompt to the language model once for each of the values, side by side; replies with log
    probabilities."""

    async def ask(node: Node, own: Mapping[str, object]) -> Reading:
        with run.recorder.record(node):
            request = GenerateRequest("write", fill_prompt(name, **own), logprobs=True)
            return await run.models.generate(node, request)

    nodes = open_round(run, "refine", [name for _ in values])
    return await gather_all([ask(node, own) for node, own in zip(nodes, values, strict=True)])


def open_round(run: QuestionRun, kind: Kind, questions: Sequence[str]) -> list[Node]:
    """Opens nodes that run side by side after the last one, or the last ones; `round` in their detail is the first."""
    nodes = [run.recorder.open(kind, question, after=run.last_nodes) for question in questions]
    for node in nodes:
        node.asked = node.question
        node.detail["round"] = nodes[0].id
    run.last_nodes = tuple(node.id for node in nodes) or run.last_nodes
    return nodes


async def merge_steps(run: QuestionRun, question: str, steps: Sequence[Step]) -> Node:
    """Lets the generator answer the question from sub-questions and their answers."""
    return await ask_generator(run, "merge", question, GenerateRequest("merge", question, steps=tuple(steps)))


def to_step(node: Node) -> Step:
    return Step(node.asked or node.question, tuple(node.answers))


@cache
def _read_prompt(name: str) -> Template:
    text = files("evaluation.baselines").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    return Template(text.rstrip())
