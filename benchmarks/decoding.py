"""Constrained decoding: is every plan valid, and what does the mask cost; label tasks: what do ten documents cost.

    python benchmarks/decoding.py [--questions 1000] [--base tiny] [--only plans|mask|labels]

`plans` asks a randomly initialised model of the base's architecture and the base itself for a plan of each question,
greedily and at temperature 1, and counts what parses and checks (`scoped`). A quarter of the questions each: MuSiQue's
own (below REVELATOR_DATA; without it, the world's), texts of `+ * ( ) { } "` and words, 10 KB, empty. `mask` times the
same batches with and without a grammar, in turn, over the same number of tokens. `labels` times judging ten documents
beside two, packed and (as `each`) a row a prompt.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch

from revelator.errors import ExpressionError
from revelator.language import check, parse
from revelator.language.decoding import plan_grammar
from revelator.tasks import TASKS, RelevanceInput, TranslateInput
from serving.engine import Engine
from serving.protocols import Completion
from serving.revelator_model import complete

SIGNS = [*'+*(){}"', "×", "\\", "{x}", "{a b}", "(+)", '("', "who", "is", "the", "film", "1997", "é", "电影"]
BATCH = 32
TOKENS = 96  # of a plan; gold plans of the public sets have 15 to 80
DOCUMENTS = [
    ("Tin Comet", "It is a film."),
    ("Ada Quill", "She wrote it."),
    ("Port Velm", "A harbour town."),
    ("Sarnath", "A city in Orland."),
    ("Orland", "A country."),
    ("Lantern Row", "A 1987 film."),
    ("Quill", "A feather."),
    ("Tessaly", "A river."),
    ("Tobias Renn", "He directed it."),
    ("Harrow", "A company."),
]
ASKED = (
    "In which country was the director of the film that the founder of Harrow Pictures produced in 1987 born, and when"
    " did he die?"
)


def questions(count: int, seed: int = 7) -> Iterator[str]:
    """A quarter each: real ones, ones full of signs, 10 KB long ones, empty ones."""
    draw = random.Random(seed)
    real = list(_real())
    for number in range(count):
        kind = number % 4
        if kind == 0:
            yield draw.choice(real)
        elif kind == 1:
            yield draw.choice(["", " "]).join(draw.choices(SIGNS, k=draw.randint(1, 60)))
        elif kind == 2:
            yield " ".join(draw.choices(["who", "the", "film", "aaaaaaaaaaaa", "(1997)", '"x"'], k=4000))[:10_240]
        else:
            yield ""


def _real() -> Iterator[str]:
    file = Path(os.environ.get("REVELATOR_DATA", "../shared/data")) / "musique" / "musique_decomposed.jsonl.gz"
    if file.exists():
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            yield from (json.loads(line)["question"] for line in islice(lines, 1000))
    else:
        yield from (ASKED, "Who founded the company that distributed UHF?", "Is Aruba larger than Prazeres?")


def valid(completion: Completion) -> bool:
    try:
        return not check(parse(completion.text))
    except ExpressionError:
        return False


def measure_plans(name: str, engine: Engine, asked: Sequence[str]) -> None:
    prompts = [TASKS["translate_bnf"].render(TranslateInput(question)) for question in asked]
    for decoding in ("grammar", "free"):
        start, done = time.perf_counter(), []
        for at in range(0, len(prompts), BATCH):
            for temperature, own in ((0.0, prompts[at : at + BATCH : 2]), (1.0, prompts[at + 1 : at + BATCH : 2])):
                fitting = own if decoding == "grammar" else [p for p in own if len(p) < 4000]  # free refuses the others
                done += complete(engine, "translate_bnf", fitting, temperature, TOKENS, decoding)
        good, degraded = sum(map(valid, done)), sum(c.degraded for c in done)
        print(
            f"{name:16} {decoding:8} n={len(done):5}  parse and check {good / len(done):7.2%}  degraded {degraded:4}"
            f"  closed by force {sum(c.tokens_out > TOKENS - 20 for c in done):4}  {time.perf_counter() - start:6.0f} s",
            flush=True,
        )


def measure_mask(engine: Engine, asked: Sequence[str], repeats: int) -> None:
    """Forced to the same length: without an end token, `free` writes TOKENS tokens; the grammar's are counted."""
    prompts = [TASKS["translate_bnf"].render(TranslateInput(question)) for question in asked]
    for rows in (1, 8, 32):
        batch, times = (prompts * rows)[:rows], {"grammar": [], "free": []}
        for _ in range(repeats):
            for decoding, own in times.items():
                grammars = [plan_grammar()] * rows if decoding == "grammar" else None
                start = time.perf_counter()
                written = engine.generate(batch, 1.0, TOKENS, grammars)
                own.append((time.perf_counter() - start) * 1e3 / max(row.tokens for row in written))
        del times["grammar"][0], times["free"][0]
        held, free = (statistics.median(own) for own in times.values())
        print(f"{rows:3} rows  grammar {held:6.2f} ms a step  free {free:6.2f} ms  ratio {held / free:.3f}", flush=True)


def measure_labels(engine: Engine, repeats: int) -> None:
    task = TASKS["relevance"]
    labels = task.labels or ()
    for words in (1, 8, 30):
        documents = [(title, " ".join([text] * words)) for title, text in DOCUMENTS]
        prompts = [task.render(RelevanceInput(ASKED, title, text)) for title, text in documents]
        lengths = engine.count_tokens(prompts)
        times: dict[tuple[str, int], list[float]] = {}
        for _ in range(repeats):
            for count in (2, 10):
                start = time.perf_counter()
                engine.label_probabilities(prompts[:count], labels)
                times.setdefault(("packed", count), []).append((time.perf_counter() - start) * 1e3)
                start = time.perf_counter()
                for prompt in prompts[:count]:
                    engine.label_probabilities([prompt], labels)
                times.setdefault(("each", count), []).append((time.perf_counter() - start) * 1e3)
        medians = {key: statistics.median(own[1:]) for key, own in times.items()}
        for way in ("packed", "each"):
            two, ten = medians[way, 2], medians[way, 10]
            print(f"{way:6} prompts of {min(lengths)}-{max(lengths)} tokens: 2 documents {two:7.1f} ms"
                  f"  10 documents {ten:7.1f} ms  ratio {ten / two:.2f}", flush=True)  # fmt: skip


def randomly_initialised(base: str) -> Engine:
    """The base's architecture and tokenizer with new weights, large ones: its logits are far from even."""
    engine = Engine(base)
    torch.manual_seed(0)
    with torch.no_grad():
        for weights in engine.model.parameters():
            weights.normal_(0.0, 0.3)
    return engine


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--questions", type=int, default=1000)
    options.add_argument("--base", default="tiny")
    options.add_argument("--repeats", type=int, default=15)
    options.add_argument("--only", choices=["plans", "mask", "labels"])
    chosen = options.parse_args()
    engine = Engine(chosen.base)
    if chosen.only in (None, "labels"):
        measure_labels(engine, chosen.repeats)
    if chosen.only in (None, "mask"):
        measure_mask(engine, list(islice(_real(), 32)), chosen.repeats)
    if chosen.only in (None, "plans"):
        asked = list(questions(chosen.questions))
        measure_plans("tiny", engine, asked)
        measure_plans("random weights", randomly_initialised(chosen.base), asked)


if __name__ == "__main__":
    main()
