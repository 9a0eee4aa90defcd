"""`revelator deploy`: a registry version into the live model repository, and into service if a server runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from revelator import registry
from revelator.errors import ArtifactError
from serving.commands.deploy_vllm import deploy_vllm

HOME = "Home folder.  [env: REVELATOR_HOME; default: runs]"


@click.command()
@click.option("--alias", default=registry.CHAMPION, show_default=True, help="Alias or number of the version.")
@click.option("--name", default=registry.NAME, show_default=True, help="Name of the registered model.")
@click.option("--home", type=click.Path(path_type=Path), default=registry.home_folder, help=HOME)
@click.option("--index", type=click.Path(path_type=Path), help="Index to search from now on (default: as recorded).")
@click.option("--keep", default=3, show_default=True, type=click.IntRange(1), help="Version folders to keep.")
@click.option("--engine", type=click.Choice(["own", "vllm"]), default="own", show_default=True, help="Who runs it.")
@click.option("--also", multiple=True, metavar="VERSION", help="With vllm: a further version over the same base.")
@click.option("--tracking-uri", help="MLflow store (default: MLFLOW_TRACKING_URI, else mlflow.db below --home).")
@click.option("--json", "as_json", is_flag=True, help="Write JSON for machines.")
def deploy(
    alias: str,
    name: str,
    home: Path,
    index: Path | None,
    keep: int,
    engine: str,
    also: tuple[str, ...],
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Put a registered version into the live model repository.

    The version folder appears whole, by one rename. If a server of this home folder runs, it loads the version, and the
    one before it stays in service when that fails. To roll back, deploy the number of an older version.

    \b
    Examples:
      revelator deploy
      revelator deploy --alias 3 --home runs/demo
      revelator deploy --engine vllm --also 3
    """
    if engine == "vllm":
        deploy_vllm(home, name, alias, also, tracking_uri, as_json)
        return
    from serving.deploy import deploy as put
    from serving.triton.control import load
    from serving.triton.repository import Settings, lay_out, recorded_parameters

    console = Console(stderr=True)
    with console.status("ask the registry") as status:
        registry.connect(tracking_uri, home)
        version = registry.resolve(name, alias)
        before = recorded_parameters(home, "retriever").get("index")
        if index:
            lay_out(home, Settings(index=index))
        done = put(home, version, keep=keep, report=status.update)
        if index and done.url:
            try:
                load(done.url, "retriever", 1)
            except ArtifactError:  # the old index is still being searched: it stays on record
                lay_out(home, Settings(index=Path(before) if before else None))
                raise
    if as_json:
        value = {**asdict(done.promotion), "folder": str(done.folder), "url": done.url, "removed": done.removed}
        click.echo(json.dumps(value))
        return
    click.echo(f"version {done.promotion.version} of {done.promotion.model}: {done.folder}")
    if done.removed:
        click.echo(f"removed, beyond the {keep} that are kept: {', '.join(map(str, done.removed))}")
    if done.url:
        click.echo(f"in service at {done.url}")
    else:
        click.echo(f"no server runs; next: revelator serve --home {home}")
