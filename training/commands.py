"""`revelator train`: checks what can be checked at once, then runs `accelerate launch` of training/launched.py."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import click
from rich.console import Console

from revelator.artifact import base_folder, disk_errors, read_manifest
from revelator.errors import ArtifactError, ConfigError, RevelatorError
from revelator.files import write_bytes
from revelator.registry import home_folder
from revelator.rows import verify_set
from training.checkpoints import RUN, last_whole, sole_writer
from training.config import Run, accelerate_file, find_config, load_config
from training.launched import INTERRUPTED, STOP_SECONDS

FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("config", metavar="CONFIG.yaml")
@click.option("--set", "--set-folder", "set_folder", type=FOLDER, help="Instruction set; overrides the file's.")
@click.option("--base", help="`tiny`, a folder, or a Hub id; overrides the file's.")
@click.option("--adapter", type=FOLDER, help="stage: grpo: the adapter that it begins with; overrides the file's.")
@click.option("--world", type=FOLDER, help="stage: grpo: the world whose answers reward plans; overrides the file's.")
@click.option("--seed", type=int, help="Overrides the file's.")
@click.option("--out", type=FOLDER, help="Folder of the adapter.  [default: HOME/adapters/<name of CONFIG>]")
@click.option("--steps", type=click.IntRange(1), help="Overrides the file's.")
@click.option("--processes", type=click.IntRange(1), help="Processes, one a GPU; overrides the file's.")
@click.option("--accelerate", help="`ddp`, `fsdp`, or a file of `accelerate config`; overrides the file's.")
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
    adapter: Path | None,
    world: Path | None,
    seed: int | None,
    out: Path | None,
    steps: int | None,
    processes: int | None,
    accelerate: str | None,
    resume: bool,
    home: Path,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Fine-tune a base with LoRA on an instruction set; track it in MLflow and register the adapter as a version.

    CONFIG.yaml is a file, or the name of one that ships: demo, real, tiny-cpu, world, logic, tiny-gpu, qwen2.5-0.5b,
    llama-3.2-1b, llama-3.2-3b, qwen2.5-7b-qlora, and for four GPUs qwen2.5-0.5b-ddp, llama-3.2-3b-fsdp,
    qwen2.5-7b-qlora-ddp. The adapter is that of the step with the best mean score of the tasks on dev rows.
    With `stage: grpo` (grpo-tiny) it goes on from an adapter, by rewards for the plans that it writes itself.

    \b
    Examples:
      revelator train demo --set runs/demo/sets/world
      revelator train my.yaml --base Qwen/Qwen2.5-0.5B --out runs/adapters/qwen
      revelator train my.yaml --resume
      revelator train llama-3.2-1b --set DIR --processes 2 --accelerate ddp
      revelator train grpo-tiny --set DIR --adapter runs/adapters/demo --world runs/demo/world
      revelator train demo --set DIR --tracking-uri http://127.0.0.1:5000
    """
    path = find_config(config)
    settings = load_config(
        path,
        set_folder=set_folder,
        base=base,
        adapter=adapter,
        world=world,
        seed=seed,
        steps=steps,
        processes=processes,
        accelerate=accelerate,
        out=out or load_config(path).out or home / "adapters" / path.stem,
    )
    if find_spec("accelerate") is None:  # training runs in a process of its own, whose error would be a traceback
        raise ModuleNotFoundError(name="accelerate")
    if settings.set_folder is None:
        raise ConfigError("set_folder: no instruction set is named", where=str(path), hint="give --set DIR")
    verify_set(settings.set_folder)
    base_folder(settings.base)
    _check_place(settings)
    began = time.monotonic()
    made = not settings.work.parent.exists()
    with disk_errors(settings.work), sole_writer(settings.work, "starter"):
        result: dict = {}
        try:
            result = _launch(settings, resume, home, tracking_uri)
        finally:
            if result.get("exit_status") == 0 or not (settings.work / RUN).exists():
                shutil.rmtree(settings.work)
                if made:
                    with suppress(OSError):  # adapters lie there by now, or other trainings
                        settings.work.parent.rmdir()
    status = result.pop("exit_status", None)
    if status != 0:
        _end_badly(settings, status)
    if as_json:
        click.echo(json.dumps(result | {"seconds": round(time.monotonic() - began, 1)}))
        return
    seconds = time.monotonic() - began
    click.echo(f"adapter {result['adapter']}: {result['name']} version {result['version']}, in {seconds:.0f} s")
    store = f" --tracking-uri {tracking_uri}" if tracking_uri else ""
    click.echo(f"next: revelator model promote --home {home} --version {result['version']}{store}")


