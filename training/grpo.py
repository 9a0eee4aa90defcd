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
from revelator.artifact import MANIFEST, AdapterManifest, disk_errors, verify_files
from revelator.files import staged_folder
from training.base_model import load_base, precision
from training.callbacks import Report, WholeCheckpoints
from training.checkpoints import forget, record_run, sole_writer
from training.config import GrpoConfig, load_config
from training.grpo_inputs import Inputs, read_inputs, wanted_identity
from training.plans import PlanScores
from training.rewards import reward_functions
from training.stage import Start, begin, common_settings, complete_folder, name_lastingly, processes, register
from training.tracking import log_inputs, tracked_run

console = Console(stderr=True)


def trainer_settings(config: GrpoConfig, dtype: torch.dtype) -> GRPOConfig:
    return GRPOConfig(
        **common_settings(config, dtype),
        num_generations=config.completions,
        max_completion_length=config.max_new_tokens,
        temperature=config.temperature,
        top_k=0,
        beta=config.kl,
        reward_weights=list(config.rewards.values()),
        shuffle_dataset=False,  # the order is decided already
        mask_truncated_completions=False,  # a plan that never ends must lose
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
        name_lastingly(model.peft_config["default"], config.base)
        model.save_pretrained(stage, safe_serialization=True, selected_adapters=["default"])
        (stage / "README.md").unlink()  # PEFT's empty model card
        return complete_folder(stage, config, inputs, run_id)


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
    state = processes()
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
        version = register(config, config.stage, manifest)
    made = {"adapter": str(config.out), "name": registry.NAME, "version": version, "run_id": manifest.run_id}
    return made | {"tracking_uri": uri, "figures": report.figures}


def prepare(config: GrpoConfig, state: PartialState, resume: bool) -> tuple[Inputs, Start]:
    inputs = read_inputs(config)
    wanted = wanted_identity(config, inputs.base_digest, inputs.adapter_digest, inputs.manifest["digest"])
    return inputs, begin(config, wanted, state, resume)


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
