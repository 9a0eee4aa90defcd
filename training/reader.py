"""Training of the reader: MiniLM with scores for tokens and windows, on rows for reading (`stage: reader`), on a CPU.

Design notes, each with its number (2 cores with AVX512-BF16, beside other work):
* MiniLM's embeddings stay as published (11.9 M of 22.7 M parameters): what is trained fits 21 MB in bf16, and a base on
  the same embeddings can share them.
* Passes under bf16 autocast over fp32 weights: 3,600 tokens/s against 1,660 in fp32 (16 windows of 192 tokens).
* A start and an end for each window, with the first token for no answer, learn within minutes; several places of one
  answer share the probability (the loss is that of their sum), which is how distant answers are learnt, too.
* The tags O, B and I of each token are learnt from lists alone, each token weighing alike. With tokens in and out of
  answers weighing alike, the commas and the "and" between items became parts of them: F1 of exact items .571 and
  .576 on dev rows of two worlds (400 each), .607 and .951 after 160 steps without those weights.
* Dev is judged with the weights as they are saved, in bf16, and products in fp32; served ones are of 8 bits.
* The order of windows is drawn from the seed, so that a resumed run ends where the killed one would have.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import mlflow
import numpy as np
import torch
import transformers
from rich.console import Console
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy, log_softmax
from transformers import BertConfig, BertModel

from revelator import registry
from revelator.artifact import explain_full_disk
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import sha256_file, stage_folder, write_bytes, write_json
from revelator.fingerprints import Fingerprints
from revelator.minilm import DIGESTS, HUB_ID, REVISION, TOKENIZER, WEIGHTS, fetch_minilm
from revelator.minilm import NAME as MINILM
from revelator.reading import (
    ANSWER_KINDS,
    BEGIN,
    END,
    INSIDE,
    LIST,
    OUTSIDE,
    READER,
    READER_WEIGHTS,
    START,
    Calibration,
    Reader,
    ReadingRow,
    ReadingTokenizer,
    open_folder,
    pad_windows,
)
from revelator.scores import ReadingScores, fit_logistic, score_outcomes
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
from training.config import ReaderConfig
from training.reading_examples import Example, draw_batches, make_examples, read_train_and_dev
from training.tokens import IGNORED
from training.tracking import log_configuration, open_tracked_run

HEAD_RATE = 5.0  # times the learning rate, for the scores that begin from nothing
WARMUP = 0.05
RIDGE = 1e-2  # keeps the weight of separable rows finite

console = Console(stderr=True)


class ReaderModel(torch.nn.Module):
    """MiniLM with five scores for each token and one of each kind for the window (`revelator.reading`)."""

    def __init__(self, encoder: BertModel) -> None:
        super().__init__()
        self.encoder = encoder
        self.encoder.embeddings.requires_grad_(False)
        width = encoder.config.hidden_size
        self.tokens = torch.nn.Linear(width, INSIDE + 1)
        self.kinds = torch.nn.Linear(width, len(ANSWER_KINDS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of tokens (windows, tokens, 5) and of kinds (windows, 5), in fp32."""
        states = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state.float()
        return self.tokens(states), self.kinds(states[:, 0])

    def list_trained(self) -> dict[str, torch.nn.Parameter]:
        return {name: value for name, value in self.named_parameters() if value.requires_grad}


