"""Pre-training of a small base that plans, judges and copies names, on a CPU: the pre-trained MiniLM as a prefix
language model (`revelator.prefix_lm`).

With another `base` than `minilm` it goes on from a base of this kind, as a run of its own: its learning rate rises and
falls anew.

Design notes, each with its number:
* On a core with AVX512-BF16, `precision: bf16`: passes under bf16 autocast over the fp32 weights, 0.43 s of processor
  time for the loss of 2,880 positions of MiniLM against 0.74 s in fp32 (one thread).
* Muon (fp32) on the matrices, AdamW on embeddings and norms. MiniLM's word and position embeddings stay as they are.
* Completions alone are predicted, so only their positions pass the output layer (30,522 words).
* Rows are prompt + completion of the instruction sets (entity names substituted by the set's builder, so that structure
  and not names is learnt).
* The learning rate warms up for 2 % and falls linearly to 5 %; progress is the larger of
  step/`steps` and elapsed/`minutes`.
* A checkpoint every `save_minutes`; a killed run goes on from it with --resume.
"""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
import transformers
from rich.console import Console
from transformers import AutoConfig, PreTrainedTokenizerFast

from revelator.artifact import (
    BASE,
    digest_base,
    explain_full_disk,
    find_base,
    list_learned_tasks,
    read_base_fingerprints,
)
from revelator.errors import ArtifactError
from revelator.files import sha256_file, stage_folder
from revelator.fingerprints import Fingerprints
from revelator.folders import MANIFEST
from revelator.minilm import NAME as MINILM
from revelator.prefix_lm.model import PrefixLMConfig, PrefixLMForCausalLM, load_minilm_tokenizer, start_from_minilm
from revelator.rows import SET, Row, read_split, verify_set
from revelator.tasks import TASKS
from training.checkpoints import (
    clear_work,
    find_checkpoint,
    find_interrupted_run,
    identify_run,
    load_state,
    lock_work,
    record_run,
    save_state,
)
from training.config import PretrainConfig
from training.mixture import (
    WIDTHS,
    WeightedTokens,
    batch_rows,
    mix_rows,
    sample_training_rows,
)

LEARNING_RATE = 2e-3
WRITTEN = 320  # tokens that a completion may have when it is scored
TOKENIZER = "tokenizer"  # in the folder of checkpoints

console = Console(stderr=True)


def train(config: PretrainConfig, *, resume: bool) -> dict:
    """The whole stage. Returns `base` (its folder), `steps`, `tokens` and `exact`, the scores of dev rows by task."""
    assert config.sets and config.out
    transformers.logging.disable_progress_bar()
    base = None if config.starts_from_minilm else find_base(config.base)
    manifests = [verify_set(folder) for folder in config.sets]
    identity = identify_run(
        config,
        base_digest=digest_base(base) if base else "",  # that of MiniLM is the one that `fetch_minilm` checks
        data_digest=" ".join(manifest["digest"] for manifest in manifests),
    )
    torch.set_num_threads(config.threads or torch.get_num_threads())
    with lock_work(config.work, "writer"), explain_full_disk(config.work):
        interrupted = resume and find_interrupted_run(config.work, identity) is not None
        checkpoint = find_checkpoint(config.work) if interrupted else None
        if checkpoint is None:
            clear_work(config.work)
            record_run(config.work, "", identity)
        tested = [folder for folder, manifest in zip(config.sets, manifests, strict=True) if manifest["records"]["dev"]]
        dev = [row for folder in tested for row in read_split(folder, "dev")]
        return _pretrain(config, config.out, base, checkpoint, dev)


def _pretrain(config: PretrainConfig, out: Path, base: Path | None, checkpoint: Path | None, dev: list[Row]) -> dict:
    """Pre-trains from `checkpoint`, `base` or MiniLM; the base so far is at `out` whenever a checkpoint is written.
    `dev` is what it is scored on."""
    torch.manual_seed(config.seed)
    random = Random(config.seed)
    sets = sample_training_rows(config.sets, config.shares, config.rows, random)
    Random(1).shuffle(dev)
    tokenizer = _prepare_tokenizer(config, base, checkpoint)
    rows = mix_rows(sets, tokenizer, shares=config.shares, total=config.rows, random=random, warn=console.print)
    mean = np.mean([len(row.tokens) for row in rows])
    console.print(
        f"{sum(map(len, sets)):,} training and {len(dev):,} dev rows; mixture {len(rows):,}, {mean:.0f} tokens"
    )
    del sets  # gigabytes, which the steps do not need
    model = load_prefix_lm(base) if base else start_from_minilm(tokenizer)
    seen = read_base_fingerprints(base) if base else Fingerprints(unknown=(MINILM,))
    for folder in config.sets:
        seen |= Fingerprints.read(folder, SET)
    trained = TrainingState(model, make_optimizers(model))
    stream = batch_rows(rows, WIDTHS, config.batch_tokens, random)
    if checkpoint:
        console.print(f"going on from {checkpoint}", highlight=False, soft_wrap=True)
        trained.load(checkpoint)
        for _ in range(trained.step):
            next(stream)

    def save(**figures: object) -> None:
        trained.save(config.work)
        save_base(model, tokenizer, out, _describe(config, trained, base) | figures, seen)

    for saving in _run_steps(config, trained, stream, tokenizer.pad_token_id):
        if saving:
            save()
            console.print({"step": trained.step, "exact": score_tasks(model, tokenizer, dev, each=50)})
    scores = score_tasks(model, tokenizer, dev, each=200)
    save(exact=scores, n=200)
    return {"base": str(out), "steps": trained.step, "tokens": trained.tokens, "exact": scores}


