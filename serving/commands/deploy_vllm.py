"""`revelator model deploy --engine vllm`: registry versions over one base, laid out for Triton's vLLM backend."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from revelator import registry


def deploy_vllm(
    home: Path, name: str, alias: str, also: Sequence[str], tracking_uri: str | None, as_json: bool
) -> None:
    """`alias` answers; requests may ask for the versions of `also`."""
    from serving.triton.vllm import served
    from serving.triton.vllm_repository import lay_out

    registry.connect(tracking_uri, home, must_exist=True)
    versions = {version.version: version for version in (registry.resolve(name, each) for each in (alias, *also))}
    folder = lay_out(home, list(versions.values()))
    names = served(folder / "1").versions
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "versions": names}))
        return
    for version, adapter in names.items():
        click.echo(f"version {version} of {name}: adapter {adapter}")
    click.echo(f"laid out in {folder}; a Triton server with the vLLM backend loads it as {folder.name}")
    click.echo(f"the executor plans with it from its next start; without it again: rm -r {folder}")
