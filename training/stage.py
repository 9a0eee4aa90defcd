"""What SFT and GRPO share: a training is read and checked, begun or resumed, tracked, saved and registered.

The configuration is a resolved one: `sets` and `out` are set. Checkpoints lie beside the adapter's folder, which
appears by one rename when the training is over.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
import torch
import transformers
from accelerate import PartialState
from rich.console import Console
from transformers import (
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from revelator import registry
from revelator.artifact import (
    ADAPTER,
    AdapterManifest,
    explain_full_disk,
    list_learned_tasks,
    read_adapter_fingerprints,
    verify_files,
)
from revelator.errors import ConfigError
from revelator.files import stage_folder
from revelator.fingerprints import Fingerprints
from revelator.rows import SET
from training.checkpoints import (
    CHECKPOINT,
    clear_work,
    find_checkpoint,
    find_interrupted_run,
    identify_run,
    lock_work,
    record_run,
)
from training.config import AdapterConfig, load_config
from training.export import complete_adapter, register_version
from training.tracking import ProgressCallback, log_configuration, log_data_set, open_tracked_run

console = Console(stderr=True)


@dataclass(frozen=True, kw_only=True)
class Inputs(ABC):
    """What a stage has read and checked: base, manifests of the instruction sets by folder, tokenizer, and what its own
    class adds."""

    base: Path
    base_digest: str
    sets: tuple[Path, ...]  # one that is named twice counts twice
    manifests: dict[Path, dict[str, Any]]
    tasks: set[str]  # that the training teaches
    tokenizer: PreTrainedTokenizerBase
    adapter: Path | None = None  # that it goes on from

    @property
    def data_digest(self) -> str:
        return " ".join(self.manifests[folder]["digest"] for folder in self.sets)

    @property
    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Rows by what became of them, for MLflow."""

    @abstractmethod
    def describe(self, config: Any) -> str:
        """Describes the training for the terminal."""


class Stage(NamedTuple):
    """What differs between the stages, as functions of a configuration C, its inputs I and its trainer T.

    `read_inputs` (C → I) reads and checks everything; it raises an error of revelator.errors. `make_trainer` takes C, I
    and a `ProgressCallback`. `save_weights` (T, C, folder) writes the adapter into the folder, and returns its figures.
    """

    read_inputs: Callable[[Any], Any]
    make_trainer: Callable[[Any, Any, ProgressCallback], Trainer]
    save_weights: Callable[[Any, Any, Path], dict[str, float]]


class Start(NamedTuple):
    """The identity of a training, and the MLflow run and checkpoint from which it continues, if any."""

    identity: dict
    run_id: str | None
    checkpoint: Path | None


class MarkWholeCheckpoints(TrainerCallback):
    """Marks each checkpoint when all processes have written their part of it."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        PartialState().wait_for_everyone()
        if state.is_world_process_zero:
            CHECKPOINT.write_manifest(Path(str(args.output_dir)) / f"checkpoint-{state.global_step}", {})


def train_adapter(stage: Stage, config: AdapterConfig, *, resume: bool) -> dict | None:
    """Runs the whole training. Process 0 of a distributed run tracks, saves and registers, and returns what it made:
    `adapter`, `name`, `version`, `run_id`, `tracking_uri`, `figures`. The others return None."""
    torch.set_num_threads(config.threads or torch.get_num_threads())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    state = PartialState(cpu=not torch.cuda.is_available())  # several on a CPU find one another only if told
    is_first = state.is_main_process
    report = ProgressCallback(console, active=is_first)
    with ExitStack() as stack:
        if is_first:
            uri = registry.connect()
            stack.enter_context(lock_work(config.work, "writer"))
            stack.enter_context(registry.store_errors())
        with state.local_main_process_first():  # it writes the tokens that the others of this machine read
            inputs = stage.read_inputs(config)
        digests = {"base_digest": inputs.base_digest, "data_digest": inputs.data_digest}
        identity = identify_run(config, **digests, **config.digest_inputs())
        run_id = find_interrupted_run(config.work, identity) if resume else None
        with state.main_process_first():  # process 0 removes what is not whole before the others look
            checkpoint = find_checkpoint(config.work) if run_id else None
        manifest = _find_finished(config, identity) if resume else None
        if not is_first:
            if manifest is None:
                _fit(stage.make_trainer(config, inputs, report), config, checkpoint)
            return None
        if manifest is None:
            console.print(inputs.describe(config), highlight=False, soft_wrap=True)
            trainer = stage.make_trainer(config, inputs, report)
            if checkpoint is None:  # an earlier run's files go once every check has passed
                clear_work(config.work)
            manifest = _track_training(stage, config, inputs, trainer, Start(identity, run_id, checkpoint), report)
        version = register_version(config, manifest, report.figures)
    made = {"adapter": str(config.out), "name": registry.NAME, "version": version, "run_id": manifest.run_id}
    return made | {"tracking_uri": uri, "figures": report.figures}


def _find_finished(config: AdapterConfig, identity: dict) -> AdapterManifest | None:
    """Finds the adapter's manifest if this training had finished before it was killed, else None."""
    assert config.out is not None
    if not ADAPTER.find_manifest(config.out):
        return None
    manifest = verify_files(config.out)
    try:
        made: Any = load_config(config.out / "config.yaml")
    except ConfigError:  # of a release with other fields
        return None
    if made.stage != config.stage:
        return None
    digests = {"base_digest": manifest.base_digest, "data_digest": manifest.data_digest} | made.digest_inputs()
    return manifest if identify_run(made, **digests) == identity else None


