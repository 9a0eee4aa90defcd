"""A tree of questions in the way of ProbTree (Cao et al. 2023, arXiv 2311.13982): the language model writes the tree,
leaves are answered from documents or, where those say nothing, from memory; a node above from its children or, where
they do not lead to an answer, from documents.

As published the better of these is chosen by the mean log-probability of its explanation. Our generator protocol has
none, so they are tried in order, and the first that gives an answer is taken.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from evaluation.baselines.steps import merge, read, write
from revelator.tasks import Step
from serving.executor.run import Run
from serving.protocols import GenerateRequest

K = 5
REFERENCE = re.compile(r"#(\d+)")
DEEPEST = 4

Tree = Mapping[str, Sequence[str]]


async def probtree(run: Run) -> None:
    tree = read_tree(await write(run, "probtree", question=run.question), run.question)
    answers = await _answer(run, run.question, tree, (), run.limits.leaves)
    run.answer(answers)


def read_tree(text: str, question: str) -> Tree:
    """`{"question": ["part", …], …}`; what is no such object is the question alone."""
    start, end = text.find("{"), text.rfind("}")
    try:
        value = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return {}
    tree = {str(k): [p for p in v if isinstance(p, str) and p.strip()] for k, v in value.items() if isinstance(v, list)}
    return tree if question in tree else {question: next(iter(tree.values()), [])} | tree


async def _answer(run: Run, question: str, tree: Tree, above: Sequence[str], room: int) -> list[str]:
    """Post-order; `#1` in a part is the answer of its first sibling. A question inside itself is a leaf."""
    parts = tree.get(question, ()) if question not in above and len(above) < DEEPEST else ()
    steps: list[Step] = []
    for part in parts[:room]:
        asked = REFERENCE.sub(lambda match: _referred(match, steps), part)
        below = {asked if key == part else key: value for key, value in tree.items()}
        found = await _answer(run, asked, below, (*above, question), room // max(1, len(parts)))
        steps.append(Step(asked, tuple(found)))
    if known := [one for one in steps if one.answers]:
        node = await merge(run, question, known)
        if node.answers:
            return node.answers
    node = await read(run, question, K)
    if not node.answers:
        node = run.open("direct", question)
        with run.recorder.running(node):
            await run.models.generate(node, GenerateRequest("direct", question))
    return node.answers


def _referred(match: re.Match[str], steps: Sequence[Step]) -> str:
    place = int(match[1]) - 1
    return steps[place].answer if 0 <= place < len(steps) else match[0]
