"""Constrained decoding: is every plan valid, and what does the mask cost.

    python benchmarks/decoding.py [--questions 256] [--base tests/tiny] [--only plans|mask]
                                  [--runtime auto|transformers]

`plans` asks a randomly initialised model of the base's architecture and the base itself for a plan of each question in
each language, half greedily and half at temperature 1 (without a grammar the first 128 only), within the language's
token limit. It counts the plans that are sound and the fallbacks (`degraded`): with a grammar each is one or the other.
A quarter of the questions each: MuSiQue's own (below REVELATOR_DATA; without it, three others), texts of
`+ * ( ) { } "` and words, 10 KB, empty.

`mask` times the same batches with and without a grammar, greedy and drawn, in turn, and the constraint's own share.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from pathlib import Path

import torch

from revelator.plans.decoding import make_plan_grammar
from revelator.tasks import TASKS, QuestionInput
from serving.models.decoding import Constraint
from serving.models.engine import Engine
from serving.models.local import complete
from serving.protocols import Completion, Decoding
from tests.causal import TINY

PIECES = [*'+*(){}"', "×", "\\", "{x}", "{a b}", "(+)", '("', "who", "is", "the", "film", "1997", "é", "电影"]
BATCH = 32
PLANNING = ("translate_bnf", "translate_logic", "translate_art")
DECODINGS: tuple[Decoding, ...] = ("grammar", "free")
TOKENS = 96  # that a timed plan takes at most; gold plans of the public sets have 15 to 80
ASKED = (
    "In which country was the director of the film that the founder of Harrow Pictures produced in 1987 born, and when"
    " did he die?"
)


def make_questions(count: int, seed: int = 7) -> Iterator[str]:
    """A quarter each: real ones, ones full of special characters, 10 KB long ones, empty ones."""
    draw = random.Random(seed)
    real = list(read_real_questions())
    for number in range(count):
        kind = number % 4
        if kind == 0:
            yield draw.choice(real)
        elif kind == 1:
            yield draw.choice(["", " "]).join(draw.choices(PIECES, k=draw.randint(1, 60)))
        elif kind == 2:
            yield " ".join(draw.choices(["who", "the", "film", "aaaaaaaaaaaa", "(1997)", '"x"', "{x}"], k=4000))[
                :10_240
            ]
        else:
            yield ""


def read_real_questions() -> Iterator[str]:
    file = Path(os.environ.get("REVELATOR_DATA", "../shared/data")) / "musique" / "musique_decomposed.jsonl.gz"
    if file.exists():
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            yield from (json.loads(line)["question"] for line in islice(lines, 1000))
    else:
        yield from (ASKED, "Who founded the company that distributed UHF?", "Is Aruba larger than Prazeres?")


def is_sound(task: str, completion: Completion) -> bool:
    """Whether the model itself wrote a plan that parses and checks."""
    return not completion.degraded and TASKS[task].parse_sound(completion.text) is not None


def split_batches(prompts: Sequence[str]) -> Iterator[tuple[float, Sequence[str]]]:
    """Temperatures and prompts: of each 32 one half greedily, the other half sampled."""
    for at in range(0, len(prompts), BATCH):
        yield 0.0, prompts[at : at + BATCH // 2]
        yield 1.0, prompts[at + BATCH // 2 : at + BATCH]


def measure_plans(name: str, engine: Engine, asked: Sequence[str]) -> None:
    for task, decoding in product(PLANNING, DECODINGS):
        prompts = [TASKS[task].render(QuestionInput(question)) for question in asked]
        start = time.perf_counter()
        done: dict[float, list[Completion]] = {0.0: [], 1.0: []}
        for temperature, own in split_batches(prompts if decoding == "grammar" else prompts[:128]):
            fitting = own if decoding == "grammar" else [p for p in own if len(p) < 4000]  # free refuses the others
            done[temperature] += complete(engine, task, fitting, temperature, decoding=decoding)
        shares = "  ".join(
            f"{way} n={len(rows):4} sound {sum(is_sound(task, row) for row in rows):4}"
            f" degraded {sum(row.degraded for row in rows):4}"
            for way, rows in zip(("greedy", "drawn"), done.values(), strict=True)
        )
        print(f"{name:14} {task:15} {decoding:7} {shares}  {time.perf_counter() - start:5.0f} s", flush=True)


def measure_mask(engine: Engine, asked: Sequence[str], repeats: int) -> None:
    """Steps differ in what rows still write, so the constraint's own time is taken beside the whole of each step's."""
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in asked]
    for rows, temperature in product((1, 8, 32), (0.0, 1.0)):
        times: dict[str, list[float]] = {"grammar": [], "free": []}
        shares = []
        for _ in range(repeats + 1):
            for decoding, own in times.items():
                ConstraintTimer.spent = 0.0
                start = time.perf_counter()
                grammars = [make_plan_grammar()] * rows if decoding == "grammar" else None
                written = engine.generate(prompts[:rows], temperature, TOKENS, grammars)
                seconds = time.perf_counter() - start
                own.append(seconds * 1e3 / max(row.tokens for row in written))
                if grammars:
                    shares.append(ConstraintTimer.spent / (seconds - ConstraintTimer.spent))
        held, free = (statistics.median(own[1:]) for own in times.values())
        print(
            f"{rows:3} rows, {'drawn ' if temperature else 'greedy'}  grammar {held:6.2f} ms a step"
            f"  free {free:6.2f} ms  ratio {held / free:.3f}"
            f"  the constraint's own time over the model's {statistics.median(shares[1:]):.3f}",
            flush=True,
        )


class ConstraintTimer:
    """Sums the seconds inside `Constraint.__call__`."""

    spent = 0.0
    inner = Constraint.__call__

    def __get__(self, constraint: Constraint, owner: type) -> Callable[..., torch.Tensor]:
        def call(*given: torch.Tensor) -> torch.Tensor:
            start = time.perf_counter()
            scores = ConstraintTimer.inner(constraint, *given)
            ConstraintTimer.spent += time.perf_counter() - start
            return scores

        return call


def load_random_base(base: str) -> Engine:
    """The base's architecture and tokenizer with new weights, large ones: its logits are far from even."""
    engine = Engine(base, runtime="transformers")
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in engine.model.model.parameters():
            weights.normal_(0.0, 0.3)
    return engine


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--questions", type=int, default=256)
    options.add_argument("--base", default=str(TINY))
    options.add_argument("--repeats", type=int, default=15)
    options.add_argument("--only", choices=["plans", "mask"])
    options.add_argument("--runtime", default="auto", choices=["auto", "transformers"])
    chosen = options.parse_args()
    engine = Engine(chosen.base, runtime=chosen.runtime)
    Constraint.__call__ = ConstraintTimer()  # type: ignore[assignment, method-assign]
    if chosen.only in (None, "mask"):
        measure_mask(engine, list(islice(read_real_questions(), 32)), chosen.repeats)
    if chosen.only in (None, "plans"):
        asked = list(make_questions(chosen.questions))
        measure_plans("random weights", load_random_base(chosen.base), asked)
        measure_plans("the base", engine, asked)


if __name__ == "__main__":
    main()
