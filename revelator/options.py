"""Options that several commands share, and options that have no meaning together."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

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
ENGINE_HELP = "`ray` spreads the work over the Ray cluster that RAY_ADDRESS names, or over this machine's CPUs."
ENGINE = click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True, help=ENGINE_HELP
)


def refuse_options_except(names: Collection[str], kind: str) -> None:
    """Raises UsageError for an option of the command line that has no meaning with the option `kind`."""
    context = click.get_current_context()
    for option in context.command.params:
        is_given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if is_given and option.name not in names:
            raise click.UsageError(f"{option.opts[0]} has no meaning with {kind}: leave it out")
