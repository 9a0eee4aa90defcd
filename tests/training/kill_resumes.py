"""Trains an adapter, killed with -9 at random moments: from the start, then during each resume, until it is whole.

    python tests/training/kill_resumes.py CONFIG HOME KILLS SEED

CONFIG is JSON of a `FineTuneConfig`. A run that ends before it is killed begins anew in another folder. Prints a line
of JSON a kill, and at last the folder of the adapter that the last run's resumes have made. Runs are forks of a process
that has imported everything and computed nothing, so a moment falls into the work.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import mlflow.store.model_registry.sqlalchemy_store
import mlflow.store.tracking.sqlalchemy_store  # noqa: F401  once, not in each fork

from training import sft
from training.config import FineTuneConfig


def begin(config: FineTuneConfig, resume: bool) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setpgid(0, 0)  # so that a kill reaches its helpers, too
        sft.train(config, resume=resume)
        status = 0
    finally:
        os._exit(status)


def ended(child: int, seconds: float) -> int | None:
    """The exit status; None where it runs on, and then it is killed with all that it has started."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main(values: dict, home: Path, kills: int, seed: int) -> None:
    draw = random.Random(seed)
    killed, run = 0, 0
    began = time.monotonic()
    config = FineTuneConfig(**{**values, "out": home / "adapters" / "measured"})
    assert ended(begin(config, resume=False), 600) == 0
    took = time.monotonic() - began
    resume = False
    config = FineTuneConfig(**{**values, "out": home / "adapters" / "0"})
    while killed < kills:
        moment = draw.uniform(0, took) if draw.random() < 0.5 else draw.uniform(0, took / 4)
        status = ended(begin(config, resume), moment)
        assert status in (None, 0), f"the run ended with {status}"
        if status is None:
            killed += resume  # kills of a run that began anew come beside
            checkpoints = sorted(path.name for path in Path(f"{config.out}.work").glob("checkpoint-*"))
            print(json.dumps({"moment": moment, "of": took, "resume": resume, "checkpoints": checkpoints}), flush=True)
        resume = status is None and Path(f"{config.out}.work").exists()
        if status == 0:
            run += 1
            config = FineTuneConfig(**{**values, "out": home / "adapters" / str(run)})
    assert ended(begin(config, resume), 600) == 0
    print(config.out)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