def _check_place(settings: Run) -> None:
    """The adapter takes the place of what stands at `out`: only another adapter may go for it."""
    out = settings.out
    assert out is not None
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        read_manifest(out)
    except (ArtifactError, OSError) as error:
        raise ConfigError(
            "something stands there that is no adapter", where=f"--out {out}", hint="name another folder, or remove it"
        ) from error


def _launch(settings: Run, resume: bool, home: Path, tracking_uri: str | None) -> dict:
    """Runs the training in its own processes; returns its outcome, which is empty when it ended without one."""
    console = Console(stderr=True)
    begun = last_whole(settings.work)
    if resume and begun is None:
        console.print("no whole checkpoint to go on from: starting at step 0", highlight=False)
    if begun and not resume:
        console.print(
            f"starting anew: {begun} of a run that was broken off goes before the first step "
            "(to keep it: Ctrl-C now, then the same command with --resume)",
            highlight=False,
            soft_wrap=True,
        )
    resolved = settings.work / "config.yaml"
    write_bytes(resolved, settings.to_yaml().encode())
    console.print(
        f"[bold]resolved configuration[/] ({resolved})\n{settings.to_yaml()}", highlight=False, soft_wrap=True
    )
    command = [sys.executable, "-m", "accelerate.commands.launch", *_processes(settings)]
    command += ["-m", "training.launched", str(resolved), *["--resume"] * resume]
    process = subprocess.Popen(
        command,
        env=_environment(home, tracking_uri),
        stdin=subprocess.PIPE,  # closed when this process ends, however it ends: see training.launched
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # Ctrl-C reaches this process alone
    )
    assert process.stdin and process.stdout
    outcome: dict = {}
    try:
        outcome = _outcome(process.stdout)
    except KeyboardInterrupt:
        console.print("\nstopping …", highlight=False)
        process.stdin.close()
        outcome = _outcome(process.stdout) or {"exit_status": INTERRUPTED}
    except SystemExit:  # SIGTERM: see revelator.cli
        process.stdin.close()
        raise
    finally:
        waiting = settings.processes > 1 and outcome.get("exit_status")  # see training.launched
        _end(process, 0 if waiting else STOP_SECONDS)
    return outcome


def _environment(home: Path, tracking_uri: str | None) -> dict[str, str]:
    environment = os.environ | {"REVELATOR_HOME": str(home), "TOKENIZERS_PARALLELISM": "false"}
    if tracking_uri:
        environment["MLFLOW_TRACKING_URI"] = tracking_uri
    environment.setdefault("PYTHONWARNINGS", "ignore::FutureWarning,ignore::UserWarning")
    environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait take cores from others
    return environment


def _outcome(lines: Iterable[str]) -> dict:
    """The line that is JSON; whatever a library prints before it goes to standard error."""
    for line in lines:
        if line.startswith('{"exit_status"'):
            return json.loads(line)
        click.echo(line, err=True, nl=False)
    return {}


def _end(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _end_badly(settings: Run, status: int | None) -> None:
    """Exits with `status`, whose reason stands above; None is a training that ended without a word of its own."""
    begun = last_whole(settings.work)
    way_on = f"the same command with --resume goes on from {begun}" if begun else None
    if status is None:
        hint = way_on or "run the same command again"
        raise RevelatorError("the training was killed, or ended by the error above", where=str(settings.out), hint=hint)
    if way_on and status != ConfigError.exit_status:
        click.echo(f"  {way_on}", err=True)
    sys.exit(status)


def _processes(settings: Run) -> list[str]:
    threads = settings.threads or max(1, len(os.sched_getaffinity(0)) // settings.processes)
    counted = ["--num_processes", str(settings.processes), "--num_cpu_threads_per_process", str(threads)]
    if settings.accelerate:
        return ["--config_file", str(accelerate_file(settings.accelerate)), *counted]
    several = ["--multi_gpu"] if settings.processes > 1 else ["--quiet"]  # on a machine without a GPU: gloo on its CPU
    return [*counted, "--num_machines", "1", *several, "--mixed_precision", "no", "--dynamo_backend", "no"]
