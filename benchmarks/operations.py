"""What plans make of gold answers: `python benchmarks/operations.py [--data FOLDER] [--world 4000]`.

Each leaf is given the answers of the annotation; nothing is searched or read, and no language model judges. Compared
are plans that leave it to the words of the question what is done with the answers, and plans that say it
(`=> argmin`).

The world's questions are annotated with their operation. 2WikiMultiHopQA's are not: of the few that a comparison may
end in, the one that gives the gold answer is taken, so its figure says what can be said, not what a model would say.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from data_gen.questions import AnnotatedQuestion
from data_gen.sources.multi_hop import read_two_wiki
from data_gen.sources.rows import read_world
from data_gen.world.generate import generate
from revelator.errors import RevelatorError
from revelator.limits import Limits
from revelator.plans import Dependent, Expression, Operation, bind, parse, render, spell_by_numbers
from revelator.plans import Sequence as ListOf
from revelator.scores import normalise
from revelator.trace import Passage
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from serving.protocols import Completion, GenerateRequest, Reading

SEED = 7
SHOWN = 8
# what a comparison of 2WikiMultiHopQA may end in
COMPARED = ("same", "argmin", "argmin_source", "argmin_count", "argmax", "argmax_source", "argmax_count")
NAMES = {"same": "equal", "difference": "difference", "count": "count", "intersect": "intersect"}
LIMITS = Limits(fan_out=64, leaves=64)


class GoldServices:
    """Every question that the annotation answers, answered so."""

    def __init__(self, answers: Mapping[str, Sequence[str]]) -> None:
        self._answers = answers

    async def search(self, query: str, k: int) -> list[Passage]:
        return [Passage(query, query, ", ".join(self._answers.get(query, ())))]

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        return [Completion("yes", {"yes": 0.9, "no": 0.1}) for _ in prompts]

    async def answer(self, request: GenerateRequest) -> Reading:
        known = self._answers.get(request.question, ()) if request.mode == "read" and len(request.passages) == 1 else ()
        return Reading("", tuple(known))


async def is_right(question: AnnotatedQuestion, plan: Expression) -> bool:
    """Whether the plan gives the gold answers, as sets; of a number without a unit the number."""
    services = GoldServices({step.question: step.answers for step in question.steps})
    executor = Executor(services, Sources.of_index(services), services, LIMITS)
    try:
        trace = await executor.run(question.question, plan=render(plan))
    except RevelatorError:
        return False
    answers = trace.answers
    if len(question.answers) == len(answers) == 1 and question.answers[0].replace(",", "").isdigit():
        answers = [answers[0].partition(" ")[0]]
    return set(map(normalise, answers)) == set(map(normalise, question.answers))


def end_with(plan: Expression, name: str, told: str) -> Expression | None:
    """The plan with an operation of the annotation; None for one that plans have no name for."""
    operation, _, end = name.partition("_")
    if name in ("none", "list", "both"):
        return spell_by_numbers(plan)
    if name in NAMES:
        return spell_by_numbers(Operation(plan, NAMES[name]))
    if operation not in ("argmin", "argmax") or told:
        return None
    counted = count_ends(plan) if end == "count" else plan
    numbered = spell_by_numbers(Operation(counted, operation))
    assert isinstance(numbered, Operation)
    if end == "source":
        return numbered
    steps = bind(numbered).steps
    ends = [steps[last].parts[0] if steps[last].parts else last for last in steps[-1].parts]
    asked = sorted({number + 1 for last in ends for number in steps[last].sources.values()})
    return Operation(numbered.operand, operation, tuple(asked))


def count_ends(plan: Expression) -> Expression:
    """The plan with a count of what each of its last leaves answers."""
    if isinstance(plan, Dependent):
        return Dependent(plan.left, count_ends(plan.right))
    if isinstance(plan, ListOf):
        return ListOf(tuple(map(count_ends, plan.items)))
    return Operation(plan, "count")


def list_endings(question: AnnotatedQuestion, plan: Expression) -> Iterator[Expression]:
    """The plans that an annotated question may have."""
    if question.operation:
        name, _, told = question.operation.partition(" ")
        if (made := end_with(plan, name, told)) is not None:
            yield made
        return
    for name in COMPARED:
        if made := end_with(plan, name, ""):
            yield made
    if isinstance(plan, ListOf) and len(plan.items) == 4:  # births and deaths: who lived longer
        halves = (plan.items[:2], plan.items[2:])
        lives = ListOf(tuple(Operation(ListOf(half), "difference") for half in halves))
        yield from (Operation(lives, name) for name in ("argmin", "argmax"))


async def compare(name: str, questions: Iterable[AnnotatedQuestion]) -> None:
    counts: Counter[str] = Counter()
    missed: dict[str, list[str]] = {}
    for question in questions:
        plan = parse(question.expression)
        kind = question.operation.partition(" ")[0] or "comparison"
        endings = list(list_endings(question, plan))
        counts[f"{kind} all"] += 1
        counts[f"{kind} words"] += await is_right(question, plan)
        for ending in endings:
            if await is_right(question, ending):
                counts[f"{kind} said"] += 1
                break
        else:
            missed.setdefault(kind, []).append(
                f"{question.question} | {render(endings[0]) if endings else 'no operation'}"
            )
    kinds = sorted({key.split()[0] for key in counts})
    print(f"{name:24}{'n':>6}{'by words':>10}{'said':>8}")
    for kind in (*kinds, "all"):
        n, words, said = (
            sum(counts[f"{one} {what}"] for one in (kinds if kind == "all" else [kind]))
            for what in ("all", "words", "said")
        )
        print(f"  {kind:22}{n:6}{words / n:10.3f}{said / n:8.3f}   ")
        for line in missed.get(kind, ())[:SHOWN]:
            print(f"      {line}")


def read_comparisons(data: Path) -> list[AnnotatedQuestion]:
    """The comparisons of 2WikiMultiHopQA's development set with the answers of their steps."""
    path = data / "2wikimultihopqa" / "2wiki_dev_with_context.jsonl.gz"
    found = (question for question in read_two_wiki(path) if isinstance(question, AnnotatedQuestion))
    return [question for question in found if question.steps and not isinstance(parse(question.expression), Dependent)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("REVELATOR_DATA", "../shared/data"))
    parser.add_argument("--world", type=int, default=4000, help="questions of the drawn world")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        generate(given.world, SEED, Path(folder) / "world")
        found = [question for question in read_world(Path(folder) / "world") if isinstance(question, AnnotatedQuestion)]
    complex_ones = [question for question in found if question.route == "complex" and question.expression]
    asyncio.run(compare("the drawn world", complex_ones))
    asyncio.run(compare("2WikiMultiHopQA", read_comparisons(Path(given.data))))


if __name__ == "__main__":
    main()
