"""The script for SLURM with two nodes of one process each, on this machine's CPU. `srun` and `scontrol` are the tests':
they start what SLURM would start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from revelator.artifact import verify_adapter

ROOT = Path(__file__).parents[2]
SRUN = """#!/usr/bin/env bash
shift
for node in 0 1; do SLURM_NODEID=$node "$@" & nodes+=" $!"; done
trap 'kill $nodes' TERM
for node in $nodes; do wait "$node" || { status=$?; kill $nodes; wait; exit $status; }; done
"""
SETTINGS = {"steps": 16, "batch_size": 4, "learning_rate": 1e-3, "log_every": 1, "save_every": 2, "threads": 1}


@pytest.mark.timeout(900)  # three starts of two processes; how busy the machine is must not decide
def test_a_job_on_two_nodes_goes_on_from_its_checkpoint_when_it_is_sent_again(
    base: Path, set_folder: Path, empty_store: Path, tmp_path: Path
) -> None:
    shutil.copy(empty_store, tmp_path)
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\necho 127.0.0.1\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "settings.yaml").write_text(json.dumps(SETTINGS | {"base": str(base)}))
    out = tmp_path / "adapters" / "mine"
    command = [ROOT / "deploy" / "slurm.sh", tmp_path / "settings.yaml", out, "--set", set_folder]
    job = {"SLURM_NNODES": "2", "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "node[1-2]"}
    job |= {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}", "REVELATOR_HOME": str(tmp_path)}
    start = {"cwd": ROOT, "env": os.environ | job, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

    with subprocess.Popen(command, **start, start_new_session=True) as first:
        assert first.stdout
        assert any(line.startswith("step 5/16") for line in first.stdout)
        os.killpg(first.pid, signal.SIGTERM)  # as SLURM does before the time is over
        assert "step 16/16" not in first.stdout.read()
    assert first.returncode and not out.exists()
    second = subprocess.run(command, **start, check=False)
    assert second.returncode == 0, second.stdout
    assert f"going on from {out}.work/checkpoint-" in second.stdout and "step 2/16" not in second.stdout
    assert "16 steps of 8 rows" in second.stdout  # 4 of each process
    verify_adapter(out, base)
