"""What the stages of training share: how a run begins or goes on, its settings, its adapter's folder, its version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState
from transformers import PreTrainedTokenizerBase

from revelator import registry
from revelator.artifact import AdapterManifest, lasting_name, write_manifest
from revelator.files import write_bytes
from training.checkpoints import begun_run, last_whole
from training.config import Run


@dataclass(frozen=True)
class Start:
    """What a training is known by, and the MLflow run and the checkpoint that it goes on from, if any."""

    identity: dict
    run_id: str | None
    checkpoint: Path | None


def begin(config: Run, identity: dict, state: PartialState, resume: bool) -> Start:
    """Every process calls it. Raises ConfigError when another training was begun at this place."""
    run_id = begun_run(config.work, identity) if resume else None
    with state.main_process_first():  # process 0 removes what is not whole before the others look
        return Start(identity, run_id, last_whole(config.work) if run_id else None)


def processes() -> PartialState:
    return PartialState(cpu=not torch.cuda.is_available())  # several on a CPU find one another only if told


def common_settings(config: Run, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of TRL's configurations that do not depend on the stage."""
    return {
        "output_dir": str(config.work),
        "ddp_find_unused_parameters": False,
        "use_cpu": not torch.cuda.is_available(),
        "max_steps": config.steps,
        "per_device_train_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.gradient_accumulation,
        "gradient_checkpointing": config.gradient_checkpointing,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": config.schedule,
        "warmup_steps": int(config.warmup * config.steps),
        "weight_decay": 0.0,
        "bf16": dtype == torch.bfloat16,
        "seed": config.seed,
        "save_strategy": "steps",
        "save_steps": config.save_every,
        "save_total_limit": 2,  # the older one stays while the newer is written
        "logging_steps": config.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a loss that is no number must be seen: see Report
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": torch.cuda.is_available(),
    }


def name_lastingly(adapter_config: Any, base: str) -> None:
    """PEFT's configuration as every process and machine writes it."""
    adapter_config.base_model_name_or_path = lasting_name(base)
    adapter_config.target_modules = sorted(adapter_config.target_modules)  # a set has another order in each process


class Read(Protocol):
    """Of what a stage read, what its adapter's folder tells."""

    @property
    def base_digest(self) -> str: ...
    @property
    def manifest(self) -> dict: ...
    @property
    def tokenizer(self) -> PreTrainedTokenizerBase: ...


def complete_folder(folder: Path, config: Run, inputs: Read, run_id: str) -> AdapterManifest:
    """Writes what lies beside the weights of an adapter, its manifest last."""
    inputs.tokenizer.save_pretrained(folder)
    write_bytes(folder / "config.yaml", config.to_yaml().encode())
    return write_manifest(
        folder,
        base_name=lasting_name(config.base),
        base_digest=inputs.base_digest,
        data_digest=inputs.manifest["digest"],
        run_id=run_id,
    )


def register(config: Run, stage: str, manifest: AdapterManifest) -> int:
    """The adapter at `config.out` as a new version, or the one that it is already."""
    assert config.out is not None and config.set_folder is not None
    tags = {
        "set_folder": str(config.set_folder.resolve()),
        "data_digest": manifest.data_digest,
        "base": manifest.base_name,
        "stage": stage,
    }
    return registry.register_adapter(config.out, registry.NAME, manifest.run_id, tags)
