"""LoRA fine-tuning of a base on an instruction set: what `revelator train` runs under `accelerate launch`.

The configuration is a resolved one: `set_folder` and `out` are set. In order: read and check, tokenise, load the base,
train all tasks with TRL on completion tokens only, write the best adapter with its manifest, register it.
Design notes:
* Rows are tokenised here and not by TRL, so that training, evaluation and serving tokenise a prompt by the same call.
* The order of rows is computed before the first step (training.instructions), so a resumed run ends where the killed
  one would have: same adapter, byte for byte, on the same machine and thread count.
* The base stays in fp32 on a CPU: without bf16 units, bf16 autocast is 2.5 times slower there. On a GPU it is bf16.
* Checkpoints lie beside the adapter's folder, which appears by one rename when the training is over.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mlflow
import torch
import transformers
from accelerate import PartialState
from datasets import Dataset
from peft import LoraConfig
from rich.console import Console
from transformers import PreTrainedTokenizerBase
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig

from revelator import registry
from revelator.artifact import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    MANIFEST,
    AdapterManifest,
    base_digest,
    base_folder,
    disk_errors,
    verify_files,
)
from revelator.errors import ConfigError, DataError
from revelator.files import sha256_text, staged_folder
from revelator.rows import read_split, sample_rows, verify_set
from training.base_model import check_base, load_base, load_tokenizer, precision
from training.callbacks import Report, WholeCheckpoints
from training.checkpoints import BEST, forget, identity, record_run, sole_writer
from training.config import TrainConfig, load_config
from training.stage import Start, begin, common_settings, complete_folder, name_lastingly, processes, register
from training.task_trainer import TaskTrainer, read_best
from training.tokens import TokenRow, TokenTable, keep_whole, shares, token_table, tokenise, training_order
from training.tracking import log_inputs, tracked_run

console = Console(stderr=True)


@dataclass(frozen=True)
class Inputs:
    """Everything that a training reads, checked."""

    base: Path
    base_digest: str
    manifest: dict
    tokenizer: PreTrainedTokenizerBase
    tokens: TokenTable
    order: list[int]
    dev: list[TokenRow]
    lost: dict[str, int]  # training rows over the length, by task
    lost_dev: int


def as_dataset(rows: list[TokenRow]) -> Dataset:
    return Dataset.from_dict({"input_ids": [r.input_ids for r in rows], "labels": [r.labels for r in rows]})


def trainer_settings(config: TrainConfig, dtype: torch.dtype) -> SFTConfig:
    return SFTConfig(
        **common_settings(config, dtype),
        per_device_eval_batch_size=config.evaluation.batch_size,
        train_sampling_strategy="sequential",  # the order is decided already
        eval_strategy="steps",
        eval_steps=config.evaluation.every,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        packing=False,
    )


def lora(config: TrainConfig) -> LoraConfig:
    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules="all-linear",  # every linear layer but the output layer
        bias="none",
        task_type="CAUSAL_LM",
    )


def save_adapter(config: TrainConfig, inputs: Inputs, run_id: str) -> AdapterManifest:
    """The best adapter's folder at `config.out`: whole with its manifest, or not there."""
    assert config.out is not None
    with disk_errors(config.out), staged_folder(config.out) as stage:
        for name in (ADAPTER_WEIGHTS, ADAPTER_CONFIG):
            shutil.copyfile(config.work / BEST / name, stage / name)
        return complete_folder(stage, config, inputs, run_id)


def read_inputs(config: TrainConfig) -> Inputs:
    """Base, set and tokens. Raises an error of revelator.errors for whatever does not fit."""
    if config.set_folder is None or config.out is None:
        raise ConfigError("set_folder and out must be given", hint="run `revelator train`, or write both in the file")
    base = base_folder(config.base)
    manifest = verify_set(config.set_folder)
    tokenizer = load_tokenizer(base)
    weighted = {task for task, weight in config.tasks.items() if weight > 0}
    digest = base_digest(base)
    key = sha256_text(f"{manifest['files']['train.parquet']} {digest} {sorted(weighted)}")[:16]
    read = token_table(config.set_folder, "train", weighted, tokenizer, config.work / f"train-{key}.arrow")
    whole, lost = keep_whole(read.tasks, read.lengths, config.max_length, config.lost_rows_limit)
    tokens = read.select(whole)
    drawn_as = shares(config.tasks, Counter(tokens.tasks), config.sampling_temperature)
    dev = sample_rows(read_split(config.set_folder, "dev", drawn_as), config.evaluation.rows_per_task)
    if not dev:
        raise DataError("the dev split has no row of the tasks that are trained", where=str(config.set_folder))
    judged = [row for row in tokenise(dev, tokenizer) if len(row.input_ids) <= config.max_length]
    check_base(base, tokenizer, longest=max(tokens.lengths), highest=read.highest)
    order = training_order(
        tokens.tasks, tokens.lengths, drawn_as, batch_size=config.global_batch, steps=config.steps, seed=config.seed
    )
    return Inputs(base, digest, manifest, tokenizer, tokens, order, judged, lost, len(dev) - len(judged))


