"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from revelator.registry import find_home


class _NamedPath(click.Path):
    """A path with a name: `""`, as a shell writes a variable that is not set, would be the folder that one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty: is a variable of the shell not set?", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath(path_type=Path)
BASE = click.option("--base", help="Overrides the base that the adapter's manifest names.")
HOME = click.option(
    "--home",
    type=PATH,
    default=find_home,
    help="Home folder, with the registry unless MLFLOW_TRACKING_URI names one.  [env: REVELATOR_HOME; default: runs]",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON to standard output.")
