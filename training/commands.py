"""The command `revelator train`: checks the configuration, then trains in processes of its own (training.launch)."""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from revelator.artifact import ADAPTER, BASE, explain_full_disk, find_base
from revelator.errors import ConfigError, RevelatorError
from revelator.minilm import fetch_minilm
from revelator.options import AS_JSON, HOME, PATH
from revelator.reading import READER
from revelator.rows import find_plan_fault, verify_set
from training.checkpoints import RUN, find_checkpoint, lock_work
from training.config import (
    AdapterConfig,
    AnyConfig,
    FineTuneConfig,
    GrpoConfig,
    PretrainConfig,
    ReaderConfig,
    find_config,
    load_config,
)
from training.export import fetch_adapter
from training.launch import launch

MADE = {  # by stage: what it makes, and the folder of the home in which it lies
    "sft": (ADAPTER, "adapters"),
    "grpo": (ADAPTER, "adapters"),
    "pretrain": (BASE, "bases"),
    "reader": (READER, "readers"),
}


@click.command()
@click.argument("config", metavar="CONFIG.yaml")
@click.option(
    "--set",
    "sets",
    type=PATH,
    multiple=True,
    help="Instruction set; give it several times for several sets, or twice to weigh one twice (grpo: one set). "
    "Overrides the file's.",
)
@click.option("--rows", type=PATH, multiple=True, help="stage: reader: files of rows for reading; override the file's.")
@click.option("--base", help="`mini`, a folder, or a Hub id; overrides the file's.")
@click.option(
    "--adapter",
    help="Begin with this adapter: a folder, a version number, `latest`, or an alias such as `champion`; overrides the "
    "file's.",
)
@click.option("--world", type=PATH, help="stage: grpo: the world whose answers reward plans; overrides the file's.")
@click.option("--seed", type=int, help="Overrides the file's.")
@click.option(
    "--out",
    type=PATH,
    help="Folder of what is trained.  [default: HOME/adapters/CONFIG, HOME/bases/CONFIG or HOME/readers/CONFIG]",
)
@click.option("--steps", type=click.IntRange(1), help="Overrides the file's.")
@click.option(
    "--processes", type=click.IntRange(1), help="Processes, one a GPU, that share the rows of the file's steps."
)
@click.option("--accelerate", help="`ddp`, `fsdp`, `zero3`, or a file of `accelerate config`; overrides the file's.")
@click.option("--quantization", type=click.Choice(["none", "nf4"]), help="nf4: QLoRA; overrides the file's.")
@click.option("--resume", is_flag=True, help="Go on from the last whole checkpoint of a run that was interrupted.")
@HOME
@AS_JSON
def train(
    config: str,
    sets: tuple[Path, ...],
    rows: tuple[Path, ...],
    adapter: str | None,
    out: Path | None,
    resume: bool,
    home: Path,
    as_json: bool,
    **changes: Any,
) -> None:
    """Train by what the configuration says: `stage: sft` (if none is named), `grpo`, `pretrain` or `reader`.

    CONFIG.yaml is a file, or the name of one that ships: demo, real, cpu, world, logic, select, explicit, gpu,
    smollm2-135m, qwen2.5-coder-0.5b, qwen3-0.6b, qwen3-1.7b, qwen3-4b, llama-3.2-1b, llama-3.2-3b, smollm3-3b,
    gemma-3-1b, lfm2-350m: LoRA on instruction sets, tracked in MLflow; the adapter of the step with the best mean score
    of the tasks on dev rows becomes a registered version. The file says when it ends (steps, epochs, minutes), what a
    step holds (batch_size or batch_tokens) and the precision. With --adapter it goes on from an adapter. With `stage:
    grpo` (grpo) it does so by rewards for the plans that it writes itself. With `stage: pretrain` (pretrain) it makes a
    small base, and with `stage: reader` (reader) what reads answers from passages: folders and no versions.

    \b
    Examples:
      revelator train demo --set runs/demo/sets/world
      revelator train qwen3-0.6b --set DIR --out runs/adapters/qwen
      revelator train smollm2-135m --set DIR --set OTHER --set OTHER
      revelator train my.yaml --resume
      revelator train demo --set DIR --adapter champion
      revelator train llama-3.2-3b --set DIR --processes 8 --accelerate fsdp
      revelator train qwen3-4b --set DIR --quantization nf4
      revelator train grpo --set DIR --adapter runs/adapters/demo --world runs/demo/world
      revelator train pretrain --set DIR --set OTHER --out runs/bases/mine
      revelator train reader --rows runs/reading/squad2_dev.jsonl.gz --out runs/readers/mine
      MLFLOW_TRACKING_URI=http://127.0.0.1:5000 revelator train demo --set DIR
    """
    if find_spec("accelerate") is None:  # training runs in a process of its own, whose error would be a traceback
        raise ModuleNotFoundError(name="accelerate")
    if adapter is not None:
        changes["adapter"] = fetch_adapter(adapter, home)
    settings = _resolve(config, sets, rows, out, home, changes)
    began = time.monotonic()
    result = _train_in_work_folder(settings, resume, home)
    result |= {"seconds": round(time.monotonic() - began, 1)}
    if as_json:
        click.echo(json.dumps(result))
    elif isinstance(settings, ReaderConfig):
        for name, score in result["figures"].items():
            click.echo(
                f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in score.items() if value is not None)
            )
        click.echo(f"reader {result['reader']}: {result['steps']:,} steps, {result['seconds']:.0f} s")
        click.echo(f"next: revelator eval run --rows {settings.rows[0]} --reader {result['reader']} --dev")
    elif isinstance(settings, PretrainConfig):
        click.echo(
            f"base {result['base']}: {result['steps']:,} steps, {result['tokens']:,} tokens, {result['seconds']:.0f} s"
        )
        click.echo(f"next: revelator train demo --base {result['base']} --set {settings.sets[0]}")
    else:
        click.echo(
            f"adapter {result['adapter']}: {result['name']} version {result['version']}, in {result['seconds']:.0f} s"
            + (f", {rate:,.0f} tokens/s" if (rate := result["figures"].get("train/tokens_per_second")) else "")
        )
        click.echo(f"next: revelator model promote --home {home} --version {result['version']}")


