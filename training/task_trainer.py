"""TRL's trainer: on a CPU with a loss of completions alone, with a score of each task on dev rows, keeping the best.

Design notes:
* The loss is the token mean of the completions over the whole batch of a step, all processes and accumulated parts
  together, so their number changes nothing but rounding.
* On a GPU TRL's fused output layer computes it. Elsewhere that layer projects every position of every row, prompt and
  padding included; here only those that a completion's token follows: 1,483 tokens/s against 1,045 (CPU time of one
  thread, embedded base, three batches of 32 rows; `benchmarks/throughput.py` measures both).
* Dev rows are read in one pass, no text is generated: a row is right when each token of its completion is the most
  probable one after the gold ones before it, which is exactly when greedy decoding writes that completion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from trl import SFTTrainer

from revelator.files import staged_folder, write_json
from revelator.tasks import TASKS
from training.checkpoints import BEST
from training.tokens import IGNORED, TokenRow, first_token

SCORE = "score.json"


class TaskTrainer(SFTTrainer):
    """`dev` are the rows that scores are computed on; `work` is where the best adapter lies until the run is over."""

    model: Any  # PEFT's, over the base
    processing_class: Any  # the tokenizer

    def __init__(self, *, dev: Sequence[TokenRow], work: Path, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.dev = sorted(dev, key=lambda row: len(row.input_ids))
        self.work = work
        self.best: dict[str, float] = {}
        self.labels = {
            name: torch.tensor([first_token(self.processing_class, label) for label in task.labels])
            for name, task in TASKS.items()
            if task.labels
        }

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if self.args.device.type != "cpu":
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs["labels"][:, 1:]
        learnt = labels != IGNORED
        rest = {name: value for name, value in inputs.items() if name != "labels"}
        with projecting(self.model, learnt):
            logits = model(**rest, use_cache=False).logits.float()
        gold = labels[learnt]
        tokens = learnt.sum() if num_items_in_batch is None else num_items_in_batch
        loss = cross_entropy(logits, gold, reduction="sum") / tokens * self.accelerator.num_processes
        figures = self._metrics["train"]
        right = torch.stack([(logits.argmax(-1) == gold).sum(), learnt.sum(), inputs["attention_mask"].sum()])
        right, learnable, read = self.accelerator.reduce(right).tolist()
        figures["mean_token_accuracy"].append(right / max(1, learnable))
        self._total_train_tokens += read
        figures["num_tokens"] = [self._total_train_tokens]
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Loss and score of each task of `dev`, the mean of the scores; keeps the adapter if none before was better.

        Every process takes part, in as many passes as the others: a sharded model is gathered layer by layer.
        """
        training, self.model.training = self.model.training, False
        self.model.eval()
        size, processes = self.args.per_device_eval_batch_size, self.accelerator.num_processes
        starts = list(range(0, len(self.dev), size))
        mine = [
            starts[i % len(starts)]
            for i in range(self.accelerator.process_index, _up(len(starts), processes), processes)
        ]
        judged = [row for start in mine for row in self._judge(start, self.dev[start : start + size])]
        rows = dict(gather_object(judged) if processes > 1 else judged)
        figures = summary([(self.dev[index].task, *row) for index, row in sorted(rows.items())])
        self._keep_best(figures)
        self.log(dict(figures))
        self.model.train(training)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    @torch.no_grad()
    def _judge(self, start: int, rows: Sequence[TokenRow]) -> Iterator[tuple[int, tuple[float, int, bool]]]:
        """Index, summed loss, number of completion tokens and whether it is right, of each of `rows`."""
        batch = self.data_collator([{"input_ids": row.input_ids, "labels": row.labels} for row in rows])
        batch = self._prepare_inputs(batch)
        labels = batch.pop("labels")[:, 1:]
        learnt = labels != IGNORED
        with self.autocast_smart_context_manager(), projecting(self.model, learnt):
            logits = self.model_wrapped(**batch, use_cache=False).logits.float()
        gold = labels[learnt]
        losses = cross_entropy(logits, gold, reduction="none").tolist()
        right = (logits.argmax(-1) == gold).tolist()
        at = 0
        for offset, (row, length) in enumerate(zip(rows, learnt.sum(1).tolist(), strict=True)):
            if row.task in self.labels:
                first = self.labels[row.task].to(logits.device)
                hit = bool(first[logits[at, first].argmax()] == gold[at])
            else:
                hit = all(right[at : at + length])
            yield start + offset, (sum(losses[at : at + length]), length, hit)
            at += length

    def _keep_best(self, figures: dict[str, float]) -> None:
        """The higher mean score is the better; of two that are equal, the one of lower loss."""
        now = {"score": figures["eval_score"], "loss": figures["eval_loss"], "step": self.state.global_step}
        if self.best and (now["score"], -now["loss"]) <= (self.best["score"], -self.best["loss"]):
            return
        self.best = now
        weights = adapter_weights(self.model)
        if self.accelerator.is_main_process:
            with staged_folder(self.work / BEST) as stage:
                self.model.save_pretrained(stage, state_dict=weights)
                write_json(stage / SCORE, now)


def adapter_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What is trained, by name; shards are gathered, so every process must ask."""
    trained = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in trained.items()}


def read_best(work: Path) -> dict[str, float]:
    path = work / BEST / SCORE
    return json.loads(path.read_text()) if path.is_file() else {}


def summary(rows: Sequence[tuple[str, float, int, bool]]) -> dict[str, float]:
    """Figures of rows (task, summed loss, tokens, right): loss by token, score a task, the mean of the scores."""
    figures = {"eval_loss": sum(r[1] for r in rows) / sum(r[2] for r in rows)}
    scores = []
    for task in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == task]
        scores.append(sum(row[3] for row in mine) / len(mine))
        figures[f"eval_loss_{task}"] = sum(row[1] for row in mine) / sum(row[2] for row in mine)
        figures[f"eval_score_{task}"] = scores[-1]
    return figures | {"eval_score": sum(scores) / len(scores)}


@contextmanager
def projecting(model: Any, learnt: torch.Tensor) -> Iterator[None]:
    """Within it the output layer sees the positions of `learnt` (rows, length - 1) alone: logits (tokens, vocabulary).

    What a model does to logits after that layer (a scale, a soft cap) is done to each by itself, so it still holds.
    """

    def pick(_: torch.nn.Module, hidden: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return hidden[0][:, :-1][learnt]

    handle = model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()


def _up(count: int, step: int) -> int:
    return -(-count // step) * step
