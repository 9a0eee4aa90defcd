"""GRPO on top of a LoRA adapter (Shao et al. 2024, section 4.1), by TRL: `stage: grpo` of `revelator train`.

The policy is the base with the adapter, which stays LoRA and is all that learns: what comes out is an adapter folder of
the same form. Rollouts are sampled without a grammar; what each is worth is in training.rewards.
Design notes:
* The order of prompts is computed before the first step and TRL shuffles nothing, so that a resumed run draws what the
  killed one would have drawn: same adapter, byte for byte, on the same machine and thread count.
* Prompts are tokenised by the call that serving uses, and generation ends at the tokenizer's end token.
* A group whose rollouts all earn the same gives no gradient: `rollouts/silent_groups` in MLflow says how many do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import torch
import transformers
from accelerate import PartialState
from datasets import Dataset
from peft import PeftModel
from rich.console import Console
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from revelator import registry
from revelator.artifact import (
    MANIFEST,
    AdapterManifest,
    disk_errors,
    lasting_name,
    verify_files,
    write_manifest,
)
from revelator.durable import staged_folder, write_bytes
from training.base_model import load_base, precision
from training.callbacks import Report, WholeCheckpoints
from training.checkpoints import begun_run, forget, last_whole, record_run, sole_writer
from training.config import GrpoConfig, load_config
from training.grpo_inputs import Inputs, read_inputs, wanted_identity
from training.plans import PlanScores
from training.rewards import reward_functions
from training.tracking import log_inputs, tracked_run

console = Console(stderr=True)


@dataclass(frozen=True)
class Start:
    """What a training is known by, and the MLflow run and the checkpoint that it goes on from, if any."""

    identity: dict
    run_id: str | None
    checkpoint: Path | None


def trainer_settings(config: GrpoConfig, dtype: torch.dtype) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(config.work),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.gradient_accumulation,
        gradient_checkpointing=config.gradient_checkpointing,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule,
        warmup_steps=int(config.warmup * config.steps),
        weight_decay=0.0,
        bf16=dtype == torch.bfloat16,
        seed=config.seed,
        num_generations=config.completions,
        max_completion_length=config.max_new_tokens,
        temperature=config.temperature,
        top_k=0,
        beta=config.kl,
        reward_weights=list(config.rewards.values()),
        shuffle_dataset=False,  # the order is decided already
        mask_truncated_completions=False,  # a plan that never ends must lose
        save_strategy="steps",
        save_steps=config.save_every,
        save_total_limit=2,  # the older one stays while the newer is written
        logging_steps=config.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=0,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


def fit(trainer: GRPOTrainer, config: GrpoConfig, checkpoint: Path | None) -> None:
    """Trains to the last step; every process of a distributed run calls it."""
    with disk_errors(config.work):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def save_adapter(model: Any, config: GrpoConfig, inputs: Inputs, run_id: str) -> AdapterManifest:
    """The policy's folder at `config.out`: whole with its manifest, or not there. The reference that a `kl` above 0
    measures from stays out of it."""
    assert config.out is not None
    with disk_errors(config.out), staged_folder(config.out) as stage:
        saved = model.peft_config["default"]
        saved.base_model_name_or_path = lasting_name(config.base)
        saved.target_modules = sorted(saved.target_modules)  # a set would be written in another order by each process
        model.save_pretrained(stage, safe_serialization=True, selected_adapters=["default"])
        (stage / "README.md").unlink()  # PEFT's empty model card
        inputs.tokenizer.save_pretrained(stage)
        write_bytes(stage / "config.yaml", config.to_yaml().encode())
        return write_manifest(
            stage,
            base_name=lasting_name(config.base),
            base_digest=inputs.base_digest,
            data_digest=inputs.manifest["digest"],
            run_id=run_id,
        )


def register(config: GrpoConfig, manifest: AdapterManifest) -> int:
    assert config.out is not None and config.set_folder is not None
    tags = {"set_folder": str(config.set_folder.resolve()), "base": manifest.base_name, "stage": config.stage}
    tags |= {"data_digest": manifest.data_digest}
    return registry.register_adapter(config.out, registry.NAME, manifest.run_id, tags)


def make_trainer(config: GrpoConfig, inputs: Inputs, report: Report) -> GRPOTrainer:
    dtype = precision(config)
    base = load_base(config, inputs.base, dtype)
    chosen = [inputs.rows[i] for i in inputs.order]
    columns = {"prompt": [r.prompt for r in chosen], "task": [r.task for r in chosen], "gold": [r.gold for r in chosen]}
    rewards: list[Any] = list(reward_functions(config.rewards, inputs.answers))
    trainer = GRPOTrainer(
        model=PeftModel.from_pretrained(base, inputs.adapter, is_trainable=True),
        reward_funcs=rewards,
        args=trainer_settings(config, dtype),
        train_dataset=Dataset.from_dict(columns),
        processing_class=inputs.tokenizer,
        callbacks=[
            WholeCheckpoints(),
            report,
            PlanScores(inputs.dev, inputs.tokenizer, inputs.answers, config, report),
        ],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def finished(config: GrpoConfig, inputs: Inputs, wanted: dict) -> AdapterManifest | None:
    """The adapter's manifest when this very training was over before it was killed, else None."""
    assert config.out is not None
    if not (config.out / MANIFEST).is_file():
        return None
    manifest = verify_files(config.out)
    made = load_config(config.out / "config.yaml")
    same = isinstance(made, GrpoConfig) and wanted == wanted_identity(
        made, manifest.base_digest, inputs.adapter_digest, manifest.data_digest
    )
    return manifest if same else None


