"""What happens while the trainer runs: progress, curves, whole checkpoints."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import mlflow
from accelerate import PartialState
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from revelator.errors import ConfigError
from training.checkpoints import mark_whole
from training.rewards import REWARDS

NAMES = {"loss": "train/loss", "mean_token_accuracy": "train/token_accuracy", "learning_rate": "train/learning_rate"}
NAMES |= {"grad_norm": "train/grad_norm", "num_tokens": "train/tokens"}
NAMES |= {
    "reward": "rollouts/reward",
    "reward_std": "rollouts/reward_std",
    "frac_reward_zero_std": "rollouts/silent_groups",
}
NAMES |= {"completions/mean_length": "rollouts/tokens", "completions/clipped_ratio": "rollouts/unended"}
NAMES |= {"entropy": "rollouts/entropy", "kl": "rollouts/kl"}
NAMES |= {f"rewards/{name}/mean": f"rollouts/{name}" for name in REWARDS}

SAID = re.compile(r"train/(loss|token_accuracy)|rollouts/reward|dev/(loss|score\w*)")


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
        figures = {}
        for name, value in kwargs["logs"].items():
            if value is not None and (name in NAMES or name.startswith("eval_")):
                figures[NAMES.get(name) or f"dev/{name.removeprefix('eval_')}"] = float(value)
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
        said = "  ".join(f"{n} {v:.3g}" for n, v in figures.items() if SAID.fullmatch(n))
        self.progress.update(self.bar, description=said)
        if not self.console.is_terminal:
            elapsed = time.monotonic() - self.began
            self.console.print(
                f"step {state.global_step}/{state.max_steps}  {elapsed:.0f} s  {said}", highlight=False, soft_wrap=True
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.progress.stop()


class WholeCheckpoints(TrainerCallback):
    """Marks each checkpoint once all of it is on disk, what the other processes write of it included."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            mark_whole(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}")