def _resolve(
    config: str,
    sets: tuple[Path, ...],
    rows: tuple[Path, ...],
    out: Path | None,
    home: Path,
    changes: dict[str, Any],
) -> AnyConfig:
    """The configuration with the command's options in it, once what it reads and its place are checked."""
    path = find_config(config)
    plain = load_config(path)
    if changes.get("world") and not isinstance(plain, GrpoConfig):
        raise ConfigError(f"stage {plain.stage} asks no world", where="--world", hint="leave it out")
    if isinstance(plain, ReaderConfig) and sets:
        raise ConfigError(f"stage {plain.stage} trains on no instruction set", where="--set", hint="give --rows FILE")
    if isinstance(plain, ReaderConfig):
        changes["rows"] = rows or None
    elif rows:
        raise ConfigError(f"stage {plain.stage} reads no rows for reading", where="--rows", hint="leave it out")
    else:
        changes["sets"] = sets or None
        if isinstance(plain, AdapterConfig) and (processes := changes.get("processes")):
            changes["gradient_accumulation"] = plain.accumulate_over(processes)
    made, place = MADE[plain.stage]
    settings = load_config(path, **changes, out=out or plain.out or home / place / path.stem)
    if isinstance(settings, ReaderConfig):
        if not settings.rows:
            raise ConfigError("no rows for reading are named", where=str(path), hint="give --rows FILE")
        if missing := next((file for file in settings.rows if not file.is_file()), None):
            raise ConfigError(
                "no such file",
                where=f"rows: {missing}",
                hint="`revelator data build` makes it",
            )
        fetch_minilm()
    else:
        _check_sets(settings, path)
    assert settings.out is not None
    made.check_place(settings.out)
    return settings


def _check_sets(settings: FineTuneConfig | GrpoConfig | PretrainConfig, path: Path) -> None:
    if not settings.sets:
        raise ConfigError("no instruction set is named", where=str(path), hint="give --set DIR")
    for folder in dict.fromkeys(settings.sets):
        manifest = verify_set(folder)
        if isinstance(settings, FineTuneConfig) and (fault := find_plan_fault(manifest["counts"]["shape"]["train"])):
            click.echo(f"warning: {folder}: {fault}", err=True)
    if not (isinstance(settings, PretrainConfig) and settings.starts_from_minilm):
        find_base(settings.base)


def _train_in_work_folder(settings: AnyConfig, resume: bool, home: Path) -> dict:
    """Trains, and removes the work folder unless it holds a run that can go on. Exits as a training that failed."""
    work = settings.work
    made_parent = not work.parent.exists()
    with explain_full_disk(work), lock_work(work, "starter"):
        result: dict = {}
        try:
            _announce_restart(work, resume)
            result = launch(settings, resume, home)
        finally:
            if result.get("exit_status") == 0 or not (work / RUN).exists():
                shutil.rmtree(work)
                if made_parent:
                    with suppress(OSError):  # what was trained lies there by now, or other trainings
                        work.parent.rmdir()
    status = result.pop("exit_status", None)
    if status != 0:
        _fail(settings, status)
    return result


def _announce_restart(work: Path, resume: bool) -> None:
    checkpoint = find_checkpoint(work)
    if resume and checkpoint is None:
        click.echo("no whole checkpoint to go on from: starting at step 0", err=True)
    if checkpoint and not resume:
        click.echo(
            f"starting anew: {checkpoint} of a run that was interrupted is removed before the first step "
            "(to keep it: Ctrl-C now, then the same command with --resume)",
            err=True,
        )


def _fail(settings: AnyConfig, status: int | None) -> None:
    """Exits with `status`, whose reason is printed above; None means that the training ended without a message."""
    checkpoint = find_checkpoint(settings.work)
    way_on = f"the same command with --resume goes on from {checkpoint}" if checkpoint else None
    if status is None:
        hint = way_on or "run the same command again"
        raise RevelatorError("the training was killed, or ended by the error above", where=str(settings.out), hint=hint)
    if way_on and status != ConfigError.exit_status:
        click.echo(f"  {way_on}", err=True)
    sys.exit(status)
