"""Plans that a language model writes for questions that people wrote, against what people decomposed them into (Break).

    python benchmarks/planner.py --url http://127.0.0.1:8080/v1 --model NAME [--sample 12] [--data FOLDER]

`--sample` questions each of HotpotQA, ComplexWebQuestions, DROP and ComQA, asked once and greedily; those whose
decomposition no plan can say are left out. *Valid*: the plan checks. *Shape*: the same `*` and `+` as gold, operations
aside. *Operations*: the same ones. People may decompose one question in several ways, so these say less than an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from data_gen.questions import AnnotatedQuestion
from data_gen.sources.multi_hop import read_qdmr
from revelator.errors import ExpressionError
from revelator.plans import Atomic, Dependent, Expression, Operation, check, list_steps, make_letters_key, parse
from revelator.plans import Sequence as ListOf
from revelator.plans.trees import join
from revelator.tasks import TRANSLATE_BNF, QuestionInput
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig

SEED = 5
KINDS = ("HOTPOT", "CWQ", "DROP", "COMQA")  # as Break's ids begin
MEASURES = ("valid", "shape", "operations")


def read_gold(data: Path, sample: int) -> Iterator[tuple[str, AnnotatedQuestion]]:
    """Questions with their kind, drawn by `SEED`."""
    found: dict[str, dict[str, AnnotatedQuestion]] = {kind: {} for kind in KINDS}
    for name in ("qdmr_highlevel_dev", "qdmr_dev"):
        for question in read_qdmr(data / "break" / f"{name}.jsonl.gz"):
            kind = question.id.partition(":")[2].partition("_")[0] if isinstance(question, AnnotatedQuestion) else ""
            if isinstance(question, AnnotatedQuestion) and kind in found:
                found[kind].setdefault(question.question, question)
    draw = random.Random(SEED)
    for kind, questions in found.items():
        for one in draw.sample(list(questions.values()), min(sample, len(questions))):
            yield kind, one


def drop_operations(plan: Expression) -> Expression:
    if isinstance(plan, Operation):
        return drop_operations(plan.operand)
    if isinstance(plan, Atomic):
        return plan
    parts = [drop_operations(child) for child in plan.children]
    return join(ListOf, parts) if isinstance(plan, ListOf) else Dependent(*parts)


def score(written: str, gold: Expression) -> dict[str, bool]:
    try:
        plan = parse(written)
    except ExpressionError:
        return dict.fromkeys(MEASURES, False)
    if check(plan):
        return dict.fromkeys(MEASURES, False)
    shapes, operations = [], []
    for one in (plan, gold):
        shapes.append(make_letters_key(drop_operations(one)))
        operations.append(Counter(step.name for step in list_steps(one) if isinstance(step, Operation)))
    return {"valid": True, "shape": shapes[0] == shapes[1], "operations": operations[0] == operations[1]}


async def run(given: argparse.Namespace) -> None:
    planner = EndpointRevelator(PlannerConfig(url=given.url, model=given.model))
    counts: Counter[tuple[str, str]] = Counter()
    began = time.perf_counter()
    for kind, question in read_gold(Path(given.data), given.sample):
        [output] = await planner.complete(TRANSLATE_BNF.name, [TRANSLATE_BNF.render(QuestionInput(question.question))])
        counts[kind, "n"] += 1
        counts.update((kind, name) for name, holds in score(output.text, parse(question.expression)).items() if holds)
        if given.show:
            print(f"{question.question}\n  gold {question.expression}\n  said {output.text}")
    print(f"{'':8}{'n':>5}" + "".join(f"{name:>12}" for name in MEASURES))
    for kind in KINDS:
        print(f"{kind:8}{counts[kind, 'n']:5}" + "".join(f"{counts[kind, name]:12}" for name in MEASURES))
    asked = sum(counts[kind, "n"] for kind in KINDS)
    print(f"{(time.perf_counter() - began) / max(1, asked):.1f} s a plan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--sample", type=int, default=12)
    parser.add_argument("--data", type=Path, default=os.environ.get("REVELATOR_DATA", "../shared/data"))
    parser.add_argument("--show", action="store_true", help="each question with both plans")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
