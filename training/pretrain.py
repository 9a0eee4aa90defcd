"""Pre-trains the embedded base: a 6 M-parameter Llama that plans, judges and copies names, from scratch, on CPU.

    python -m training.pretrain --set runs/pretrain/set --text wiki_intros.jsonl.gz --out training/bases/tiny

`--base` goes on from a base that is there, as a run of its own: its learning rate rises and falls anew. With a `--rate`
of 0.25 the loss stood at 0.81 after 180 steps, at the full rate at 0.97.

Design notes, each with its number (2 cores at 2.5 GHz, AVX-512, no bf16 units):
* fp32 under torch.compile: 4,255 tokens/s against 2,194 eager and 869 in bf16 autocast (one run, beside
  other work). Shapes are fixed to a few widths, one compiled graph each.
* On a core with AVX512-BF16, `--precision bf16`: passes in bf16 over a copy of the fp32 weights, 2.2 s of processor
  time for 6,144 positions against 3.3 s in compiled fp32 (median of 4, beside other work); in
  another series 2.3 s compiled and 2.6 s not.
* Muon (fp32) on the matrices, AdamW on embeddings and norms.
* Rows are prompt + completion of the instruction sets (entity names substituted by the set's builder, so that structure
  and not names is learnt), running text, and drills that copy titles.
* The learning rate warms up for 2 % and falls linearly to 5 %; progress is the larger of step/--steps and
  elapsed/--minutes.
* A checkpoint every --save-minutes; a killed run goes on from it with --resume.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from revelator.files import sha256_file, staged_folder, write_json
from revelator.rows import Row, read_split
from revelator.tasks import TASKS
from training.mixture import WIDTHS, WeightedTokens, batch_rows, learn_tokenizer, mix_rows, read_articles

LEARNING_RATE = 2e-3

console = Console()


SHARES = {
    "translate_bnf": 0.52,
    "translate_art": 0.14,
    "translate_logic": 0.07,
    "refine": 0.06,
    "decompose": 0.03,
    "route": 0.03,
    "relevance": 0.10,
    "end": 0.02,
    "text": 0.01,
    "copy": 0.02,
}


def small_llama(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Width 256, 6 layers, 8 heads, tied embeddings: 5.9 M parameters, 11.8 MB in bf16."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=4096,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=8,
            num_key_value_heads=8,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic that pushes every singular value towards 1
NEWTON_SCHULZ_STEPS = 5


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """The nearest orthogonal matrix of a (rows, columns) matrix, roughly: its singular values land in 0.7-1.2."""
    x = matrix.mT if matrix.size(0) > matrix.size(1) else matrix
    x = x / (x.norm() + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrix.size(0) > matrix.size(1) else x


class Muon(torch.optim.Optimizer):
    """For weight matrices only; `lr` is on AdamW's scale: an update has a root mean square of 0.2, as AdamW's have."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                average = state.setdefault("average", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonal(matrix.grad.lerp(average, group["momentum"]))
                size = 0.2 * max(matrix.shape) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * size)


