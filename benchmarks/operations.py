"""What plans make of gold answers: `python benchmarks/operations.py [--data FOLDER] [--world 4000] [--exclusions 200]
[--no-names]`.

Each leaf is given the answers of the annotation; nothing is searched or read, and no language model judges. The plan
says what is done with the answers (`=> argmin`).

The world's questions are annotated with their ending. 2WikiMultiHopQA's are not: its reader takes the one that gives
the gold answer, so its figure says what can be said, not what a model would say.

Exclusions ("Which actors starred in A but not in B?") are no questions of a world, whose drawing the shipped models'
cards pin. They are drawn here, from the facts of a world.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from data_gen.annotate.endings import end_plan
from data_gen.questions import AnnotatedQuestion, DroppedError
from data_gen.sources.multi_hop import read_two_wiki
from data_gen.sources.rows import read_world
from data_gen.world.comparisons import share_wording
from data_gen.world.documents import View, write_document
from data_gen.world.drawing import Drawing
from data_gen.world.generate import generate
from data_gen.world.populate import populate
from data_gen.world.terms import build_plan
from revelator.errors import RevelatorError
from revelator.limits import Limits
from revelator.plans import Expression, parse, render
from revelator.scores import normalise
from revelator.trace import Passage
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from serving.protocols import Completion, GenerateRequest, Reading

SEED = 7
SHOWN = 8
LIMITS = Limits(fan_out=64, leaves=64)
ENTITIES = 2000
EXCLUSIONS = {  # questions about two lists of one relation, as the world asks for what is in both
    "cast": ["Which actors starred in {a} but not in {b}?", "Who acted in {a} and not in {b}?"],
    "members": ["Which musicians play in {a} but not in {b}?", "Who is a member of {a} and not of {b}?"],
}


class GoldServices:
    """Every question that the annotation answers, answered so."""

    def __init__(self, answers: Mapping[str, Sequence[str]]) -> None:
        self._answers = answers

    async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
        return [Passage(query, query, ", ".join(self._answers.get(query, ())))]

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        return [Completion("yes", {"yes": 0.9, "no": 0.1}) for _ in prompts]

    async def answer(self, request: GenerateRequest) -> Reading:
        known = self._answers.get(request.question, ()) if request.mode == "read" and len(request.passages) == 1 else ()
        return Reading("", tuple(known))


async def is_right(question: AnnotatedQuestion, plan: Expression, names_parts: bool = True) -> bool:
    """Whether the plan gives the gold answers, as sets; of a number without a unit the number."""
    services = GoldServices({step.question: step.answers for step in question.steps})
    executor = Executor(services, Sources.of_index(services), services, LIMITS, names_parts=names_parts)
    try:
        trace = await executor.run(question.question, plan=render(plan))
    except RevelatorError:
        return False
    answers = trace.answers
    if len(question.answers) == len(answers) == 1 and question.answers[0].replace(",", "").isdigit():
        answers = [answers[0].partition(" ")[0]]
    return set(map(normalise, answers)) == set(map(normalise, question.answers))


async def compare(name: str, questions: Iterable[AnnotatedQuestion], names_parts: bool) -> None:
    counts: Counter[str] = Counter()
    missed: dict[str, list[str]] = {}
    for question in questions:
        plan, kind = parse(question.expression), question.ending.partition(" ")[0]
        counts[f"{kind} all"] += 1
        try:
            ended = end_plan(plan, question.ending)
        except DroppedError as reason:
            missed.setdefault(kind, []).append(f"{question.question} | {reason.message}")
            continue
        if await is_right(question, ended, names_parts):
            counts[f"{kind} said"] += 1
        else:
            missed.setdefault(kind, []).append(f"{question.question} | {render(ended)}")
    kinds = sorted({key.split()[0] for key in counts})
    print(f"{name:24}{'n':>6}{'right':>8}")
    for kind in (*kinds, "all"):
        n, said = (
            sum(counts[f"{one} {what}"] for one in (kinds if kind == "all" else [kind])) for what in ("all", "said")
        )
        print(f"  {kind:22}{n:6}{said / n:8.3f}")
        for line in missed.get(kind, ())[:SHOWN]:
            print(f"      {line}")


def draw_exclusions(count: int) -> list[AnnotatedQuestion]:
    """Questions about what one thing has and another has not, which have it partly in common."""
    rng = random.Random(SEED)
    graph = populate(ENTITIES, rng, set())
    drawing = Drawing(View(graph, [write_document(graph, entity, rng) for entity in graph.entities]), rng)
    found: dict[str, AnnotatedQuestion] = {}
    while len(found) < count:
        if question := _draw_exclusion(drawing):
            found[question.question] = question
    return list(found.values())


def _draw_exclusion(drawing: Drawing) -> AnnotatedQuestion | None:
    view, rng = drawing.view, drawing.rng
    relation = rng.choice([each for each in drawing.lists if each.id in EXCLUSIONS])
    heads = view.lists[relation.id]
    first = rng.choice(heads)
    had = set(view.list_tails(first, relation.id))
    others = [head for head in heads if 0 < len(had.intersection(view.list_tails(head, relation.id))) < len(had)]
    compared = [first, rng.choice(others)] if others else []
    terms = share_wording(drawing.ask_each(relation, map(drawing.mention, compared)))
    if len(terms) < 2:
        return None
    plan = build_plan(view, terms)
    return AnnotatedQuestion(
        id=f"exclusion-{first}",
        source="world",
        licence="Apache-2.0",
        split="test",
        question=drawing.write_about_both(rng.choice(EXCLUSIONS[relation.id]), terms),
        route="complex",
        expression=render(plan.expression),
        steps=plan.steps,
        answers=drawing.list_texts([value for value in terms[0].values if value not in terms[1].values]),
        ending="except",
    )


def read_comparisons(data: Path) -> list[AnnotatedQuestion]:
    """The comparisons of 2WikiMultiHopQA's development set with the answers of their steps."""
    path = data / "2wikimultihopqa" / "2wiki_dev_with_context.jsonl.gz"
    found = (question for question in read_two_wiki(path) if isinstance(question, AnnotatedQuestion))
    return [question for question in found if question.ending]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("REVELATOR_DATA", "../shared/data"))
    parser.add_argument("--world", type=int, default=4000, help="questions of the drawn world")
    parser.add_argument("--exclusions", type=int, default=200, help="questions for what one has and another has not")
    parser.add_argument("--no-names", dest="names", action="store_false", help="the question names no compared part")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        generate(given.world, SEED, Path(folder) / "world")
        found = [question for question in read_world(Path(folder) / "world") if isinstance(question, AnnotatedQuestion)]
    complex_ones = [question for question in found if question.route == "complex" and question.expression]
    asyncio.run(compare("the drawn world", complex_ones, given.names))
    asyncio.run(compare("exclusions", draw_exclusions(given.exclusions), given.names))
    asyncio.run(compare("2WikiMultiHopQA", read_comparisons(Path(given.data)), given.names))


if __name__ == "__main__":
    main()