def _track_training(
    stage: Stage, config: AdapterConfig, inputs: Inputs, trainer: Trainer, start: Start, report: ProgressCallback
) -> AdapterManifest:
    """Trains within an MLflow run and saves the adapter."""
    assert config.out is not None
    digests = {"base_digest": inputs.base_digest, "data_digest": inputs.data_digest}
    seen = reduce(or_, (Fingerprints.read(folder, SET) for folder in inputs.manifests))
    seen |= read_adapter_fingerprints(inputs.adapter, inputs.base)
    with open_tracked_run(start.run_id, config.out.name, inputs.describe(config)) as run_id:
        record_run(config.work, run_id, start.identity)
        console.print(f"MLflow run {run_id} at {mlflow.get_tracking_uri()}", highlight=False, soft_wrap=True)
        if start.checkpoint:
            console.print(f"going on from {start.checkpoint}", highlight=False, soft_wrap=True)
        else:
            for number, (folder, manifest) in enumerate(inputs.manifests.items(), 1):
                log_data_set(folder, manifest, number=number)
            data = {"data_digest": inputs.data_digest} | config.digest_inputs()
            log_configuration(config, inputs.counts, data)
        _fit(trainer, config, start.checkpoint)
        with explain_full_disk(config.out), stage_folder(config.out) as folder:
            if figures := stage.save_weights(trainer, config, folder):
                report.figures |= figures
                mlflow.log_metrics(figures, step=trainer.state.global_step)
                console.print("  ".join(f"{name} {value:.4g}" for name, value in figures.items()), highlight=False)
            tasks = inputs.tasks | list_learned_tasks(inputs.base, inputs.adapter)
            return complete_adapter(folder, config, inputs.tokenizer, tasks, seen, run_id=run_id, **digests)


def _fit(trainer: Trainer, config: AdapterConfig, checkpoint: Path | None) -> None:
    """Trains to the last step, where the trainer evaluates too; every process of a distributed run calls it."""
    with explain_full_disk(config.work):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def make_common_settings(config: AdapterConfig, steps: int, dtype: torch.dtype) -> dict[str, Any]:
    """Makes the arguments of TRL's configurations that do not depend on the stage."""
    return {
        "output_dir": str(config.work),
        "ddp_find_unused_parameters": False,
        "use_cpu": not torch.cuda.is_available(),
        "max_steps": steps,
        "per_device_train_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation,
        "gradient_checkpointing": config.gradient_checkpointing,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": config.schedule,
        "warmup_steps": int(config.warmup * steps),
        "weight_decay": 0.0,
        "bf16": dtype == torch.bfloat16,
        "seed": config.seed,
        "save_strategy": "steps",
        "save_steps": config.save_every,
        "save_total_limit": 2,  # the older one stays while the newer is written
        "logging_steps": config.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a loss that is no number must be seen: see ProgressCallback
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": torch.cuda.is_available(),
    }