def _run_steps(
    config: PretrainConfig, trained: TrainingState, stream: Iterable[list[WeightedTokens]], pad: int
) -> Iterable[bool]:
    """Takes one optimizer step after another to the end of the run; yields whether a checkpoint is due."""
    begun, saved, smooth = time.monotonic() - trained.seconds, trained.seconds, None
    for batch in stream:
        progress = max(trained.step / config.steps, trained.seconds / 60 / config.minutes)
        if progress >= 1:
            return
        with torch.autocast("cpu", torch.bfloat16, enabled=config.precision == "bf16"):
            loss = compute_completion_loss(trained.model, *collate(batch, pad))
        trained.update(loss, config.rate * schedule_rate(max(progress, 1e-3)))
        trained.step, trained.tokens = trained.step + 1, trained.tokens + sum(len(row.tokens) for row in batch)
        trained.seconds = time.monotonic() - begun
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        if trained.step % 20 == 0:
            console.print(
                f"{progress:6.1%} step {trained.step} loss {smooth:.3f} {trained.seconds / 60:.1f} min "
                f"{trained.tokens / trained.seconds:,.0f} tok/s"
            )
        is_due = trained.seconds - saved > config.save_minutes * 60
        saved = trained.seconds if is_due else saved
        yield is_due


def _prepare_tokenizer(config: PretrainConfig, base: Path | None, checkpoint: Path | None) -> PreTrainedTokenizerFast:
    """The tokenizer of the checkpoint, of `base` or of MiniLM."""
    folder = config.work / TOKENIZER
    if checkpoint is None:
        shutil.rmtree(folder, ignore_errors=True)
        own = PreTrainedTokenizerFast.from_pretrained(base) if base else load_minilm_tokenizer()
        own.save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def load_prefix_lm(base: Path) -> PrefixLMForCausalLM:
    """Loads a base in fp32. Raises ArtifactError when it is no prefix language model."""
    if not isinstance(AutoConfig.from_pretrained(base, trust_remote_code=False), PrefixLMConfig):
        raise ArtifactError(
            "pre-training goes on from a prefix language model, and this base is none",
            where=str(base),
            hint="give `minilm`, `mini`, or a base that `revelator train pretrain` made",
        )
    return PrefixLMForCausalLM.from_pretrained(base, dtype=torch.float32, use_safetensors=True)


def _describe(config: PretrainConfig, trained: TrainingState, base: Path | None) -> dict[str, Any]:
    """Describes the run for the manifest."""
    taught = {task for task in TASKS if config.shares.get(task)}
    return {
        "tasks": sorted(taught | list_learned_tasks(base) if base else taught),
        "data": {folder.name: sha256_file(folder / MANIFEST) for folder in config.sets},
        "machine": f"{torch.get_num_threads()} threads, {platform.machine()}",
        "seed": config.seed,
        "steps": trained.step,
        "tokens": trained.tokens,
        "minutes": trained.seconds / 60,
    }


@dataclass
class TrainingState:
    """What a checkpoint holds: all that a killed run needs to continue, except the order of rows, which the seed
    gives."""

    model: PrefixLMForCausalLM
    steppers: list[torch.optim.Optimizer]
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def save(self, work: Path) -> None:
        state: dict[str, Any] = {"model": self.model.state_dict(), "steppers": [s.state_dict() for s in self.steppers]}
        save_state(work, self.step, state | {"step": self.step, "tokens": self.tokens, "seconds": self.seconds})

    def load(self, checkpoint: Path) -> None:
        state = load_state(checkpoint)
        self.model.load_state_dict(state["model"])
        for stepper, saved in zip(self.steppers, state["steppers"], strict=True):
            stepper.load_state_dict(saved)
        self.step, self.tokens, self.seconds = state["step"], state["tokens"], state["seconds"]

    def update(self, loss: torch.Tensor, scale: float) -> None:
        """Takes one optimizer step at `scale` of the full learning rate."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for stepper in self.steppers:
            for group in stepper.param_groups:
                group["lr"] = LEARNING_RATE * scale
            stepper.step()
            stepper.zero_grad(set_to_none=True)


def collate(rows: list[WeightedTokens], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pads tokens and weights, (batch, width) each, on the right to the narrowest width that fits."""
    width = next(w for w in WIDTHS if max(len(r.tokens) for r in rows) <= w)
    tokens = np.full((len(rows), width), pad, np.int64)
    weights = np.zeros((len(rows), width), np.float32)
    for i, row in enumerate(rows):
        tokens[i, : len(row.tokens)] = row.tokens
        weights[i, : len(row.tokens)] = row.weights
    return torch.from_numpy(tokens), torch.from_numpy(weights)