def train(config: ReaderConfig, *, resume: bool) -> dict:
    """Trains, calibrates and saves a reader. Returns `reader` (its folder), `steps`, `run_id`, `tracking_uri` and
    `figures`: the scores of dev by file."""
    assert config.rows and config.out
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(config.threads or torch.get_num_threads())
    minilm = fetch_minilm()
    train_rows, dev_rows = read_train_and_dev(config)
    digests = {path.name: sha256_file(path) for path in config.rows}
    identity = identify_run(config.model_copy(update={"rows": ()}), **digests)  # the digests stand for the files
    uri = registry.connect()
    with lock_work(config.work, "writer"), explain_full_disk(config.work), registry.store_errors():
        run_id = find_interrupted_run(config.work, identity) if resume else None
        checkpoint = find_checkpoint(config.work) if run_id else None
        if checkpoint is None:
            clear_work(config.work)
        with open_tracked_run(run_id, config.out.name) as run:
            record_run(config.work, run, identity)
            if run_id is None:
                counts = {f"train.{name}": len(rows) for name, rows in train_rows.items()}
                counts |= {f"dev.{name}": len(rows) for name, rows in dev_rows.items()}
                log_configuration(config, counts, {f"digest.{name}": digest for name, digest in digests.items()})
            torch.manual_seed(config.seed)
            model = load_model(minilm)
            if config.reader:
                load_trained(model, config.reader)
            seen = list_seen(config, train_rows)
            tokenizer = ReadingTokenizer(minilm / TOKENIZER)
            _run_steps(config, model, tokenizer, train_rows, checkpoint)
            round_weights(model)
            figures, calibration = score_and_calibrate(model, tokenizer, dev_rows)
            shown = {name: score.to_json() for name, score in figures.items()}
            save_reader(config, model, calibration, shown, seen, run)
            mlflow.log_metrics(_flatten_figures(figures), step=config.steps)
            mlflow.log_artifacts(str(config.out), "reader")
    return {
        "reader": str(config.out),
        "steps": config.steps,
        "run_id": run,
        "tracking_uri": uri,
        "figures": shown,
    }


# Steps


def _run_steps(
    config: ReaderConfig,
    model: ReaderModel,
    tokenizer: ReadingTokenizer,
    rows: dict[str, list[ReadingRow]],
    checkpoint: Path | None,
) -> None:
    """Takes the steps that are left, and writes a checkpoint every `save_every` of them."""
    sources = []
    for name, each in rows.items():
        examples, share = (
            [example for row in each for example in make_examples(row, tokenizer)],
            config.shares.get(name, 1.0),
        )
        sources.append((share, [example for example in examples if example.kind != LIST]))
        sources.append((share * config.lists, [example for example in examples if example.kind == LIST]))
    windows = sum(len(examples) for _, examples in sources)
    console.print(f"{windows:,} windows; {config.steps:,} steps of at most {config.batch_tokens:,} tokens")
    if not any(share for share, _ in sources):
        raise ConfigError("no file has a share above zero", where="shares", hint="raise one")
    stream = draw_batches(sources, config.batch_tokens, Random(config.seed))
    optimizer = make_optimizer(model, config.learning_rate)
    done = 0
    if checkpoint:
        console.print(f"going on from {checkpoint}", highlight=False, soft_wrap=True)
        state = load_state(checkpoint)
        model.load_state_dict(state["model"], strict=False)  # it has no embeddings: they stay as published
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
        for _ in range(done):
            next(stream)
    model.train()
    began, begun, smooth = time.monotonic(), done, math.nan
    for step in range(done + 1, config.steps + 1):
        torch.manual_seed(config.seed * 1_000_003 + step)  # of dropout: a resumed run draws what the killed one would
        for group in optimizer.param_groups:
            group["lr"] = group["full"] * schedule_rate(step / config.steps)
        loss = _take_step(model, optimizer, next(stream), config.precision == "bf16")
        if not math.isfinite(loss):
            raise ConfigError(f"the training diverged at step {step}", hint="lower learning_rate and start anew")
        smooth = loss if math.isnan(smooth) else 0.95 * smooth + 0.05 * loss
        if step % config.log_every == 0:
            speed = (time.monotonic() - began) / (step - begun)
            console.print(f"step {step}/{config.steps}  loss {smooth:.3f}  {speed:.2f} s a step", highlight=False)
            mlflow.log_metrics({"train/loss": smooth, "train/rate": optimizer.param_groups[0]["lr"]}, step=step)
        if step % config.save_every == 0 and step < config.steps:
            trained = {name: value.detach() for name, value in model.list_trained().items()}
            save_state(config.work, step, {"model": trained, "optimizer": optimizer.state_dict(), "step": step})


def make_optimizer(model: ReaderModel, rate: float) -> torch.optim.AdamW:
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, value in model.list_trained().items():
        full = rate if name.startswith("encoder.") else rate * HEAD_RATE
        groups.setdefault((full, 0.01 if value.ndim == 2 else 0.0), []).append(value)
    return torch.optim.AdamW([{"params": p, "full": full, "weight_decay": d} for (full, d), p in groups.items()])