def train(config: GrpoConfig, *, resume: bool) -> dict | None:
    """The whole stage; what it returns, and in which process, is as in `training.sft.train`."""
    torch.set_num_threads(config.threads or torch.get_num_threads())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    state = PartialState()
    if not state.is_main_process:
        inputs, start = prepare(config, state, resume)
        if not (resume and finished(config, inputs, start.identity)):
            fit(make_trainer(config, inputs, Report(console, active=False)), config, start.checkpoint)
        return None
    uri = registry.connect()
    report = Report(console)
    with sole_writer(config.work, "writer"), registry.store_errors():
        inputs, start = prepare(config, state, resume)
        manifest = finished(config, inputs, start.identity) if resume else None
        if manifest is None:
            manifest = tracked_fit(config, inputs, start, report)
        version = register(config, manifest)
    made = {"adapter": str(config.out), "name": registry.NAME, "version": version, "run_id": manifest.run_id}
    return made | {"tracking_uri": uri, "figures": report.figures}


def prepare(config: GrpoConfig, state: PartialState, resume: bool) -> tuple[Inputs, Start]:
    inputs = read_inputs(config)
    wanted = wanted_identity(config, inputs.base_digest, inputs.adapter_digest, inputs.manifest["digest"])
    run_id = begun_run(config.work, wanted) if resume else None
    with state.main_process_first():  # process 0 removes what is not whole before the others look
        return inputs, Start(wanted, run_id, last_whole(config.work) if run_id else None)


def tracked_fit(config: GrpoConfig, inputs: Inputs, start: Start, report: Report) -> AdapterManifest:
    assert config.out is not None
    counts = {"train": len(inputs.rows), "dev": len(inputs.dev), "answers": len(inputs.answers)}
    groups = config.global_batch // config.completions
    console.print(
        f"{counts['train']:,} training rows fit, {counts['dev']:,} dev rows, {counts['answers']:,} answers; "
        f"{config.steps} steps of {groups} prompts with {config.completions} rollouts each",
        highlight=False,
        soft_wrap=True,
    )
    trainer = make_trainer(config, inputs, report)
    if start.checkpoint is None:
        forget(config.work)
    with tracked_run(start.run_id, config.out.name) as run_id:
        record_run(config.work, run_id, start.identity)
        console.print(f"MLflow run {run_id} at {mlflow.get_tracking_uri()}", highlight=False, soft_wrap=True)
        if start.checkpoint:
            console.print(f"going on from {start.checkpoint}", highlight=False, soft_wrap=True)
        else:
            log_inputs(config, inputs.manifest, counts)
            mlflow.log_param("adapter_digest", inputs.adapter_digest)
        fit(trainer, config, start.checkpoint)
        return save_adapter(trainer.model, config, inputs, run_id)
