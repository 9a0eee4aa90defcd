"""`revelator model deploy` and `rollback`: a version takes the traffic of a home folder, or a share of it; and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from revelator import promotions, registry
from revelator.errors import ConfigError, GateRefused, Unavailable
from revelator.options import AS_JSON, HOME

if TYPE_CHECKING:
    from serving.deploy.deploy import Deployment


def read_share(text: str) -> float:
    """`10%` or `0.1`."""
    with suppress(ValueError):
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if 0 < share <= 1:
            return share
    raise click.BadParameter(f"{text!r} is no share of the questions: 10%, or 0.1")


def read_cards(text: str) -> tuple[int, ...]:
    """`0,1`, or `cpu` for none."""
    with suppress(ValueError):
        cards = tuple(map(int, text.split(","))) if text != "cpu" else ()
        if len({*cards}) == len(cards) and min(cards, default=0) >= 0:
            return cards
    raise click.BadParameter(f"{text!r} names no cards: 0,1, or cpu")


@click.command()
@click.option("--alias", default=registry.CHAMPION, show_default=True, help="Alias or number of the version.")
@HOME
@click.option("--engine", type=click.Choice(["own", "vllm"]), help="Who runs it (default: as the release before, own).")
@click.option("--url", metavar="URL", help="Of the vLLM server, which runs already.")
@click.option(
    "--gpus", type=read_cards, metavar="0,1|cpu", help="Cards for plans and vectors (default: as recorded, cpu)."
)
@click.option("--instances", type=click.IntRange(1), help="Processes of each model on each card (default: 1).")
@click.option("--canary", type=read_share, metavar="SHARE", help="Let the version answer a share first, and judge it.")
@click.option(
    "--canary-comparisons",
    "comparisons",
    default=100,
    show_default=True,
    type=click.IntRange(1),
    help="Prompts to judge by.",
)
@click.option("--watch", is_flag=True, help="Follow the alias until it is stopped.")
@click.option("--port", default=0, metavar="PORT", help="Port for /metrics of --watch; 0: any that is free.")
@AS_JSON
def deploy(
    alias: str,
    home: Path,
    engine: str | None,
    url: str | None,
    gpus: tuple[int, ...] | None,
    instances: int | None,
    canary: float | None,
    comparisons: int,
    watch: bool,
    port: int,
    as_json: bool,
) -> None:
    """Put a registered version into service, while questions are being answered.

    The version is fetched, verified, loaded beside the one that answers, and asked smoke questions; then it takes the
    traffic. When any of that fails the one before answers on. Run it again after a kill: it finishes the work.

    \b
    Examples:
      revelator model deploy
      revelator model deploy --alias 3 --home runs/demo
      revelator model deploy --alias latest --canary 10%
      revelator model deploy --watch --port 9465
      revelator model deploy --gpus 0,1 --instances 2
      revelator model deploy --engine vllm --url http://127.0.0.1:8100
    """
    if url and engine != "vllm":
        raise click.UsageError("--url is that of a vLLM server: give --engine vllm, too")
    if watch and canary is not None:
        raise click.UsageError("--canary and --watch exclude one another")
    if engine == "vllm" and not url:
        raise click.UsageError("--engine vllm needs the address of a running vLLM server: --url http://127.0.0.1:8100")
    if engine == "vllm" and (gpus is not None or instances):
        raise click.UsageError("--gpus and --instances place our own engine; a vLLM server has the cards it began with")
    if engine and canary is not None:
        raise click.UsageError("--canary goes to the engine of the release")
    vllm = url or ("" if engine == "own" else None)
    home = home.resolve()
    if gpus is not None or instances:
        _place(home, gpus, instances)
    if watch:
        from serving.deploy.watch import Reconciler, follow_until_stopped

        follow_until_stopped(Reconciler(home, registry.NAME, alias, vllm), port, click.echo)
    elif canary is not None:
        registry.connect(home, must_exist=True)
        _try_canary(home, registry.resolve(registry.NAME, alias), canary, comparisons, as_json)
    else:
        from serving.deploy.deploy import deploy as put

        with Console(stderr=True).status("ask the registry") as status:
            registry.connect(home, must_exist=True)
            done = put(home, registry.resolve(registry.NAME, alias), vllm=vllm, report=status.update)
        _report(done, home, as_json)


@click.command()
@click.option("--served", is_flag=True, help="Return to the release before in the service, and leave the champion.")
@HOME
@AS_JSON
def rollback(served: bool, home: Path, as_json: bool) -> None:
    """Make the previous champion champion again; a second rollback goes one version further back.

    Like a promotion, it is recorded in the versions of the registered model NAME-promotions. With --served, the service
    returns at once to the release that release.json names as the previous one, also while the registry is down.

    \b
    Examples:
      revelator model rollback
      revelator model rollback --served --home runs/demo
    """
    home = home.resolve()
    if served:
        with Console(stderr=True).status("verify the release before") as status:
            done = _roll_back(home, status.update)
        return _report(done, home, as_json)
    registry.connect(home, must_exist=True)
    registry.resolve(registry.NAME, "latest")
    moved = promotions.roll_back(registry.NAME)
    text = f"version {moved.version} is champion again, in place of version {moved.replaced}"
    text += f"\nnext: revelator model deploy --home {home}"
    click.echo(json.dumps({"version": moved.version, "replaced": moved.replaced, "moved": True}) if as_json else text)


def _place(home: Path, gpus: tuple[int, ...] | None, instances: int | None) -> None:
    """Raises ConfigError for a card that is not there, and while a server runs, which takes its cards at its start."""
    import torch

    from serving.home.config import read_serving, write_serving
    from serving.home.running import find_running_server

    there = torch.cuda.device_count()
    if missing := [card for card in gpus or () if card >= there]:
        hint = "see what there is: revelator doctor"
        raise ConfigError(f"there is no GPU {missing[0]}: torch sees {there}", where="--gpus", hint=hint)
    if find_running_server(home):
        hint = f"stop it, and start it again afterwards: revelator serve --home {home}"
        raise ConfigError("a server takes its cards when it starts, and one runs", where=str(home), hint=hint)
    given = {"gpus": gpus, "instances": instances}
    changes = {name: value for name, value in given.items() if value is not None}
    write_serving(home, read_serving(home).model_copy(update=changes))


def _roll_back(home: Path, report: Callable[[str], None]) -> Deployment:
    """Works without the registry, too: it only records the deploy."""
    from serving.deploy.deploy import roll_back

    registry.require_existing(home)
    registry_error = None
    try:
        registry.connect(home, must_exist=True)
    except (Unavailable, ConfigError) as error:
        registry_error = str(error)
    return roll_back(home, report=report, registry_error=registry_error)


def _report(done: Deployment, home: Path, as_json: bool) -> None:
    from serving.home.config import read_serving

    release = done.release
    if as_json:
        more = {name: getattr(done, name) for name in ("url", "removed", "registry_error")}
        click.echo(json.dumps({**asdict(release), "folder": str(done.folder), **more}))
        return
    before = f", before it {release.previous}" if release.previous else ""
    click.echo(f"version {release.version} of {release.model}{before}: {done.folder}")
    if done.removed:
        click.echo(f"removed, as too many were kept: {', '.join(map(str, done.removed))}")
    if done.registry_error:
        click.echo(f"warning: the registry does not record it: {done.registry_error}", err=True)
    if planner := read_serving(home).planner:
        click.echo(f"{planner} plans until serving.yaml says otherwise")
    elif done.url:
        click.echo(f"in service at {'vLLM ' if release.vllm else ''}{done.url}")
    else:
        click.echo(f"no server runs; next: revelator serve --home {home}")


def _try_canary(home: Path, version: registry.Version, share: float, comparisons: int, as_json: bool) -> None:
    from serving.deploy.canary import CanaryPlan, CanaryRules

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"version {version.version} answers {share:.0%}: prompts compared", total=comparisons)
        plan = CanaryPlan(home, version, share, CanaryRules(comparisons))
        verdict = plan.run(lambda compared: progress.update(task, completed=compared))
    if as_json:
        click.echo(json.dumps({**asdict(verdict), "deployed": verdict.passes}))
    else:
        click.echo(f"prompts compared  {verdict.comparisons}, the canary failed on {verdict.errors:.1%}")
        click.echo(f"valid             {verdict.validity:.1%}, the released version {verdict.released_validity:.1%}")
        released_ms = f"{verdict.released_latency_ms:.0f} ms"
        click.echo(f"median latency    {verdict.latency_ms:.0f} ms, the released version {released_ms}")
        click.echo(f"agreement         {verdict.agreement:.1%}")
        click.echo(f"version {verdict.version} {'deployed' if verdict.passes else 'withdrawn'}")
    if not verdict.passes:
        raise GateRefused(f"version {verdict.version} was withdrawn: {'; '.join(verdict.reasons)}")
