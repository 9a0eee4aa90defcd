"""The command `revelator data fetch`: published sets, downloaded and checked."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
from rich.progress import (
    DownloadColumn,
)

from data_gen.commands.output import explain_write_errors, show_progress
from revelator.options import AS_JSON, PATH


@click.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--out", default="data", show_default=True, type=PATH, help="Folder that REVELATOR_DATA is to name.")
@click.option("--from", "mirror", help="Address or folder that has the published files.  [default: where published]")
@AS_JSON
def fetch(names: tuple[str, ...], out: Path, mirror: str | None, as_json: bool) -> None:
    """Fetch published data sets, in the form in which the configurations of this project read them.

    Without a NAME, list the sets: licence, size, whether they are in OUT, and of each published file the size and the
    sha256 that it must have (shortened; --json has all of it) and its address. Each set becomes the folder OUT/NAME. A
    download that was cut off continues when the same command runs again. A file whose sha256 is known is compared with
    it; of any other, the folder's manifest keeps the sha256, and a later fetch is compared with that.

    --from takes the published files by the names that the list shows, from a mirror, or from a folder into which you
    put them yourself.

    \b
    Examples:
      revelator data fetch
      revelator data fetch musique 2wikimultihopqa --out data
      revelator data fetch metaqa --from downloads/
      revelator data fetch hotpotqa --from https://mirror.example.org/hotpotqa --json
      REVELATOR_DATA=data revelator data build data_gen/configs/real.yaml --out runs/sets/real
    """
    from data_gen.fetch import HELD_OUT, find_set
    from data_gen.fetch import fetch as fetch_set

    if not names:
        _list_published(out, as_json)
        return
    published, made = {name: find_set(name) for name in names}, dict[str, Any]()
    had_held_out = (out / HELD_OUT).exists()
    with explain_write_errors(out), show_progress(DownloadColumn()) as show:
        for name, about in published.items():
            made[name] = fetch_set(name, about, out, mirror, lambda file, done, total: show(file, done, total=total))
    if as_json:
        click.echo(json.dumps({"out": str(out), "sets": made}, ensure_ascii=False))
        return
    for name, manifest in made.items():
        for file, download in published[name].downloads.items():
            if download.sha256 is None:
                digest = manifest["downloads"][file]["sha256"]
                click.echo(f"{file}: digest not known: recorded at the first fetch, {digest}", err=True)
        rows = ", ".join(f"{file} {count:,}" for file, count in manifest["rows"].items())
        click.echo(f"{out / name}: {rows} rows ({manifest['licence']})")
    if not had_held_out:
        click.echo(f"{out / HELD_OUT}: empty, so no question is held out; write the hashes of those to hold out")
    click.echo(f"export REVELATOR_DATA={shlex.quote(str(out.resolve()))}")


def _list_published(out: Path, as_json: bool) -> None:
    from data_gen.fetch import is_fetched, load_published

    sets = load_published()
    fetched = {name: is_fetched(published, out / name) for name, published in sets.items()}
    if as_json:
        about = {name: published.model_dump(mode="json") for name, published in sets.items()}
        click.echo(json.dumps([{"name": name, **about[name], "fetched": fetched[name]} for name in sets]))
        return
    for name, published in sets.items():
        size = f"{published.size / 1e6:,.0f} MB" if published.size else "size not known"
        click.echo(f"{name}: {published.title}; {published.licence}; {size}{'; fetched' * fetched[name]}")
        for file, download in published.downloads.items():
            click.echo(f"  {file}  {download.describe()}  {download.url}")
