"""Checkpoints that a killed run can trust: a checkpoint is whole if its manifest, written last, matches its files."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from revelator.errors import ArtifactError, ConfigError
from revelator.files import hold_lock, write_json
from revelator.folders import FolderKind
from training.config import Settings

CHECKPOINT = FolderKind("a checkpoint", "revelator-checkpoint-1", "revelator train CONFIG.yaml")
STATE = "state.pt"
BEST = "best"  # the adapter of the best dev score so far
RUN = "run.json"
# What may change between a run and its resumption.
MOVABLE = {"out", "threads", "log_every", "save_every", "save_minutes", "accelerate"}
PLACES = {"base", "adapter", "world", "sets"}  # what lies there is known by its digest


def save_state(work: Path, step: int, state: dict[str, Any]) -> None:
    """Writes the checkpoint of a step for a stage with a loop of its own, and keeps the one before it."""
    import torch

    folder = work / f"checkpoint-{step}"
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / STATE)
    CHECKPOINT.write_manifest(folder, {})
    for older in sorted(work.glob("checkpoint-*"), key=_read_step)[:-2]:
        shutil.rmtree(older)


def load_state(checkpoint: Path) -> dict[str, Any]:
    import torch

    return torch.load(checkpoint / STATE, weights_only=True)


def find_checkpoint(work: Path) -> Path | None:
    """Finds the latest whole checkpoint, and removes later ones that are not whole."""
    for checkpoint in sorted(work.glob("checkpoint-*"), key=_read_step, reverse=True):
        with suppress(ArtifactError):
            CHECKPOINT.read_manifest(checkpoint, verify=True)
            return checkpoint
        shutil.rmtree(checkpoint)
    return None


def clear_work(work: Path) -> None:
    """Removes checkpoints, the best adapter and the run's record."""
    for checkpoint in work.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    shutil.rmtree(work / BEST, ignore_errors=True)
    (work / RUN).unlink(missing_ok=True)


def _read_step(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def identify_run(config: Settings, **digests: str) -> dict:
    """Describes what two runs must share to continue from one checkpoint: fields, and digests of what they read."""
    return {"config": config.model_dump(mode="json", exclude=MOVABLE | PLACES), **digests}


def record_run(work: Path, run_id: str, identity: dict) -> None:
    write_json(work / RUN, {"run_id": run_id, "identity": identity})


def find_interrupted_run(work: Path, identity: dict) -> str | None:
    """Returns the recorded MLflow run id ("" for pre-training), or None if nothing is recorded. Raises ConfigError if
    the record is of another training."""
    path = work / RUN
    if not path.is_file():
        return None
    record = json.loads(path.read_text())
    now, then = flatten(identity), flatten(record["identity"])
    if differing := sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name)):
        first = differing[0]
        raise ConfigError(
            f"cannot resume: the run that was begun had other {', '.join(differing)} "
            f"({first}: {then.get(first)!r}, now {now.get(first)!r})",
            where=str(work),
            hint="run the first configuration again with --resume, or start anew without it",
        )
    return record["run_id"]


def flatten(value: dict, prefix: str = "") -> dict:
    """Flattens `{"lora": {"rank": 16}}` to `{"lora.rank": 16}`."""
    flat: dict = {}
    for name, part in value.items():
        flat |= flatten(part, f"{prefix}{name}.") if isinstance(part, dict) else {prefix + name: part}
    return flat


def lock_work(work: Path, name: str) -> AbstractContextManager[None]:
    """Holds the lock `name` in `work` for this process. Raises ConfigError while another process holds it.

    `starter` is held by `revelator train`, `writer` by the process that trains: it may take seconds to end after the
    first was killed.
    """
    return hold_lock(work / f"{name}.lock", "training here", work, "wait for it or end it, or choose another --out")