def make_trainer(config: TrainConfig, inputs: Inputs, report: Report) -> TaskTrainer:
    dtype = precision(config)
    trainer = TaskTrainer(
        dev=inputs.dev,
        work=config.work,
        model=load_base(config, inputs.base, dtype),
        args=trainer_settings(config, dtype),
        train_dataset=inputs.tokens.rows.select(inputs.order),
        eval_dataset=as_dataset(inputs.dev),  # asked for because evaluation is on
        processing_class=inputs.tokenizer,
        peft_config=lora(config),
        callbacks=[WholeCheckpoints(), report],
    )
    trainer.remove_callback(PrinterCallback)
    name_lastingly(trainer.model.peft_config["default"], config.base)
    return trainer


def fit(trainer: TaskTrainer, config: TrainConfig, checkpoint: Path | None) -> None:
    """Trains to the last step, where the trainer evaluates too; every process of a distributed run calls it.

    An adapter that a killed run kept from a step after its last whole checkpoint stays the best one to beat: that step
    comes again with the same score, so the adapter that is left in the end is the same.
    """
    trainer.best = read_best(config.work) if checkpoint else {}
    with disk_errors(config.work):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)


def finished(config: TrainConfig, wanted: dict) -> AdapterManifest | None:
    """The adapter's manifest when this very training was over before it was killed, else None."""
    assert config.out is not None
    if not (config.out / MANIFEST).is_file():
        return None
    manifest = verify_files(config.out)
    made = identity(load_config(config.out / "config.yaml"), manifest.base_digest, manifest.data_digest)
    return manifest if made == wanted else None


def train(config: TrainConfig, *, resume: bool) -> dict | None:
    """The whole training. Process 0 of a distributed run tracks, saves and registers, and returns what it made:
    `adapter`, `name`, `version`, `run_id`, `tracking_uri`, `figures`. The others return None."""
    torch.set_num_threads(config.threads or torch.get_num_threads())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    state = processes()
    if not state.is_main_process:
        inputs, start = prepare(config, state, resume)
        if not (resume and finished(config, start.identity)):
            fit(make_trainer(config, inputs, Report(console, active=False)), config, start.checkpoint)
        return None
    uri = registry.connect()
    report = Report(console)
    with sole_writer(config.work, "writer"), registry.store_errors():
        inputs, start = prepare(config, state, resume)
        manifest = finished(config, start.identity) if resume else None
        if manifest is None:
            describe(config, inputs)
            manifest = tracked_fit(config, inputs, start, report)
        version = register(config, config.stage, manifest)
    made = {"adapter": str(config.out), "name": registry.NAME, "version": version, "run_id": manifest.run_id}
    return made | {"tracking_uri": uri, "figures": report.figures}


def prepare(config: TrainConfig, state: PartialState, resume: bool) -> tuple[Inputs, Start]:
    with state.local_main_process_first():  # it writes the tokens that the others of this machine read
        inputs = read_inputs(config)
    wanted = identity(config, inputs.base_digest, inputs.manifest["digest"])
    return inputs, begin(config, wanted, state, resume)


def tracked_fit(config: TrainConfig, inputs: Inputs, start: Start, report: Report) -> AdapterManifest:
    """Trains within an MLflow run and saves the adapter. Only now, all being checked, an earlier run's rest goes."""
    assert config.out is not None
    trainer = make_trainer(config, inputs, report)
    if start.checkpoint is None:
        forget(config.work)
    with tracked_run(start.run_id, config.out.name) as run_id:
        record_run(config.work, run_id, start.identity)
        console.print(f"MLflow run {run_id} at {mlflow.get_tracking_uri()}", highlight=False, soft_wrap=True)
        if start.checkpoint:
            console.print(f"going on from {start.checkpoint}", highlight=False, soft_wrap=True)
        else:
            lost = {f"lost_{task}": count for task, count in inputs.lost.items()}
            counts = {"train": len(inputs.tokens), "lost": sum(inputs.lost.values()), "dev": len(inputs.dev)}
            log_inputs(config, inputs.manifest, counts | lost | {"lost_dev": inputs.lost_dev})
        fit(trainer, config, start.checkpoint)
        best = {f"best/{name}": value for name, value in trainer.best.items()}
        report.figures |= best
        mlflow.log_metrics(best, step=config.steps)
        console.print("  ".join(f"{name} {value:.4g}" for name, value in best.items()), highlight=False)
        return save_adapter(config, inputs, run_id)


def describe(config: TrainConfig, inputs: Inputs) -> None:
    mean = sum(inputs.tokens.lengths[i] for i in inputs.order) / len(inputs.order)
    console.print(
        f"{len(inputs.tokens):,} training rows ({sum(inputs.lost.values())} too long), {len(inputs.dev):,} dev rows; "
        f"{config.steps} steps of {config.global_batch} rows of {mean:.0f} tokens on average",
        highlight=False,
        soft_wrap=True,
    )
    if none := sorted({task for task, weight in config.tasks.items() if weight} - set(inputs.tokens.tasks)):
        console.print(f"no rows of {', '.join(none)}: the steps go to the other tasks", highlight=False)
