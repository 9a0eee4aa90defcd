"""What the baselines share: one step of retrieval and reading, and a text written to a prompt of ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from string import Template

from revelator.tasks import Step
from revelator.trace import Node, Passage
from serving.executor.run import Run
from serving.models.generators import as_data
from serving.protocols import GenerateRequest


async def read(run: Run, question: str, k: int, query: str | None = None, known: Sequence[Passage] = ()) -> Node:
    """Searches for `query` (the question itself if None) and reads the answer to `question` from the `k` passages and
    those that are `known` already."""
    node = run.open("atomic", question)
    node.asked = question
    with run.recorder.record(node):
        node.documents = await run.models.search(node, query or question, k)
        passages = tuple({(p.title, p.text): p for p in (*known, *node.documents)}.values())
        if passages:
            await run.models.generate(node, GenerateRequest("read", question, passages=passages))
        else:
            node.status, node.error = "failed", "no document was found"
    return node


async def write(run: Run, name: str, **values: object) -> str:
    """What the language model writes to the prompt `prompts/NAME.txt`; every value enters it as JSON."""
    node = run.open("refine", name)
    texts = {key: as_data(value) for key, value in values.items()}
    with run.recorder.record(node):
        await run.models.generate(node, GenerateRequest("write", _prompt(name).substitute(texts)))
    return node.sentence


async def merge(run: Run, question: str, steps: Sequence[Step]) -> Node:
    """The generator's answer from sub-questions and their answers."""
    node = run.open("merge", question)
    with run.recorder.record(node):
        await run.models.generate(node, GenerateRequest("merge", question, steps=tuple(steps)))
    return node


def step(node: Node) -> Step:
    return Step(node.asked or node.question, tuple(node.answers))


@cache
def _prompt(name: str) -> Template:
    text = files("evaluation.baselines").joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    return Template(text.rstrip())
