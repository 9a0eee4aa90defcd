"""`revelator train`: checks what can be checked at once, then runs `accelerate launch` of training/sft.py."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
from rich.console import Console

from revelator.artifact import base_folder, disk_errors
from revelator.durable import write_bytes
from revelator.errors import ConfigError, RevelatorError
from revelator.registry import home_folder
from training.checkpoints import last_whole, sole_writer
from training.config import TrainConfig, find_config, load_config

FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("config", metavar="CONFIG.yaml")
@click.option("--set", "--set-folder", "set_folder", type=FOLDER, help="Instruction set; overrides the file's.")
@click.option("--base", help="`tiny`, a folder, or a Hub id; overrides the file's.")
@click.option("--out", type=FOLDER, help="Folder of the adapter.  [default: HOME/adapters/<name of CONFIG>]")
@click.option("--steps", type=click.IntRange(1), help="Overrides the file's.")
@click.option("--resume", is_flag=True, help="Go on from the last whole checkpoint of a run that was broken off.")
@click.option(
    "--home", type=FOLDER, default=home_folder, help="Where commands write.  [env: REVELATOR_HOME; default: runs]"
)
@click.option("--tracking-uri", help="MLflow server or store.  [env: MLFLOW_TRACKING_URI; default: HOME/mlflow.db]")
@click.option("--json", "as_json", is_flag=True, help="Write the result as JSON to standard output.")
def train(
    config: str,
    set_folder: Path | None,
    base: str | None,
    out: Path | None,
    steps: int | None,
    resume: bool,
    home: Path,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Fine-tune a base with LoRA on an instruction set; track it in MLflow and register the adapter as a version.

    CONFIG.yaml is a file, or the name of one that ships: demo, tiny-cpu, real, qwen2.5-0.5b.

    \b
    Examples:
      revelator train demo --set runs/demo/sets/world
      revelator train my.yaml --base Qwen/Qwen2.5-0.5B --out runs/adapters/qwen
      revelator train my.yaml --resume
      revelator train demo --set DIR --tracking-uri http://127.0.0.1:5000
    """
    path = find_config(config)
    settings = load_config(
        path,
        set_folder=set_folder,
        base=base,
        steps=steps,
        out=out or load_config(path).out or home / "adapters" / path.stem,
    )
    if settings.set_folder is None:
        raise ConfigError("set_folder: no instruction set is named", where=str(path), hint="give --set DIR")
    base_folder(settings.base)
    began = time.monotonic()
    with disk_errors(settings.work), sole_writer(settings.work):
        result = _launch(settings, resume, home, tracking_uri)
    shutil.rmtree(settings.work)
    if as_json:
        click.echo(json.dumps(result | {"seconds": round(time.monotonic() - began, 1)}))
        return
    seconds = time.monotonic() - began
    click.echo(f"adapter {result['adapter']}: {result['name']} version {result['version']}, in {seconds:.0f} s")
    store = f" --tracking-uri {tracking_uri}" if tracking_uri else ""
    click.echo(f"next: revelator promote --home {home} --version {result['version']}{store}")


def _launch(settings: TrainConfig, resume: bool, home: Path, tracking_uri: str | None) -> dict:
    """Runs the script in its own processes with the resolved configuration; returns what it wrote to result.json."""
    console = Console(stderr=True)
    if not resume:
        for old in settings.work.glob("checkpoint-*"):
            shutil.rmtree(old)
        (settings.work / "run.json").unlink(missing_ok=True)
    elif last_whole(settings.work) is None:
        console.print("no whole checkpoint to go on from: starting at step 0", highlight=False)
    resolved = settings.work / "config.yaml"
    write_bytes(resolved, settings.to_yaml().encode())
    console.print(
        f"[bold]resolved configuration[/] ({resolved})\n{settings.to_yaml()}", highlight=False, soft_wrap=True
    )
    command = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        *_processes(settings),
        "-m",
        "training.sft",
        str(resolved),
    ]
    environment = os.environ | {"REVELATOR_HOME": str(home), "TOKENIZERS_PARALLELISM": "false"}
    environment.setdefault("PYTHONWARNINGS", "ignore::FutureWarning,ignore::UserWarning")
    if tracking_uri:
        environment["MLFLOW_TRACKING_URI"] = tracking_uri
    status = subprocess.run(command + ["--resume"] * resume, env=environment, stdout=sys.stderr, check=False).returncode
    if status:
        raise RevelatorError(
            "the training ended with an error, told above",
            where=str(settings.work),
            hint="once it is mended, the same command with --resume goes on from the last whole checkpoint",
        )
    return json.loads((settings.work / "result.json").read_text())


def _processes(settings: TrainConfig) -> list[str]:
    threads = settings.threads or max(1, len(os.sched_getaffinity(0)) // settings.processes)
    counted = [
        "--num_processes",
        str(settings.processes),
        "--num_machines",
        "1",
        "--num_cpu_threads_per_process",
        str(threads),
    ]
    several = ["--multi_gpu"] if settings.processes > 1 else ["--quiet"]
    return [*counted, *several, "--mixed_precision", "no", "--dynamo_backend", "no"]
