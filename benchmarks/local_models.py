"""How well a language model plans, judges and reads for Revelator, and how long each takes.

    python benchmarks/local_models.py --url http://127.0.0.1:8080/v1 --model NAME [--sample 24] [--tasks plan judge]

Questions and documents ship with the package (`data_gen/configs`): nothing is fetched, and no model but our own was
trained on them. Each task is asked `--sample` times, greedily.

* plan: *valid*, the plan checks; *shape*, the same `*` and `+` as gold, operations aside; *operations*, the same ones.
  With `schema` the server holds replies to a JSON schema; with `none` the prompt alone says their form.
* judge: three documents a question, of which one helps; *found*, it is named; *alone*, and no other.
* read: one passage; *F1* where it says the answer, *refused* where it does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from planner import MEASURES, score

from revelator.plans import parse
from revelator.reading import ReadingRow, load_rows
from revelator.scores import score_reading
from revelator.tasks import TRANSLATE_BNF, QuestionInput
from revelator.trace import Node, Passage
from serving.executor.judges import JudgeConfig, ListwiseJudge
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.generators import EndpointGenerator
from serving.protocols import GenerateRequest, Structure

CONFIGS = Path(__file__).parents[1] / "data_gen" / "configs"
STRUCTURES: tuple[Structure, ...] = ("schema", "none")
SEED = 7
T = TypeVar("T")


def draw(rows: Sequence[T], sample: int) -> list[T]:
    return random.Random(SEED).sample(rows, min(sample, len(rows)))


async def plan(given: argparse.Namespace, structure: Structure) -> Iterator[tuple[str, float]]:
    planner = EndpointRevelator(PlannerConfig(url=given.url, model=given.model, structure=structure))
    lines = (CONFIGS / "people.jsonl").read_text(encoding="utf-8").splitlines()
    several = [row for row in map(json.loads, lines) if row["route"] == "complex"]
    scores: dict[str, list[bool]] = defaultdict(list)
    for row in draw(several, given.sample):
        [output] = await planner.complete(TRANSLATE_BNF.name, [TRANSLATE_BNF.render(QuestionInput(row["question"]))])
        written = "" if output.degraded else output.text  # else the fallback's own plan, which is valid
        for name, holds in score(written, parse(row["expression"])).items():
            scores[name].append(holds)
    return ((name, fmean(scores[name])) for name in MEASURES)


async def judge(given: argparse.Namespace, rows: Sequence[ReadingRow]) -> Iterator[tuple[str, float]]:
    """The two documents that do not help are other questions' of the sample."""
    judge = ListwiseJudge(JudgeConfig(url=given.url, model=given.model))
    asked, order = draw([row for row in rows if row.is_answerable], given.sample), random.Random(SEED)
    found, alone = [], []
    for at, row in enumerate(asked):
        shown = [row, asked[at - 1], asked[at - 2]]
        order.shuffle(shown)
        passages = [Passage(str(place), one.title, one.passage) for place, one in enumerate(shown)]
        helps = await judge.judge(Node("1", "atomic", row.question), row.question, passages) or [0.0] * len(shown)
        found.append(helps[shown.index(row)] > 0)
        alone.append(found[-1] and sum(helps) == 1)
    return iter([("found", fmean(found)), ("alone", fmean(alone))])


async def read(given: argparse.Namespace, rows: Sequence[ReadingRow]) -> Iterator[tuple[str, float]]:
    reader = EndpointGenerator(given.url, given.model)
    f1, refused = [], []
    for row in draw(rows, given.sample):
        reading = await reader.answer(GenerateRequest("read", row.question, (Passage("1", row.title, row.passage),)))
        if row.is_answerable:
            f1.append(score_reading(row, reading.answers).f1)
        else:
            refused.append(not reading.answers)
    return iter([("F1", fmean(f1)), ("refused", fmean(refused))])


async def run(given: argparse.Namespace) -> None:
    """A line for each task as it ends: a small machine takes minutes for one."""
    print(f"{given.model}, {given.sample} of each, seconds of each")
    rows = load_rows(CONFIGS / "reading" / "people.jsonl.gz")
    calls = {f"plan, {structure}": partial(plan, given, structure) for structure in STRUCTURES}
    calls |= {"judge": partial(judge, given, rows), "read": partial(read, given, rows)}
    for name, call in calls.items():
        if name.split(",")[0] not in given.tasks:
            continue
        began = time.perf_counter()
        figures = ", ".join(f"{measure} {value:.2f}" for measure, value in await call())
        print(f"{name:<13} {figures:<48} {(time.perf_counter() - began) / given.sample:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--sample", type=int, default=24)
    parser.add_argument("--tasks", nargs="+", default=["plan", "judge", "read"], choices=["plan", "judge", "read"])
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