def collate(rows: list[WeightedTokens], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and weights, (batch, width) each, padded on the right to the narrowest width that fits."""
    width = next(w for w in WIDTHS if max(len(r.tokens) for r in rows) <= w)
    tokens = np.full((len(rows), width), pad, np.int64)
    weights = np.zeros((len(rows), width), np.float32)
    for i, row in enumerate(rows):
        tokens[i, : len(row.tokens)] = row.tokens
        weights[i, : len(row.tokens)] = row.weights
    return torch.from_numpy(tokens), torch.from_numpy(weights)


def weighted_loss(model: LlamaForCausalLM, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next token under the weights. Padding is on the right, so causal masking is enough."""
    logits = model(input_ids=tokens[:, :-1]).logits.float()
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    kept = weights[:, 1:].flatten()
    return (losses * kept).sum() / kept.sum()


def optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        Muon(matrices, lr=LEARNING_RATE),
        torch.optim.AdamW(others, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def rate(progress: float) -> float:
    """Share of the full learning rate at a share of the run."""
    return min(progress / 0.02, 1.0) * (1.0 - 0.95 * progress)


@torch.no_grad()
def exact(model: Any, tokenizer: PreTrainedTokenizerFast, examples: list[Row]) -> float:
    """Share of examples whose greedy completion equals the gold word for word."""
    model.eval()
    right = 0
    for start in range(0, len(examples), 50):
        part = examples[start : start + 50]
        inputs = tokenizer([e.prompt for e in part], return_tensors="pt", padding=True, add_special_tokens=False)
        outputs = model.generate(**inputs, max_new_tokens=320, do_sample=False)
        texts = tokenizer.batch_decode(outputs[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        right += sum(text == e.completion for text, e in zip(texts, part, strict=True))
    model.train()
    return right / len(examples)


def dev_scores(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, dev: list[Row], each: int
) -> dict[str, float]:
    picked = {task: [e for e in dev if e.task == task][:each] for task in TASKS}
    return {task: exact(model, tokenizer, examples) for task, examples in picked.items() if examples}


def save_base(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, out: Path, card: dict) -> None:
    """The base's folder: config, tokenizer, safetensors in bf16, and the run's figures in training.json."""
    with staged_folder(out) as stage:
        half: Any = deepcopy(model)
        half.to(torch.bfloat16).save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        write_json(stage / "training.json", card)


@dataclass
class Run:
    """What a checkpoint holds: all that a killed run needs to go on, save the data's order, which the seed gives."""

    model: LlamaForCausalLM
    steppers: list[torch.optim.Optimizer]
    passing: LlamaForCausalLM  # what batches pass through: the model itself, or its copy in bf16
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        state: dict[str, Any] = {"model": self.model.state_dict(), "steppers": [s.state_dict() for s in self.steppers]}
        state |= {"step": self.step, "tokens": self.tokens, "seconds": self.seconds}
        aside = path.with_suffix(".part")
        torch.save(state, aside)
        aside.replace(path)

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for stepper, saved in zip(self.steppers, state["steppers"], strict=True):
            stepper.load_state_dict(saved)
        self._copy_weights()
        self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]

    def update(self, loss: torch.Tensor, scale: float) -> None:
        """One optimizer step at `scale` of the full learning rate."""
        loss.backward()
        if self.passing is not self.model:
            for own, copy in zip(self.model.parameters(), self.passing.parameters(), strict=True):
                assert copy.grad is not None
                own.grad, copy.grad = copy.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for stepper in self.steppers:
            for group in stepper.param_groups:
                group["lr"] = LEARNING_RATE * scale
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        self._copy_weights()

    @torch.no_grad()
    def _copy_weights(self) -> None:
        if self.passing is not self.model:
            for own, copy in zip(self.model.parameters(), self.passing.parameters(), strict=True):
                copy.copy_(own)


@click.command(help=__doc__.split("\n\n")[0])
@click.option(
    "--set", "sets", multiple=True, required=True, type=click.Path(path_type=Path, exists=True),
    help="An instruction set; named twice, it counts twice.",
)  # fmt: skip
@click.option("--text", required=True, type=click.Path(path_type=Path, exists=True), help="JSONL corpus: title, text.")
@click.option("--out", required=True, type=click.Path(path_type=Path))
@click.option("--minutes", default=75.0, show_default=True, help="The run ends then, its learning rate fallen.")
@click.option("--steps", default=1_000_000, help="Or after this many steps.")
@click.option("--rows", "total", default=400_000, show_default=True, help="Rows drawn into the mixture.")
@click.option("--tokens", default=6144, show_default=True, help="Tokens a batch.")
@click.option("--rate", "peak", default=1.0, show_default=True, help="Highest learning rate, as a share of the usual.")
@click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True)
@click.option("--save-minutes", default=10.0, show_default=True)
@click.option("--work", default=Path("runs/pretrain"), type=click.Path(path_type=Path), help="Checkpoint, tokenizer.")
@click.option("--base", type=click.Path(path_type=Path, exists=True), help="Go on from this base, with its tokenizer.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in --work.")
@click.option("--seed", default=0)
def main(
    sets: tuple[Path, ...],
    text: Path,
    out: Path,
    minutes: float,
    steps: int,
    total: int,
    tokens: int,
    peak: float,
    precision: str,
    save_minutes: float,
    work: Path,
    base: Path | None,
    resume: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    random = Random(seed)
    work.mkdir(parents=True, exist_ok=True)
    by_set = [read_split(folder, "train") for folder in sets]
    train = [e for examples in by_set for e in examples]
    dev = [e for folder in sets for e in read_split(folder, "dev")]
    Random(1).shuffle(dev)
    articles = list(read_articles(text))
    if base:
        PreTrainedTokenizerFast.from_pretrained(base).save_pretrained(work / "tokenizer")
    elif not (work / "tokenizer").exists():
        learn_tokenizer(train, articles, Random(seed)).save_pretrained(work / "tokenizer")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(work / "tokenizer")
    rows = mix_rows(by_set, articles, tokenizer, shares=SHARES, total=total, random=random, warn=console.print)
    mean_length = np.mean([len(r.tokens) for r in rows])
    console.print(
        f"{len(train):,} training and {len(dev):,} dev rows; mixture {len(rows):,}, mean {mean_length:.0f} tokens"
    )

    model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32) if base else small_llama(tokenizer)
    half: Any = deepcopy(model)
    run = Run(model, optimizers(model), half.to(torch.bfloat16) if precision == "bf16" else model)
    stream = batch_rows(rows, WIDTHS, tokens, random)
    if resume:
        run.load(work / "checkpoint.pt")
        for _ in range(run.step):
            next(stream)
    data = {folder.name: sha256_file(folder / "manifest.json") for folder in sets}
    machine = f"{torch.get_num_threads()} threads, {platform.machine()}"

    def save(**figures: object) -> None:
        run.save(work / "checkpoint.pt")
        card = {"data": data, "text": text.name, "machine": machine, "seed": seed, "steps": run.step}
        save_base(model, tokenizer, out, card | {"tokens": run.tokens, "minutes": run.seconds / 60} | figures)

    loss_of = torch.compile(weighted_loss)
    begun, saved, smooth = time.monotonic() - run.seconds, run.seconds, None
    while (progress := max(run.step / steps, run.seconds / 60 / minutes)) < 1.0:
        batch = next(stream)
        loss = loss_of(run.passing, *collate(batch, tokenizer.pad_token_id))
        run.update(loss, peak * rate(max(progress, 1e-3)))
        run.step, run.tokens = run.step + 1, run.tokens + sum(len(r.tokens) for r in batch)
        run.seconds = time.monotonic() - begun
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if run.step % 20 == 0:
            pace = run.tokens / run.seconds
            console.print(
                f"{progress:6.1%} step {run.step} loss {smooth:.3f} {run.seconds / 60:.1f} min {pace:,.0f} tok/s"
            )
        if run.seconds - saved > save_minutes * 60:
            saved = run.seconds
            save()
            console.print({"step": run.step, "exact": dev_scores(model, tokenizer, dev, each=50)})
    scores = dev_scores(model, tokenizer, dev, each=200)
    save(exact=scores, n=200)
    console.print(scores)


if __name__ == "__main__":
    main()
