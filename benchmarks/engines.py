"""Engines for the revelator on a CPU, side by side in one run: a plan, plans together, ten relevance judgements.

    python benchmarks/engines.py [--adapter DIR] [--plans 8] [--rounds 5] [--threads 2] [--compiled]
    pip install -r benchmarks/engines.txt       adds CTranslate2

Every engine has the same base with the same adapter merged, in fp32. Plans are greedy and held to the grammar;
CTranslate2 offers no hook between two tokens, so it writes freely. Engines take turns in each round; the median and, as
other work on the machine only adds, the fastest round are printed, and whether the plans are those of transformers,
word for word.
`forward` is a bare loop over the transformers model without `generate`; `compiled` (needs a C++ compiler) the same with
`torch.compile` and a static cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer, DynamicCache, StaticCache

from revelator.artifact import base_folder
from revelator.plans.decoding import plan_grammar
from revelator.tasks import TASKS, RelevanceInput, TranslateInput
from serving.models.constrained import Constraint
from serving.models.engine import Engine
from serving.models.onnx_model import OnnxModel
from serving.models.transformers_model import TransformersModel

ASKED = [
    "In which country was the director of the film Tin Comet born?",
    "Who founded the company that distributed UHF?",
    "Are both Aruba and Prazeres located in the same country?",
    "When did the spouse of the author of Lantern Row die?",
    "Which film has the director who was born later, Glass Harbour or Paper Moons?",
    "What is the population of the city where Ines Calloway was educated?",
    "Who is the paternal grandfather of the composer of the song Hello Love?",
    "What year did the team that Tobias Renn plays for win the cup?",
]
DOCUMENTS = [
    (
        "Tin Comet",
        "Tin Comet is a 1987 film directed by Ines Calloway, shot in Tessaly and distributed by Harrow Pictures.",
    ),
    (
        "Ines Calloway",
        "Ines Calloway is a film director who was born in Port Velm and was educated at the school of Sarnath.",
    ),
    *(
        (f"Glass Harbour {n}", f"Glass Harbour {n} is a town in Orland that was founded in 1402, with {n}00 people.")
        for n in range(8)
    ),
]
ROOM = 96  # tokens of a plan at most
CONSTRAINT = Constraint, "__call__"
WIDTHS = 28, 18, 10, 20, 18, 14, 22


class Forward(TransformersModel):
    """A decode loop over `model.forward` and nothing else."""

    compiled = False

    @torch.inference_mode()
    def write(self, ids, mask, room, end, temperature, constraint, cancelled):  # type: ignore[no-untyped-def]
        rows, width = ids.shape
        if self.compiled:
            cache: Any = StaticCache(config=self.model.config, max_cache_len=192)
            mask = torch.cat([mask, torch.ones(rows, 192 - width, dtype=mask.dtype)], 1)
        else:
            cache = DynamicCache(config=self.model.config)
        positions = (mask[:, :width].cumsum(1) - 1).clamp(min=0)
        output = self.model(
            input_ids=ids,
            attention_mask=mask[:, :width],
            position_ids=positions,
            past_key_values=cache,
            logits_to_keep=1,
        )
        step = self.step if self.compiled else self.model
        written, ended, position = [ids[:, -1]], torch.zeros(rows, dtype=torch.bool), positions[:, -1:] + 1
        while True:
            scores = constraint(written[-1][:, None], output.logits[:, -1]) if constraint else output.logits[:, -1]
            token = scores.argmax(-1).masked_fill(ended, end)
            written.append(token)
            ended |= token == end
            if ended.all() or len(written) > room:
                return torch.stack(written[1:], 1).tolist()
            if not self.compiled:
                mask = torch.nn.functional.pad(mask, (0, 1), value=1)
            seen = mask[:, : width + len(written) - 1] if self.compiled else mask
            output = step(input_ids=token[:, None], attention_mask=seen, position_ids=position, past_key_values=cache)
            position = position + 1


class CTranslate:
    """The calls of `Engine` that are measured, on CTranslate2."""

    def __init__(self, engine: Engine, threads: int) -> None:
        import ctranslate2

        self.engine = engine
        with tempfile.TemporaryDirectory() as folder:
            engine.model.model.save_pretrained(Path(folder) / "merged")
            tokenizer = AutoTokenizer.from_pretrained(base_folder("tiny"))
            tokenizer.bos_token = tokenizer.unk_token = tokenizer.pad_token  # CTranslate2 wants names for both
            tokenizer.save_pretrained(Path(folder) / "merged")
            made = ctranslate2.converters.TransformersConverter(str(Path(folder) / "merged")).convert(f"{folder}/ct2")
            self.generator = ctranslate2.Generator(made, compute_type="float32", intra_threads=threads)

    def _tokens(self, prompts: Sequence[str]) -> list[list[str]]:
        return [self.engine.tokenizer.convert_ids_to_tokens(ids) for ids in self.engine.tokenizer(prompts)["input_ids"]]

    def generate(self, prompts: Sequence[str], temperature: float, room: int, grammars: object) -> list[Any]:
        results = self.generator.generate_batch(
            self._tokens(prompts), max_length=room, include_prompt_in_result=False, sampling_topk=1
        )
        return [
            self.engine._written([*result.sequences_ids[0], self.engine.tokenizer.eos_token_id]) for result in results
        ]

    def label_probabilities(self, prompts: Sequence[str], labels: Sequence[str]) -> list[dict[str, float]]:
        rows = self._tokens(prompts)
        logits = np.array(self.generator.forward_batch(rows, return_log_probs=False))
        first = [self.engine._first_token(label) for label in labels]
        scores = torch.tensor(np.stack([logits[i, len(row) - 1, first] for i, row in enumerate(rows)]))
        return [dict(zip(labels, row, strict=True)) for row in scores.softmax(-1).tolist()]


def engines(adapter: Path | None, threads: int, compiled: bool) -> dict[str, Any]:
    def loaded(**options: Any) -> Engine:
        return Engine("tiny", adapter, threads=threads, **options)

    forward = loaded(runtime="transformers")
    forward.model = Forward(forward.model.model)
    found: dict[str, Any] = {
        "transformers": loaded(runtime="transformers"),
        "transformers, static cache": loaded(runtime="transformers", cache="static"),
        "transformers, forward": forward,
    }
    if compiled:
        own = loaded(runtime="transformers")
        own.model = Forward(own.model.model)
        own.model.compiled, own.model.step = True, torch.compile(own.model.model)  # type: ignore[attr-defined]
        found["transformers, compiled"] = own
    try:
        found["CTranslate2"] = CTranslate(found["transformers"], threads)
    except ImportError:
        print("CTranslate2 is not installed: pip install -r benchmarks/engines.txt")
    return found | {"ONNX Runtime": loaded(runtime="onnx")}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--adapter", type=Path)
    options.add_argument("--plans", type=int, default=8, help="plans one at a time, in a round")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--threads", type=int, default=os.cpu_count())
    options.add_argument("--compiled", action="store_true")
    chosen = options.parse_args()
    plans = [TASKS["translate_bnf"].render(TranslateInput(question)) for question in ASKED * 2]
    judged = [TASKS["relevance"].render(RelevanceInput(ASKED[0], title, text)) for title, text in DOCUMENTS]
    grammars = [plan_grammar()] * len(plans)
    found = engines(chosen.adapter, chosen.threads, chosen.compiled)
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in found}
    texts, tokens, probabilities = {}, {}, {}
    for number in range(chosen.rounds + 1):  # the first warms up
        for name, engine in found.items():
            start = time.perf_counter()
            written = [engine.generate([prompt], 0.0, ROOM, grammars[:1])[0] for prompt in plans[: chosen.plans]]
            alone = time.perf_counter()
            engine.generate(plans, 0.0, ROOM, grammars)
            together = time.perf_counter()
            answers = engine.label_probabilities(judged, ("yes", "no"))
            ten = time.perf_counter()
            texts[name], tokens[name] = [row.text for row in written], sum(row.tokens for row in written)
            probabilities[name] = np.array([row["yes"] for row in answers])
            if number:
                spent = (alone - start) / chosen.plans, (together - alone) / len(plans), ten - together
                times[name].append(tuple(seconds * 1e3 for seconds in spent))
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {chosen.threads} threads, load {os.getloadavg()[0]:.1f};"
        f" n = {chosen.rounds} rounds of {chosen.plans} plans alone ({tokens['transformers']} tokens),"
        f" {len(plans)} together, ten judgements; median (fastest)\n"
    )
    heads = "ms a plan", "tokens/s", f"ms a plan of {len(plans)}", "ms for ten", "plans alike", "probabilities within"
    print("".join(f"{head:>{width}}" for head, width in zip(("", *heads), WIDTHS, strict=True)))
    for name, own in times.items():
        alone, together, ten = zip(*own, strict=True)
        rate = tokens[name] / chosen.plans / statistics.median(alone) * 1e3
        alike = sum(map(str.__eq__, texts[name], texts["transformers"]))
        off = np.abs(probabilities[name] - probabilities["transformers"]).max()
        cells = name, both(alone), f"{rate:.0f}", both(together), both(ten), f"{alike} of {chosen.plans}", f"{off:.0e}"
        print("".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)))
    print(f"\nms of a plan alone, n = {chosen.rounds}{'passes':>9}{'mask':>14}{'the rest':>14}{'all':>14}")
    for name in ("transformers", "ONNX Runtime"):
        print(f"{name:22}{shares(found[name], plans[: chosen.plans], chosen.rounds)}")


def spent_in(owner: Any, name: str, work: Callable[[], Any]) -> float:
    """Milliseconds that `work` spends inside the function `name` of `owner`."""
    inner, total = getattr(owner, name), 0.0

    @wraps(inner)
    def clocked(*values: Any, **named: Any) -> Any:
        nonlocal total
        start = time.perf_counter()
        try:
            return inner(*values, **named)
        finally:
            total += time.perf_counter() - start

    setattr(owner, name, clocked)
    try:
        work()
    finally:
        setattr(owner, name, inner)
    return total * 1e3


def shares(engine: Engine, prompts: Sequence[str], rounds: int) -> str:
    """Where the milliseconds of plans go, in the median round: passes of the model, the grammar's mask, the rest."""

    def work() -> None:
        for prompt in prompts:
            engine.generate([prompt], 0.0, ROOM, [plan_grammar()])

    passes = (engine.model, "run") if isinstance(engine.model, OnnxModel) else (engine.model.model, "forward")
    inside = [statistics.median(spent_in(*place, work) for _ in range(rounds)) for place in (passes, CONSTRAINT)]
    whole = statistics.median(spent_in(engine, "generate", work) for _ in range(rounds))
    cells = [value / len(prompts) for value in (*inside, whole - sum(inside), whole)]
    return "".join(f"{cell:14.1f}" for cell in cells)


def both(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f})"


if __name__ == "__main__":
    main()