def compute_completion_loss(model: PrefixLMForCausalLM, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Computes the weighted mean cross-entropy of the tokens that have a weight. Padding is on the right, and no
    completion sees it."""
    learnt = weights[:, 1:] > 0
    hidden = model.encode(tokens[:, :-1], use_cache=False).last_hidden_state[learnt]
    logits, gold, weighted = model.project(hidden).float(), tokens[:, 1:][learnt], weights[:, 1:][learnt]
    losses = torch.nn.functional.cross_entropy(logits, gold, reduction="none")
    return (losses * weighted).sum() / weighted.sum()


def make_optimizers(model: Any) -> list[torch.optim.Optimizer]:
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in trained if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in trained if p.ndim != 2 or "embed" in name]
    return [
        Muon(matrices, lr=LEARNING_RATE),
        torch.optim.AdamW(others, lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def schedule_rate(progress: float) -> float:
    """Returns the share of the full learning rate at a share of the run."""
    return min(progress / 0.02, 1.0) * (1.0 - 0.95 * progress)


@torch.no_grad()
def score_exact(model: Any, tokenizer: PreTrainedTokenizerFast, rows: list[Row]) -> float:
    """Share of rows whose greedy completion equals the gold word for word, as the tokenizer spells both."""
    model.eval()
    right = 0
    for start in range(0, len(rows), 50):
        part = rows[start : start + 50]
        inputs = tokenizer([r.prompt for r in part], return_tensors="pt", padding=True)
        width = inputs["input_ids"].shape[1]
        room = min(WRITTEN, model.config.max_position_embeddings - width)  # a model at its beginning does not end
        outputs = model.generate(**inputs, max_new_tokens=room, do_sample=False)
        texts = tokenizer.batch_decode(outputs[:, width:], skip_special_tokens=True)
        gold = tokenizer([r.completion for r in part], add_special_tokens=False)["input_ids"]
        right += sum(text == own for text, own in zip(texts, tokenizer.batch_decode(gold), strict=True))
    model.train()
    return right / len(rows)


def score_tasks(model: Any, tokenizer: PreTrainedTokenizerFast, dev: list[Row], each: int) -> dict[str, float]:
    """Computes `score_exact` on up to `each` dev rows of every task."""
    chosen = {task: [row for row in dev if row.task == task][:each] for task in TASKS}
    return {task: score_exact(model, tokenizer, rows) for task, rows in chosen.items() if rows}


def save_base(
    model: Any, tokenizer: PreTrainedTokenizerFast, out: Path, card: dict, fingerprints: Fingerprints
) -> None:
    """Saves a base: config, tokenizer, safetensors in bf16, what it has seen; the manifest holds the run's figures."""
    with stage_folder(out) as stage:
        half: Any = deepcopy(model)
        half.to(torch.bfloat16).save_pretrained(stage)
        tokenizer.save_pretrained(stage)
        fingerprints.write(stage)
        BASE.write_manifest(stage, card)


# Muon


COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # quintic that pushes every singular value towards 1
NEWTON_SCHULZ_STEPS = 5


def orthogonalise(matrix: torch.Tensor) -> torch.Tensor:
    """Makes the nearest orthogonal matrix of a (rows, columns) matrix, roughly: its singular values land in 0.7-1.2."""
    x = matrix.mT if matrix.size(0) > matrix.size(1) else matrix
    x = x / (x.norm() + 1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrix.size(0) > matrix.size(1) else x


class Muon(torch.optim.Optimizer):
    """For weight matrices only; `lr` is on AdamW's scale: an update has a root mean square of 0.2, as AdamW's have.

    `torch.optim.Muon` computes the same in bf16, which takes 4 times as long on a core without units for it, and 39
    times where oneDNN does not help."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.01):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrix in group["params"]:
                state = self.state[matrix]
                average = state.setdefault("average", torch.zeros_like(matrix))
                average.lerp_(matrix.grad, 1 - group["momentum"])
                update = orthogonalise(matrix.grad.lerp(average, group["momentum"]))
                size = 0.2 * max(matrix.shape) ** 0.5
                matrix.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"] * size)
