"""The configuration of a training run: a YAML file, checked field by field."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from revelator.config import Strict, check_config, read_yaml
from revelator.errors import ConfigError
from revelator.tasks import TASKS
from training.rewards import REWARDS

CONFIGS = Path(__file__).parent / "configs"
ACCELERATE = CONFIGS / "accelerate"


def accelerate_file(name: str) -> Path:
    shipped = ACCELERATE / f"{name}.yaml"
    return shipped if shipped.is_file() else Path(name)


class Lora(Strict):
    """LoRA on every linear layer but the output layer, without bias (Hu et al. 2021; QLoRA, Dettmers et al. 2023)."""

    rank: int = Field(16, ge=1, le=256)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)


class Evaluation(Strict):
    """`every` steps, loss and score of each task on the same `rows_per_task` rows of the dev split."""

    every: int = Field(100, ge=1)
    rows_per_task: int = Field(50, ge=1)
    batch_size: int = Field(64, ge=1)


class Run(Strict):
    """What every stage of training has. `batch_size` rows stand in each process's batch."""

    base: str = "tiny"
    set_folder: Path | None = None
    out: Path | None = None
    seed: int = 7
    steps: int = Field(ge=1)
    batch_size: int = Field(32, ge=1)
    gradient_accumulation: int = Field(1, ge=1)
    processes: int = Field(1, ge=1)
    accelerate: str | None = None  # a file of `accelerate config`, or the name of one that ships
    learning_rate: float = Field(gt=0, le=1)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = Field(0.05, ge=0, lt=1)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    quantization: Literal["none", "nf4"] = "none"
    gradient_checkpointing: bool = False
    threads: int | None = Field(None, ge=1)
    log_every: int = Field(10, ge=1)
    save_every: int = Field(100, ge=1)
    evaluation: Evaluation = Field(default_factory=lambda: Evaluation.model_validate({}))
    tasks: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(TASKS, 1.0))  # weights

    @field_validator("tasks")
    @classmethod
    def known_tasks(cls, tasks: dict[str, float]) -> dict[str, float]:
        if unknown := set(tasks) - set(TASKS):
            raise ValueError(f"no such task: {', '.join(sorted(unknown))}; tasks: {', '.join(TASKS)}")
        if any(share < 0 for share in tasks.values()) or not any(tasks.values()):
            raise ValueError("weights must not be negative, and one must be above zero")
        return tasks

    @field_validator("accelerate")
    @classmethod
    def found(cls, name: str | None) -> str | None:
        shipped = sorted(path.stem for path in ACCELERATE.glob("*.yaml"))
        if name is not None and not accelerate_file(name).is_file():
            raise ValueError(f"no such file; those that ship: {', '.join(shipped)}")
        return name

    @property
    def global_batch(self) -> int:
        return self.batch_size * self.gradient_accumulation * self.processes

    @property
    def work(self) -> Path:
        """Where checkpoints lie until the adapter is whole: beside `out`."""
        assert self.out is not None
        return self.out.with_name(self.out.name + ".work")

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


class TrainConfig(Run):
    """Supervised fine-tuning. Lengths are in tokens."""

    stage: Literal["sft"] = "sft"
    max_length: int = Field(512, ge=16)
    lost_rows_limit: float = Field(0.01, ge=0, le=1)
    sampling_temperature: float | None = Field(None, gt=0, allow_inf_nan=False)  # None: weights alone are shares
    lora: Lora = Field(default_factory=lambda: Lora.model_validate({}))


class GrpoConfig(Run):
    """GRPO on top of an adapter (training.grpo). A step takes `global_batch` rollouts, `completions` of each prompt.

    `world` is the world (or its questions.jsonl) over which plans are executed for the reward `executed`. `hard` keeps
    plans with a group, with five leaves and more and, given a world, with fan-out. `kl` weighs the distance from the
    adapter that it began with; `rewards` weighs those of training.rewards: each 1 unless given, but `executed`, which
    needs a world.
    """

    stage: Literal["grpo"]
    adapter: Path | None = None
    world: Path | None = None
    hard: bool = True
    completions: int = Field(8, ge=2)
    temperature: float = Field(1.0, gt=0)
    max_new_tokens: int = Field(128, ge=1)
    max_prompt: int = Field(384, ge=16)
    kl: float = Field(0.0, ge=0)
    rewards: dict[str, float] = Field(default_factory=lambda: {name: 1.0 for name in REWARDS if name != "executed"})

    @field_validator("rewards")
    @classmethod
    def known_rewards(cls, rewards: dict[str, float]) -> dict[str, float]:
        if unknown := set(rewards) - set(REWARDS):
            raise ValueError(f"no such reward: {', '.join(sorted(unknown))}; rewards: {', '.join(REWARDS)}")
        total = sum(rewards.values())
        if min(rewards.values(), default=0) < 0 or not 0 < total < math.inf:
            raise ValueError("a weight below 0 or not finite, or none above 0: nothing would be learnt")
        return rewards

    @model_validator(mode="after")
    def whole_groups(self) -> GrpoConfig:
        if self.global_batch % self.completions:
            raise ValueError(f"completions must divide the {self.global_batch} rollouts of a step")
        return self


STAGES: dict[str, type[TrainConfig] | type[GrpoConfig]] = {"sft": TrainConfig, "grpo": GrpoConfig}


def find_config(name: str) -> Path:
    """A path, or the name of a configuration that ships with the package (`demo`, `tiny-cpu`, …)."""
    for path in (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml"):
        if path.is_file():
            return path
    shipped = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.yaml")))
    raise ConfigError("no such configuration file", where=name, hint=f"give a path, or one that ships: {shipped}")


def load_config(path: Path, **changes: Any) -> TrainConfig | GrpoConfig:
    """Reads `path`, by its `stage`; `changes` that are not None replace fields.

    Raises ConfigError naming field, value and reason."""
    values = read_yaml(path)
    if isinstance(values, dict):
        values = values | {name: value for name, value in changes.items() if value is not None}
    stage = values.get("stage", "sft") if isinstance(values, dict) else "sft"
    if not isinstance(stage, str) or stage not in STAGES:
        raise ConfigError(f"stage = {stage!r}: must be one of {', '.join(STAGES)}", where=str(path))
    return check_config(values, STAGES[stage], str(path))
