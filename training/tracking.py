"""What a training run tells MLflow: configuration, data set with digest, packages, curves, system metrics."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import mlflow
from mlflow.data.dataset_source_registry import get_dataset_source_from_json
from mlflow.data.meta_dataset import MetaDataset
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from training.config import Run

DIGEST_CHARACTERS = 36  # MLflow keeps no more; the whole digest is a parameter
SYSTEM_METRICS_SECONDS = 5


@contextmanager
def tracked_run(run_id: str | None, name: str) -> Iterator[str]:
    """An MLflow run with system metrics, a new one or the one that a killed process began. Yields its id.

    An error marks the run FAILED, a stop KILLED; its curves stay. The monitor that MLflow would start by itself logs
    nothing of a run shorter than its interval: this one takes a last sample when the run ends.
    """
    with mlflow.start_run(run_id=run_id, run_name=None if run_id else name, log_system_metrics=False) as run:
        monitor = SystemMetricsMonitor(
            run.info.run_id, SYSTEM_METRICS_SECONDS, samples_before_logging=1, resume_logging=run_id is not None
        )
        monitor.start()
        try:
            yield run.info.run_id
        except KeyboardInterrupt:
            mlflow.end_run("KILLED")
            raise
        finally:
            monitor.finish()
            monitor.collect_metrics()
            monitor.publish_metrics(monitor.aggregate_metrics())
            monitor.mlflow_logger.flush()


def log_inputs(config: Run, manifest: dict, rows: dict[str, int]) -> None:
    """Parameters, the data set, the configuration file and the environment."""
    assert config.set_folder is not None
    mlflow.log_params(_flat(config.model_dump(mode="json")) | {"data_digest": manifest["digest"]})
    mlflow.log_params({f"rows.{name}": count for name, count in rows.items()})
    source = get_dataset_source_from_json(json.dumps({"uri": str(config.set_folder.resolve())}), "local")
    dataset = MetaDataset(source, name=config.set_folder.name, digest=manifest["digest"][:DIGEST_CHARACTERS])  # type: ignore[abstract]
    mlflow.log_input(dataset, context="training")
    mlflow.log_text(config.to_yaml(), "config.yaml")
    mlflow.log_dict(manifest, "set_manifest.json")
    mlflow.log_text(environment(), "environment.txt")
    if commit := git_commit():
        mlflow.set_tag("mlflow.source.git.commit", commit)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def environment() -> str:
    """Python, machine and every installed package with its version, one a line."""
    packages = sorted({f"{d.metadata['Name']}=={d.version}" for d in distributions()}, key=str.lower)
    return "\n".join([f"# Python {platform.python_version()} on {platform.platform()}", *packages, ""])


def git_commit() -> str | None:
    """The commit of the checkout that this file belongs to, or None."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
