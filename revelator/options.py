"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from revelator.registry import find_home

PATH = click.Path(path_type=Path)
BASE = click.option("--base", help="Overrides the base that the adapter's manifest names.")
HOME = click.option(
    "--home",
    type=PATH,
    default=find_home,
    help="Home folder, with the registry unless MLFLOW_TRACKING_URI names one.  [env: REVELATOR_HOME; default: runs]",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")