def schedule_rate(progress: float) -> float:
    """Share of the full learning rate at a share of the run: up for a twentieth, then down to nothing."""
    return min(progress / WARMUP, (1 - progress) / (1 - WARMUP))


def _take_step(model: ReaderModel, optimizer: torch.optim.AdamW, batch: list[Example], use_bf16: bool) -> float:
    ids, mask, types = map(torch.from_numpy, pad_windows([example.window for example in batch]))
    with torch.autocast("cpu", torch.bfloat16) if use_bf16 else nullcontext():
        scores, kinds = model(ids, mask, types)
    loss = compute_loss(scores.float(), kinds.float(), batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.list_trained().values(), 1.0)
    optimizer.step()
    return loss.item()


def compute_loss(scores: torch.Tensor, kinds: torch.Tensor, batch: Sequence[Example]) -> torch.Tensor:
    """The mean over the windows of the losses of kind and place, and over the tokens of lists that of their tags."""
    width = scores.shape[1]
    places = torch.zeros(2, len(batch), width, dtype=torch.bool)
    tags = torch.full((len(batch), width), IGNORED)
    readable = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, example in enumerate(batch):
        first, count = example.window.first, len(example.window.offsets)
        readable[row, 0] = True
        readable[row, first : first + count] = True
        for a, b in example.spans or ((0, 0),):
            places[START, row, a] = places[END, row, b] = True
        if example.kind == LIST:
            tags[row, first : first + count] = 0
            for a, b in example.spans:
                tags[row, a], tags[row, a + 1 : b + 1] = BEGIN - OUTSIDE, INSIDE - OUTSIDE
    loss = cross_entropy(kinds, torch.tensor([example.kind for example in batch]))
    for column, gold in ((START, places[START]), (END, places[END])):
        logs = log_softmax(scores[:, :, column].masked_fill(~readable, -1e4), 1)
        loss = loss - 0.5 * torch.logsumexp(logs.masked_fill(~gold, -1e4), 1).mean()
    if (tags != IGNORED).any():
        loss = loss + cross_entropy(scores[:, :, OUTSIDE:].flatten(0, 1), tags.flatten(), ignore_index=IGNORED)
    return loss


# Dev and the reader's folder


def score_and_calibrate(
    model: ReaderModel, tokenizer: ReadingTokenizer, rows: dict[str, list[ReadingRow]]
) -> tuple[dict[str, ReadingScores], Calibration]:
    """Scores of dev by file, and the calibration. It is fitted on the files that have rows with an answer and rows
    without one: the others would teach it to tell files from each other."""
    every = [row for each in rows.values() for row in each]
    reader = Reader(tokenizer, make_forward(model), Calibration())
    outcomes = reader.read_all([(row.question, [(row.title, row.passage)]) for row in every])
    both = [len({row.is_answerable for row in each}) == 2 for each in rows.values() for _ in each]
    pairs = [(o.margin, row.is_answerable) for o, row, is_used in zip(outcomes, every, both, strict=True) if is_used]
    calibration = Calibration()
    if pairs:
        calibration = calibrate(*zip(*pairs, strict=True))
    else:
        console.print("no dev file has rows with and without an answer: whether a passage answers is not calibrated")
    found = (replace(outcome, probability=calibration.estimate(outcome.margin)) for outcome in outcomes)
    figures = {name: score_outcomes(each, list(islice(found, len(each)))) for name, each in rows.items() if each}
    for name, score in figures.items():
        console.print(name, json.dumps(score.to_json()), highlight=False, soft_wrap=True)
    return figures, calibration


def calibrate(margins: Sequence[float], answerable: Sequence[bool]) -> Calibration:
    """Fits the logistic regression of `answerable` on margins. A larger margin never makes an answer less likely.

    Raises DataError for margins that are no numbers and for rows of one class.
    """
    x, y = np.array(margins, float), np.array(answerable, float)
    if count := int((~np.isfinite(x)).sum()):
        raise DataError(f"{count} of {len(x)} margins are no numbers: nothing can be calibrated on them")
    if len(set(y.tolist())) < 2:
        raise DataError("calibration needs rows with an answer and rows without one")
    return Calibration(*fit_logistic(np.clip(x, -50, 50), y, RIDGE))


