"""What happens while the trainer runs: progress, curves, label accuracy on dev rows, whole checkpoints."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import mlflow
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from revelator.errors import ConfigError
from revelator.tasks import TASKS
from training.checkpoints import mark_whole
from training.instructions import Instruction

NAMES = {"loss": "train/loss", "mean_token_accuracy": "train/token_accuracy", "learning_rate": "train/learning_rate"}
NAMES |= {"grad_norm": "train/grad_norm", "num_tokens": "train/tokens"}
NAMES |= {"eval_loss": "dev/loss", "eval_mean_token_accuracy": "dev/token_accuracy"}


class Report(TrainerCallback):
    """A bar on a terminal, lines elsewhere, and the same figures to MLflow. Keeps the last of each in `figures`."""

    def __init__(self, console: Console, *, active: bool = True) -> None:
        self.console = console
        self.active = active  # process 0 of a distributed run
        self.figures: dict[str, float] = {}
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self.progress = Progress(
            *columns, TextColumn("{task.description}"), console=console, disable=not (active and console.is_terminal)
        )

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.began = time.monotonic()
        self.bar = self.progress.add_task("", total=state.max_steps, completed=state.global_step)
        self.progress.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.progress.update(self.bar, completed=state.global_step)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        figures = {NAMES[name]: float(value) for name, value in kwargs["logs"].items() if name in NAMES}
        if not (figures and self.active):
            return
        for name, value in figures.items():
            if not math.isfinite(value):
                raise ConfigError(
                    f"the training diverged: {name} is {value} at step {state.global_step}",
                    hint="lower learning_rate, or raise warmup, and start anew",
                )
        self.figures |= figures
        mlflow.log_metrics(figures, step=state.global_step)
        said = "  ".join(f"{n} {v:.3g}" for n, v in figures.items() if "loss" in n or "accuracy" in n)
        self.progress.update(self.bar, description=said)
        if not self.console.is_terminal:
            elapsed = time.monotonic() - self.began
            self.console.print(
                f"step {state.global_step}/{state.max_steps}  {elapsed:.0f} s  {said}", highlight=False, soft_wrap=True
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.progress.stop()


class LabelAccuracy(TrainerCallback):
    """After each evaluation: share of dev rows whose most probable label, by its first token, is the gold one."""

    def __init__(
        self, rows: list[Instruction], tokenizer: PreTrainedTokenizerBase, batch_size: int, report: Report
    ) -> None:
        self.rows = [row for row in rows if TASKS[row.task].labels]
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.report = report

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        right: dict[str, list[bool]] = {}
        for start in range(0, len(self.rows), self.batch_size):
            part = self.rows[start : start + self.batch_size]
            for row, logits in zip(part, self._next_logits(kwargs["model"], [r.prompt for r in part]), strict=True):
                labels = TASKS[row.task].labels or ()
                first = [self.tokenizer(" " + label, add_special_tokens=False)["input_ids"][0] for label in labels]
                chosen = labels[int(logits[first].argmax())]
                right.setdefault(row.task, []).append(chosen == row.label)
        figures = {f"dev/accuracy_{task}": sum(hits) / len(hits) for task, hits in sorted(right.items())}
        self.report.figures |= figures
        mlflow.log_metrics(figures, step=state.global_step)
        said = "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
        self.report.console.print(f"step {state.global_step}  {said}", highlight=False, soft_wrap=True)

    @torch.no_grad()
    def _next_logits(self, model: torch.nn.Module, prompts: list[str]) -> torch.Tensor:
        """(prompts, vocabulary): logits of the token that follows each prompt; padding is on the left."""
        inputs = self.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
        inputs = inputs.to(next(model.parameters()).device)
        return model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], logits_to_keep=1).logits[
            :, -1
        ]


class WholeCheckpoints(TrainerCallback):
    """Marks each checkpoint once all of it is on disk."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            mark_whole(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")
