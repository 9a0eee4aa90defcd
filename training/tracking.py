"""Reports a training run to MLflow and the terminal: configuration, data set, packages, curves, progress."""

from __future__ import annotations

import json
import math
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import mlflow
from mlflow.data.dataset_source_registry import get_dataset_source_from_json
from mlflow.data.meta_dataset import MetaDataset
from mlflow.exceptions import MlflowException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from revelator.errors import ConfigError
from training.checkpoints import flatten
from training.config import Settings
from training.rewards import REWARDS

DIGEST_CHARACTERS = 36  # MLflow keeps no more; the whole digest is a parameter
CURVES = {  # names of TRL's figures → names of MLflow's curves
    "loss": "train/loss",
    "mean_token_accuracy": "train/token_accuracy",
    "learning_rate": "train/learning_rate",
    "grad_norm": "train/grad_norm",
    "num_tokens": "train/tokens",
    "reward": "rollouts/reward",
    "reward_std": "rollouts/reward_std",
    "frac_reward_zero_std": "rollouts/silent_groups",
    "completions/mean_length": "rollouts/tokens",
    "completions/clipped_ratio": "rollouts/unended",
    "entropy": "rollouts/entropy",
    "kl": "rollouts/kl",
} | {f"rewards/{name}/mean": f"rollouts/{name}" for name in REWARDS}
RATE = "train/tokens_per_second"
PRINTED = re.compile(r"train/(loss|token_accuracy)|rollouts/reward|dev/(loss|score\w*)")


@contextmanager
def open_tracked_run(run_id: str | None, name: str, description: str | None = None) -> Iterator[str]:
    """Opens an MLflow run with system metrics, a new one with `name` and `description` or the one of a killed process.
    Yields its id.

    An error marks the run FAILED, a stop KILLED; its curves stay.
    """
    with mlflow.start_run(
        run_id=run_id,
        run_name=None if run_id else name,
        description=None if run_id else description,
        log_system_metrics=True,
    ) as run:
        try:
            yield run.info.run_id
        except KeyboardInterrupt:
            mlflow.end_run("KILLED")
            raise


def log_data_set(folder: Path, manifest: dict, context: str = "training", number: int = 1) -> None:
    """Logs the instruction set that a run reads, which `number` it has of several, and what it is read for."""
    source = get_dataset_source_from_json(json.dumps({"uri": str(folder.resolve())}), "local")
    dataset = MetaDataset(source, name=folder.name, digest=manifest["digest"][:DIGEST_CHARACTERS])  # type: ignore[abstract]
    try:
        mlflow.log_input(dataset, context=context)
    except MlflowException as error:  # of two runs that log a new set at once, MLflow refuses one
        if error.error_code != "BAD_REQUEST":
            raise
        mlflow.log_input(dataset, context=context)
    mlflow.log_dict(manifest, "set_manifest.json" if number == 1 else f"set_manifest_{number}.json")


def log_configuration(config: Settings, rows: dict[str, int], digests: dict[str, str]) -> None:
    """Logs parameters, numbers of rows, digests, the configuration file and the environment."""
    mlflow.log_params(flatten(config.model_dump(mode="json")) | digests)
    mlflow.log_params({f"rows.{name}": count for name, count in rows.items()})
    mlflow.log_text(config.to_yaml(), "config.yaml")
    mlflow.log_text(list_packages(), "environment.txt")


def list_packages() -> str:
    """Lists Python, machine and every installed package with its version, one a line."""
    packages = sorted({f"{d.metadata['Name']}=={d.version}" for d in distributions()}, key=str.lower)
    return "\n".join([f"# Python {platform.python_version()} on {platform.platform()}", *packages, ""])


def find_last_count(state: TrainerState) -> int:
    """Finds the number of tokens that were read up to the last point of a run's curves, 0 before the first."""
    return next((int(entry["num_tokens"]) for entry in reversed(state.log_history) if "num_tokens" in entry), 0)


class ProgressCallback(TrainerCallback):
    """Shows a bar on a terminal, prints lines elsewhere, and logs to MLflow. `figures` has the last value of each.

    Tokens per second are those of rows, padding apart, while the training neither evaluates nor saves: in the curve
    since the last point, in `figures` at the end over the whole run.

    A loss that is no number any more ends the training with a ConfigError. The loss is looked at before each save, so
    the last checkpoint is one from before.
    """

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
        self.began = self.resumed = time.monotonic()
        self.seconds, self.start = 0.0, find_last_count(state)  # of this process; tokens that were read before it
        self.point: tuple[float, float] = self.start, self.seconds
        self.bar = self.progress.add_task("", total=state.max_steps, completed=state.global_step)
        self.progress.start()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.seconds += time.monotonic() - self.resumed
        self.resumed = time.monotonic()
        self.progress.update(self.bar, completed=state.global_step)
        control.should_log |= control.should_save

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.resumed = time.monotonic()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.resumed = time.monotonic()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        figures = {}
        for name, value in kwargs["logs"].items():
            if value is not None and (name in CURVES or name.startswith("eval_")):
                figures[CURVES.get(name) or f"dev/{name.removeprefix('eval_')}"] = float(value)
        if not (figures and self.active):
            return
        for name, value in figures.items():
            if not math.isfinite(value):
                raise ConfigError(
                    f"the training diverged: {name} is {value} at step {state.global_step}",
                    hint="lower learning_rate, or raise warmup, and start anew",
                )
        text = "  ".join(f"{n} {v:.3g}" for n, v in figures.items() if PRINTED.fullmatch(n))
        self.figures |= figures
        if count := figures.get("train/tokens"):
            before, then = self.point
            figures[RATE] = (count - before) / (self.seconds - then)
            self.figures[RATE] = (count - self.start) / self.seconds
            self.point = count, self.seconds
            text += f"  {figures[RATE]:,.0f} tokens/s"
        mlflow.log_metrics(figures, step=state.global_step)
        self.progress.update(self.bar, description=text)
        if not self.console.is_terminal:
            elapsed = time.monotonic() - self.began
            self.console.print(
                f"step {state.global_step}/{state.max_steps}  {elapsed:.0f} s  {text}", highlight=False, soft_wrap=True
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.progress.stop()