def make_forward(model: ReaderModel) -> Any:
    """The network behind `revelator.reading.Forward`."""
    model.eval()

    @torch.inference_mode()
    def forward(ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, kinds = model(torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(types))
        return scores.numpy(), kinds.numpy()

    return forward


def load_model(minilm: Path) -> ReaderModel:
    """MiniLM as published, with scores that know nothing yet."""
    encoder = BertModel(BertConfig.from_pretrained(minilm), add_pooling_layer=False)
    weights = load_file(minilm / WEIGHTS)
    encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})
    return ReaderModel(encoder)


def load_trained(model: ReaderModel, folder: Path) -> None:
    """Puts the weights of a trained reader into the model. Raises ArtifactError where they are of another network."""
    open_folder(folder)
    weights = load_file(folder / READER_WEIGHTS)
    if weights.keys() != model.list_trained().keys():
        raise ArtifactError("the weights do not fit MiniLM", where=str(folder), hint="train the reader again")
    model.load_state_dict(weights, strict=False)


def round_weights(model: ReaderModel) -> None:
    """Gives the trained weights the values that they have when they are saved."""
    with torch.no_grad():
        for value in model.list_trained().values():
            value.copy_(value.to(torch.bfloat16))


def list_seen(config: ReaderConfig, rows: dict[str, list[ReadingRow]]) -> Fingerprints:
    """Questions and titles of the rows that train, and what the reader that the run goes on from has seen. Dev is
    chosen here and not when rows are built, so a folder of rows cannot know them."""
    drawn = [row for name, each in rows.items() if config.shares.get(name, 1.0) for row in each]
    seen = Fingerprints.of((row.question for row in drawn), (row.title for row in drawn if row.title))
    if config.reader:
        return seen | Fingerprints.read(config.reader, READER)
    return seen | Fingerprints(unknown=(MINILM,))


def save_reader(
    config: ReaderConfig,
    model: ReaderModel,
    calibration: Calibration,
    figures: dict,
    fingerprints: Fingerprints,
    run_id: str,
) -> None:
    """The reader's folder: what differs from MiniLM in bf16, what it has seen, figures, a card; the manifest holds the
    calibration."""
    assert config.out is not None
    with explain_full_disk(config.out), stage_folder(config.out) as stage:
        weights = {name: value.detach().to(torch.bfloat16) for name, value in model.list_trained().items()}
        save_file(weights, stage / READER_WEIGHTS)
        fingerprints.write(stage)
        write_json(stage / "figures.json", {"run_id": run_id, "dev": figures})
        write_bytes(stage / "config.yaml", config.to_yaml().encode())
        write_bytes(stage / "README.md", _write_card(config, figures).encode())
        READER.write_manifest(stage, {"calibration": asdict(calibration), "minilm": DIGESTS[WEIGHTS]})


def _write_card(config: ReaderConfig, figures: dict) -> str:
    lines = [
        "# Reader",
        "",
        f"Reads answers from passages: {HUB_ID} (revision {REVISION[:8]}, Apache-2.0)",
        "with scores for the start, the end and the tags O, B, I of each token, and for the kind of answer of each",
        "window. Only what differs from the published weights is here.",
        "",
        f"Trained for {config.steps:,} steps of at most {config.batch_tokens:,} tokens, seed {config.seed}"
        + (f", on from the reader {config.reader}." if config.reader else "."),
        "English, lower case; other scripts are read token by token as far as MiniLM's vocabulary goes.",
        "",
        "Figures on dev (articles that training has not read); EM and F1 by SQuAD's rule over the answerable rows:",
        "",
        "| file | n | EM | F1 | AUC, answerable | F1 of exact items of lists |",
        "|---|---|---|---|---|---|",
    ]
    for name, score in figures.items():
        values = (score[key] for key in ("em", "f1", "no_answer_auc", "span_f1"))
        shown = " | ".join("–" if value is None else f"{value:.3f}" for value in values)
        lines.append(f"| {name} | {score['n']} | {shown} |")
    return "\n".join([*lines, ""])


def _flatten_figures(figures: dict[str, ReadingScores]) -> dict[str, float]:
    flat = {f"dev/{name}/{key}": value for name, score in figures.items() for key, value in asdict(score).items()}
    return {name: value for name, value in flat.items() if math.isfinite(value)}
