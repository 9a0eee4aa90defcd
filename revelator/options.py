"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from revelator.registry import NAME, find_home

FOLDER = click.Path(path_type=Path)
BASE = click.option("--base", help="Overrides the base that the adapter's manifest names.")
HOME = click.option("--home", type=FOLDER, default=find_home, help="Home folder.  [env: REVELATOR_HOME; default: runs]")
URI = click.option("--tracking-uri", help="MLflow.  [env: MLFLOW_TRACKING_URI; default: HOME/mlflow.db]")
REGISTERED = click.option("--name", default=NAME, show_default=True, help="Registered model.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")
