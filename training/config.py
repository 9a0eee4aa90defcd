"""The configuration of a training run: a YAML file, checked field by field."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from revelator.artifact import DEFAULT_BASE
from revelator.config import REFERENCE, Strict, check_config, read_yaml
from revelator.errors import ConfigError
from revelator.files import sha256_file
from revelator.folders import MANIFEST
from revelator.tasks import TASKS
from training.rewards import REWARDS

CONFIGS = Path(__file__).parent / "configs"
ACCELERATE = CONFIGS / "accelerate"


def resolve_accelerate_file(name: str) -> Path:
    """Returns the shipped file of this name, else the path; does not check that it exists."""
    shipped = ACCELERATE / f"{name}.yaml"
    return shipped if shipped.is_file() else Path(name)


def _digest_file(path: Path) -> str:
    return sha256_file(path) if path.is_file() else ""


def check_weights(weights: dict[str, float], known: Iterable[str], kind: str) -> dict[str, float]:
    """Returns the weights. Raises ValueError for unknown names, weights below 0 or not finite, or none above 0."""
    if unknown := set(weights) - set(known):
        raise ValueError(f"no such {kind}: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if min(weights.values(), default=0) < 0 or not 0 < sum(weights.values()) < math.inf:
        raise ValueError("a weight below 0 or not finite, or none above zero: nothing would be learnt")
    return weights


class Lora(Strict):
    """LoRA on every linear layer but the output layer, without bias (Hu et al. 2021; QLoRA, Dettmers et al. 2023)."""

    rank: int = Field(16, ge=1, le=256)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)


class Evaluation(Strict):
    """`every` steps, loss and score of each task on the same `rows_per_task` rows of the dev split."""

    every: int = Field(100, ge=1)
    rows_per_task: int = Field(50, ge=1)
    batch_size: int = Field(16, ge=1)


class Settings(Strict):
    """What every stage has. `processes` and `accelerate` say how it is launched."""

    out: Path | None = None
    seed: int = 7
    processes: int = Field(1, ge=1)
    accelerate: str | None = None  # a file of `accelerate config`, or the name of one that ships
    threads: int | None = Field(None, ge=1)  # of a process; else OMP_NUM_THREADS, else its share of the cores

    @field_validator("accelerate")
    @classmethod
    def _check_accelerate(cls, name: str | None) -> str | None:
        shipped = sorted(path.stem for path in ACCELERATE.glob("*.yaml"))
        if name is not None and not resolve_accelerate_file(name).is_file():
            raise ValueError(f"no such file; those that ship: {', '.join(shipped)}")
        return name

    @property
    def work(self) -> Path:
        """Where checkpoints lie until the training is over: beside `out`."""
        assert self.out is not None
        return self.out.with_name(self.out.name + ".work")

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


class AdapterConfig(Settings):
    """What the stages that train an adapter share. `batch_size` rows stand in each process's batch. `adapter` is the
    folder of the adapter that the training begins with. `precision: auto` is bf16 on a GPU and fp32 on a CPU; bf16 is
    refused where the device has no units for it."""

    stage: str
    base: str = DEFAULT_BASE
    adapter: Path | None = None
    sets: tuple[Path, ...] = ()
    batch_size: int = Field(32, ge=1)
    gradient_accumulation: int = Field(1, ge=1)
    learning_rate: float = Field(gt=0, le=1)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = Field(0.05, ge=0, lt=1)  # share of the steps
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    quantization: Literal["none", "nf4"] = "none"
    gradient_checkpointing: bool = False
    log_every: int = Field(10, ge=1)
    save_every: int = Field(100, ge=1)
    evaluation: Evaluation = Field(default_factory=lambda: Evaluation.model_validate({}))

    def digest_inputs(self) -> dict[str, str]:
        """Digests what is read beside base and set; "" for what is gone."""
        return {"adapter_digest": _digest_file(self.adapter / MANIFEST)} if self.adapter else {}

    @property
    def global_batch(self) -> int:
        return self.batch_size * self.gradient_accumulation * self.processes

    def accumulate_over(self, processes: int) -> int:
        """The `gradient_accumulation` that gives a step over so many processes the rows that it has here, or as few
        above them as there can be."""
        return max(1, math.ceil(self.gradient_accumulation * self.processes / processes))

    @property
    @abstractmethod
    def length(self) -> str:
        """Describes the steps for the terminal and the registry."""


class FineTuneConfig(AdapterConfig):
    """Supervised fine-tuning of a new adapter, or on from `adapter`: `lora` must equal the settings of that adapter.
    Lengths are in tokens.

    It ends after `steps`, `epochs` or `minutes`, whichever comes first. An epoch draws as many rows as there are, by
    the weights of their tasks. `sets` are instruction sets, of which each gives an equal part of the tasks that it has;
    one that is named twice counts twice. `batch_tokens` takes the place of `batch_size`: a step has rows of like length
    with up to so many tokens, padding included; `gradient_accumulation` and `processes` cut it and do not change it.
    """

    stage: Literal["sft"] = "sft"
    steps: int | None = Field(None, ge=1)
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False)
    minutes: float | None = Field(None, gt=0)  # the learning rate falls with the time, too
    batch_tokens: int | None = Field(None, ge=16)
    tasks: dict[str, float] = Field(default_factory=lambda: dict.fromkeys(TASKS, 1.0))  # weights
    max_length: int = Field(512, ge=16)
    lora: Lora = Field(default_factory=lambda: Lora.model_validate({}))

    @field_validator("tasks")
    @classmethod
    def _check_tasks(cls, tasks: dict[str, float]) -> dict[str, float]:
        return check_weights(tasks, TASKS, "task")

    @model_validator(mode="after")
    def _check_length(self) -> FineTuneConfig:
        if self.steps is None and self.epochs is None:
            raise ValueError("neither steps nor epochs: one is needed, `minutes` is a limit beside them")
        if self.batch_tokens is not None and self.batch_tokens < self.max_length * self.parts:
            raise ValueError(
                f"batch_tokens = {self.batch_tokens} has no room for {self.parts} rows (gradient_accumulation times "
                f"processes) of max_length = {self.max_length}"
            )
        return self

    @property
    def parts(self) -> int:
        """Into how many batches a step is cut."""
        return self.gradient_accumulation * self.processes

    @property
    def length(self) -> str:
        size = f"up to {self.batch_tokens:,} tokens" if self.batch_tokens else f"{self.global_batch} rows"
        limits = [f"{count:g} {unit}" for count, unit in ((self.epochs, "epochs"), (self.minutes, "minutes")) if count]
        steps = f"{self.steps} steps" if self.steps else "steps"
        return ", at most ".join([f"{steps} of {size}", *limits])


class GrpoConfig(AdapterConfig):
    """GRPO on top of an adapter (training.grpo). A step takes `global_batch` rollouts, `completions` of each prompt.

    `world` is the world (or its questions.jsonl) over which plans are executed for the reward `executed`. `kl` weighs
    the distance from the adapter that it began with. `rewards` weighs those of training.rewards: without it every
    reward but `executed`, which needs a world, weighs 1; with it only the named rewards count.
    """

    stage: Literal["grpo"]
    steps: int = Field(ge=1)
    sets: tuple[Path, ...] = Field((), max_length=1)
    world: Path | None = None
    completions: int = Field(8, ge=2)
    temperature: float = Field(1.0, gt=0)
    max_new_tokens: int = Field(128, ge=1)
    max_prompt: int = Field(384, ge=16)  # tokens
    kl: float = Field(0.0, ge=0)
    rewards: dict[str, float] = Field(default_factory=lambda: {name: 1.0 for name in REWARDS if name != "executed"})

    @field_validator("rewards")
    @classmethod
    def _check_rewards(cls, rewards: dict[str, float]) -> dict[str, float]:
        return check_weights(rewards, REWARDS, "reward")

    @model_validator(mode="after")
    def _check_group_size(self) -> GrpoConfig:
        if self.global_batch % self.completions:
            raise ValueError(f"completions must divide the {self.global_batch} rollouts of a step")
        return self

    @property
    def length(self) -> str:
        return f"{self.steps} steps of {self.global_batch} rows"

    def digest_inputs(self) -> dict[str, str]:
        digests = super().digest_inputs()
        if self.world:
            file = self.world / "questions.jsonl" if self.world.is_dir() else self.world
            digests["world_digest"] = _digest_file(file)
        return digests


class PretrainConfig(Settings):
    """Pre-training of a prefix language model on one CPU (training.pretrain): from the published MiniLM
    (`base: minilm`), or on from another `base` of this kind.

    It ends after `minutes` or `steps`, whichever comes first. `sets` are instruction sets; one that is named twice
    counts twice. `rows` is the number of rows drawn into the mixture, by `shares` of tasks. The highest learning rate
    is `rate` times 2e-3.
    """

    stage: Literal["pretrain"]
    base: str
    seed: int = 0
    steps: int = Field(1_000_000, ge=1)
    processes: Literal[1] = 1
    sets: tuple[Path, ...] = ()
    minutes: float = Field(75.0, gt=0)
    rows: int = Field(400_000, ge=1)
    batch_tokens: int = Field(6144, ge=448)
    rate: float = Field(1.0, gt=0)
    precision: Literal["fp32", "bf16"] = "fp32"
    save_minutes: float = Field(10.0, gt=0)
    shares: dict[str, float]

    @field_validator("shares")
    @classmethod
    def _check_shares(cls, shares: dict[str, float]) -> dict[str, float]:
        return check_weights(shares, TASKS, "task")

    @property
    def starts_from_minilm(self) -> bool:
        return self.base == "minilm"


class ReaderConfig(Settings):
    """Training of the reader on MiniLM, on one CPU (training.reader).

    `rows` lists files of rows for reading; `shares` weighs them by their names (1 unless given). `reader` is a trained
    reader to go on from. Windows whose answer is a list are drawn `lists` times as often as others of their file.
    `batch_tokens` counts padding.
    """

    stage: Literal["reader"]
    steps: int = Field(ge=1)
    processes: Literal[1] = 1
    rows: tuple[Path, ...] = ()
    shares: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    lists: float = Field(1.0, ge=0, allow_inf_nan=False)
    reader: Path | None = None
    batch_tokens: int = Field(6144, ge=512)
    learning_rate: float = Field(2e-4, gt=0, le=1)
    precision: Literal["fp32", "bf16"] = "bf16"
    log_every: int = Field(20, ge=1)
    save_every: int = Field(200, ge=1)


AnyConfig = FineTuneConfig | GrpoConfig | PretrainConfig | ReaderConfig
STAGES: dict[str, type[AnyConfig]] = {
    "sft": FineTuneConfig,
    "grpo": GrpoConfig,
    "pretrain": PretrainConfig,
    "reader": ReaderConfig,
}


def find_config(name: str) -> Path:
    """A path, or the name of a configuration that ships with the package (`demo`, `cpu`, …)."""
    for path in (Path(name), CONFIGS / name, CONFIGS / f"{name}.yaml"):
        if path.is_file():
            return path
    shipped = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.yaml")))
    raise ConfigError("no such configuration file", where=name, hint=f"give a path, or one that ships: {shipped}")


def load_config(path: Path, **changes: Any) -> AnyConfig:
    """Reads `path`, by its `stage`; `changes` that are not None replace fields.

    Raises ConfigError naming field, value and reason."""
    values = read_yaml(path)
    if isinstance(values, dict):
        values = values | {name: value for name, value in changes.items() if value is not None}
    stage = values.get("stage", "sft") if isinstance(values, dict) else "sft"
    if not isinstance(stage, str) or stage not in STAGES:
        reason = f"stage = {stage!r}: must be one of {', '.join(STAGES)}"
        raise ConfigError(reason, where=str(path), hint=f"fields and bounds: {REFERENCE}")
    return check_config(values, STAGES[stage], str(path))
