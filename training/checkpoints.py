"""Checkpoints that a killed run can trust: one is whole when its marker, written last, agrees with its files."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from revelator.errors import ConfigError
from revelator.files import hold_lock, sha256_folder, write_json
from training.config import Run

MARKER = "whole.json"
BEST = "best"  # the adapter of the best dev score so far
RUN = "run.json"
MOVABLE = {  # fields that may change between a run and its resumption
    "out",
    "threads",
    "log_every",
    "save_every",
    "accelerate",
}
PLACES = {"base", "set_folder", "adapter", "world"}  # what lies there is known by its digest


def mark_whole(checkpoint: Path) -> None:
    write_json(checkpoint / MARKER, sha256_folder(checkpoint, leave_out=frozenset({MARKER})))


def last_whole(work: Path) -> Path | None:
    """The latest whole checkpoint; later ones that are not whole are removed."""
    for checkpoint in sorted(work.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]), reverse=True):
        if _is_whole(checkpoint):
            return checkpoint
        shutil.rmtree(checkpoint)
    return None


def forget(work: Path) -> None:
    """Removes the checkpoints and the record of a run that was broken off."""
    for checkpoint in work.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    shutil.rmtree(work / BEST, ignore_errors=True)
    (work / RUN).unlink(missing_ok=True)


def _is_whole(checkpoint: Path) -> bool:
    marker = checkpoint / MARKER
    return marker.is_file() and json.loads(marker.read_text()) == sha256_folder(
        checkpoint, leave_out=frozenset({MARKER})
    )


def identity(config: Run, base_digest: str, data_digest: str) -> dict:
    """What two runs must share for one to go on from the other's checkpoint."""
    return {
        "config": config.model_dump(mode="json", exclude=MOVABLE | PLACES),
        "base_digest": base_digest,
        "data_digest": data_digest,
    }


def begun_run(work: Path, wanted: dict) -> str | None:
    """The MLflow run of a killed training, None when there was none; ConfigError when it was another training."""
    path = work / RUN
    if not path.is_file():
        return None
    begun = json.loads(path.read_text())
    now, then = _flat(wanted), _flat(begun["identity"])
    if differing := sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name)):
        first = differing[0]
        raise ConfigError(
            f"cannot resume: the run that was begun had other {', '.join(differing)} "
            f"({first}: {then.get(first)!r}, now {now.get(first)!r})",
            where=str(work),
            hint="run the first configuration again with --resume, or start anew without it",
        )
    return begun["run_id"]


def _flat(value: dict, prefix: str = "") -> dict:
    flat: dict = {}
    for name, part in value.items():
        flat |= _flat(part, f"{prefix}{name}.") if isinstance(part, dict) else {prefix + name: part}
    return flat


def record_run(work: Path, run_id: str, wanted: dict) -> None:
    write_json(work / RUN, {"run_id": run_id, "identity": wanted})


def sole_writer(work: Path, name: str) -> AbstractContextManager[None]:
    """Holds the lock `name` in `work` for this process (`revelator.files.hold_lock`). Raises ConfigError while another
    process holds it.

    `starter` is held by `revelator train`, `writer` by the process that trains: it may take seconds to end after the
    first was killed.
    """
    return hold_lock(work / f"{name}.lock", "training here", work, "wait for it or end it, or choose another --out")
