"""The embedded base and a planner at an endpoint, on the same questions, which neither has read: how often each writes
the right plan, and what typing errors cost.

    python benchmarks/unseen_questions.py [--set DIR --source NAME] [--tasks translate_bnf route] [--limit 100]
                                  [--url http://127.0.0.1:8080/v1 --seen training/planners/qwen2.5-coder-0.5b]

Without `--set`: questions in the manner of Bamboogle (Press et al. 2022), two or three hops over what everybody may
know, written by a language model that knew nothing of the project (two_hops.jsonl), as they are and typed carelessly.
With it: dev rows of an instruction set, a task each. Rows whose question a model has read are left out, by the
fingerprints of `mini` and of the folder `--seen`. The endpoint serves an adapter, with the prompts of its training.

Scores are those of `revelator model grade`, with 95 % intervals: of the base, of the endpoint, and of the endpoint less
the base. A name that was typed wrongly need not be copied, so *typed* has no arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from data_gen.annotate.names import find_shared_names
from evaluation.gate.scores import grade_row, read_pinned_rows
from evaluation.metrics.bootstrap import bootstrap
from evaluation.seen import TrainedModel, find_seen
from revelator.artifact import DEFAULT_BASE, GGUF
from revelator.fingerprints import Fingerprints
from revelator.plans import list_leaves, parse
from revelator.rows import Row, sample_rows
from revelator.tasks import TASKS, TRANSLATE_BNF, QuestionInput
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.engine import Engine
from serving.models.local import LocalRevelator
from serving.protocols import DECODINGS, Revelator

OWN = Path(__file__).with_name("two_hops.jsonl")
TYPED = "typed"  # the source of a question that was typed carelessly
MEASURES = ("valid", "letters", "operations", "arguments", "truth", "accuracy")
COPIED = ("arguments",)  # measures that want names as gold spells them
BATCH = 8


def make_row(number: int, source: str, question: str, plan: str) -> Row:
    """What a set's row has of what a plan is scored by."""
    task, id = TRANSLATE_BNF, f"{number}/{TRANSLATE_BNF.name}/0"
    names = find_shared_names(question, [leaf.text for leaf in list_leaves(parse(plan))])
    texts = {field.name: "" for field in fields(Row)} | {"id": id, "task": task.name, "source": source}
    texts |= {"question": question, "prompt": task.render(QuestionInput(question))}
    return Row(**texts | {"gold": json.dumps(plan), "entities": json.dumps(names)})


def read_own() -> Iterator[Row]:
    for number, line in enumerate(OWN.read_text(encoding="utf-8").splitlines(), start=1):
        one = json.loads(line)
        yield make_row(number, OWN.stem, one["question"], one["plan"])
        yield make_row(number, TYPED, one["typed"], one["plan"])


def read_rows(given: argparse.Namespace) -> list[Row]:
    """The rows that are asked: none whose question one of the planners has read."""
    known = [TrainedModel.read_revelator(None, DEFAULT_BASE)]
    known += [TrainedModel(folder.name, Fingerprints.read(folder, GGUF)) for folder in given.seen]
    rows = [*read_own()]
    if given.set:
        pinned = read_pinned_rows(given.set, "dev", 0, given.source)
        rows = [row for row in pinned if row.task in given.tasks]
    unseen = [row for row in rows if not find_seen(known, [row.question])]
    print(f"{len(rows) - len(unseen)} of {len(rows)} rows left out: read in training")
    return sample_rows(unseen, given.limit) if given.set else unseen


async def score_rows(revelator: Revelator, rows: Sequence[Row]) -> list[dict[str, float]]:
    scores: list[dict[str, float]] = []
    for first in range(0, len(rows), BATCH):
        batch = rows[first : first + BATCH]
        outputs = await revelator.complete(batch[0].task, [row.prompt for row in batch])
        for row, output in zip(batch, outputs, strict=True):
            scores.append(grade_row(row, output).scores)
    return scores


async def compare(given: argparse.Namespace) -> None:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in read_rows(given):
        groups[row.source, row.task].append(row)
    planners: dict[str, Revelator] = {DEFAULT_BASE: LocalRevelator(Engine(DEFAULT_BASE), given.decoding)}
    if given.url:
        planners["endpoint"] = EndpointRevelator(PlannerConfig(url=given.url, model="planner", prompt="trained"))
    for (source, task), rows in groups.items():
        scored = {name: await score_rows(planner, rows) for name, planner in planners.items()}
        for measure in MEASURES:
            if measure not in scored[DEFAULT_BASE][0] or (source == TYPED and measure in COPIED):
                continue
            values = [[float(one[measure]) for one in own] for own in scored.values()]
            if len(values) == 2:
                values.append([b - a for a, b in zip(*values, strict=True)])
            figures = map(bootstrap, values)
            said = (f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in figures)
            print(f"{source} {task} {measure} (n = {len(rows)}): {'; '.join(said)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, help="an instruction set (default: the questions that lie here)")
    parser.add_argument("--source", help="only rows of this source of the set")
    parser.add_argument("--tasks", nargs="+", choices=sorted(TASKS), default=[TRANSLATE_BNF.name])
    parser.add_argument("--limit", type=int, default=100, help="rows a task")
    parser.add_argument("--url", help="an OpenAI-compatible endpoint with an adapter `planner`, beside the base")
    parser.add_argument("--seen", type=Path, nargs="*", default=[], help="folders with fingerprints of its training")
    parser.add_argument("--decoding", choices=DECODINGS, default="beams", help="how the base writes plans")
    asyncio.run(compare(parser.parse_args()))


if __name__ == "__main__":
    main()
