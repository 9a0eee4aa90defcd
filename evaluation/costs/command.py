"""The commands `revelator eval cost measure` and `predict`."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from evaluation.costs.model import STATIONS, Load, Prices, ServiceTimes, count_demand, predict, size_deployment
from evaluation.harness.folder import describe_machine, read_questions, read_run
from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_text, write_json
from revelator.options import AS_JSON, FOLDER

FORMAT = "revelator-service-times-1"


@click.command("measure")
@click.argument("run_folder", metavar="RUN", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="File of service times.")
@click.option("--questions", default=16, show_default=True, type=click.IntRange(2), help="Asked for each figure.")
@click.option("--concurrency", multiple=True, default=(1, 4), show_default=True, type=click.IntRange(1),
              help="Questions in flight of a check; may be given again.")  # fmt: skip
@AS_JSON
def measure_command(run_folder: Path, out: Path, questions: int, concurrency: tuple[int, ...], as_json: bool) -> None:
    """Measure the seconds of each service of RUN's system, and compare predicted with measured throughput.

    This process opens the system that RUN's configuration describes. It asks some questions of RUN one at a time, one
    leaf after the other, and averages the time of their calls. Then it asks others at each concurrency, and compares
    the throughput with the one that the service times predict.

    \b
    Example:
      revelator eval cost measure runs/eval/auto --out runs/times.json --questions 24 --concurrency 1 --concurrency 8
    """
    from evaluation.costs.service_times import ONE_AT_A_TIME, ask_all, average_calls, check_prediction
    from evaluation.harness.config import RunConfig
    from evaluation.harness.systems import SharedModels, check_system, open_system

    run = read_run(run_folder)
    config = RunConfig.model_validate(run.config)
    if config.url or run.system["kind"] not in ("strategy", "baseline"):
        raise ConfigError("the services of this run are not in this process", where=str(run_folder),
                          hint="measure a run of a strategy or baseline without `url`")  # fmt: skip
    check_system(config)
    texts = [row.question for row in sorted(read_questions(run_folder, run), key=lambda row: sha256_text(row.id))]
    first, rest = texts[:questions], texts[questions : 2 * questions]
    if len(rest) < 2:
        raise ConfigError(f"{len(texts)} questions are too few", where=str(run_folder), hint="--questions N, smaller")

    shared = SharedModels()
    slow = config.model_copy(update={"limits": config.limits | ONE_AT_A_TIME})

    async def work() -> tuple[ServiceTimes, list[dict[str, float]]]:
        async with open_system(slow, shared) as ask:
            await ask(first[0])  # the first question touches files and compiles
            times = average_calls(await ask_all(ask, first, 1))
        async with open_system(config, shared) as ask:
            await ask(first[0])
            return times, [await check_prediction(ask, rest, times, each) for each in concurrency]

    times, checks = asyncio.run(work())
    value = {
        "format": FORMAT,
        "times": asdict(times),
        "questions": len(first),
        "checks": checks,
        "system": run.system["name"],
        "adapter": run.adapter,
        "index": run.index,
        "command": shlex.join(["revelator", *sys.argv[1:]]),
        **describe_machine(),
    }
    write_json(out, value)
    if as_json:
        click.echo(json.dumps(value))
        return
    table = Table("service", "ms a call", title=times.machine)
    others = {"search": times.search, "reading": times.reading, "beside them, a question": times.overhead}
    for name, seconds in {**times.tasks, **others}.items():
        table.add_row(name, f"{1000 * seconds:.2f}")
    check = Table("questions in flight", "n", "predicted, 1/s", "measured, 1/s", "error", title="Check")
    for one in checks:
        figures = f"{one['predicted']:.3f}", f"{one['measured']:.3f}", f"{one['error']:+.1%}"
        check.add_row(f"{one['concurrency']}", f"{one['questions']}", *figures)
    Console().print(table, check)
    click.echo(f"service times: {out}")


@click.command("predict")
@click.argument("runs", nargs=-1, required=True, type=FOLDER)
@click.option("--times", "times_file", required=True, type=FOLDER, help="File of `revelator eval cost measure`.")
@click.option("--gpus", multiple=True, default=(1,), show_default=True, type=click.IntRange(1),
              help="Servers of the revelator; may be given again.")  # fmt: skip
@click.option("--concurrency", multiple=True, default=(1, 16), show_default=True, type=click.IntRange(1),
              help="Questions in flight; may be given again.")  # fmt: skip
@click.option("--searchers", default=1, show_default=True, type=click.IntRange(1), help="Servers of the retriever.")
@click.option("--readers", default=1, show_default=True, type=click.IntRange(1), help="Servers of the generator.")
@click.option("--gpu-hour", default=0.0, type=click.FloatRange(0), help="Price of a server of the revelator an hour.")
@click.option("--calls", default=0.0, type=click.FloatRange(0), help="Price of 1,000 calls of the generator.")
@click.option("--rate", multiple=True, type=click.FloatRange(0, min_open=True),
              help="Questions a second: how many servers serve them? May be given again.")  # fmt: skip
@click.option("--passages", default=0, type=click.IntRange(0), help="With --rate, in the index.  [default: RUN's own]")
@click.option("--busy", default=0.6, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="With --rate, share of its time that a server may be at work.")  # fmt: skip
@AS_JSON
def predict_command(
    runs: tuple[Path, ...],
    times_file: Path,
    gpus: tuple[int, ...],
    concurrency: tuple[int, ...],
    searchers: int,
    readers: int,
    gpu_hour: float,
    calls: float,
    rate: tuple[float, ...],
    passages: int,
    busy: float,
    as_json: bool,
) -> None:
    """Predict questions a second, seconds a question and the cost of 1,000 questions of the systems of RUNS; with
    --rate, the servers that so many questions a second need, the size of the index, and the cost of a month.

    The calls of a system are those that RUNS counted, the seconds of a call those of --times. More servers of a station
    take its work in parallel; prices are in any money.

    \b
    Examples:
      revelator eval cost predict runs/eval/* --times runs/times.json --gpus 1 --gpus 4 --gpu-hour 2.50
      revelator eval cost predict runs/eval/auto --times runs/times.json --gpus 8 --readers 32 --concurrency 64 --json
      revelator eval cost predict runs/eval/auto --times runs/times.json --rate 1 --rate 100 --passages 21000000
    """
    times, prices = read_times(times_file), Prices(gpu_hour, calls)
    found: list[dict[str, Any]] = []
    for folder in runs:
        run = read_run(folder)
        about = {"system": run.name, "benchmark": run.benchmark["name"]}
        demand = count_demand([row.cost for row in read_questions(folder, run) if row.has_cost], times)
        if rate:
            index = measure_index(run.index)
            loads = [Load(each, passages, busy) for each in rate]
            found += [about | asdict(size_deployment(demand, load, prices, index)) for load in loads]
        else:
            servers = [{"revelator": each, "retriever": searchers, "generator": readers} for each in gpus]
            found += [about | asdict(predict(demand, s, n, prices)) for s in servers for n in concurrency]
    if as_json:
        click.echo(json.dumps(found))
    else:
        Console().print(_build_table(found, times))


def measure_index(index: dict[str, Any]) -> dict[str, int]:
    """Returns `passages` and `bytes` of a run's index; nothing if the index is not on this machine."""
    folder = Path(index.get("folder", ""))
    if not index.get("count") or not (folder / "manifest.json").is_file():
        return {}
    return {"passages": index["count"], "bytes": sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())}


def _build_table(found: Sequence[dict[str, Any]], times: ServiceTimes) -> Table:
    """Of `Sizing`s or of `Prediction`s."""
    if "rate" in found[0]:
        head = ("system", "on", "questions/s", "passages", *(f"{name}s" for name in STATIONS), "index GB", "a month")
        table = Table(*head, title=f"servers by the service times of {times.machine}; a calculation, not a measurement")
        for line in found:
            servers = [str(line["servers"].get(name, 0)) for name in STATIONS]
            about = line["system"], line["benchmark"], f"{line['rate']:g}", f"{line['passages']:,}"
            table.add_row(*about, *servers, f"{line['index_gb']:.1f}", f"{line['month']:,.0f}")
        return table
    head = ("system", "on", "GPUs", "in flight", "1/s", "s each", "limit", "busy", "per 1,000")
    table = Table(*head, title=f"service times of {times.machine}")
    for line in found:
        about = line["system"], line["benchmark"], f"{line['gpus']}", f"{line['concurrency']}"
        figures = f"{line['throughput']:.3f}", f"{line['latency']:.3f}", line["bottleneck"]
        table.add_row(*about, *figures, f"{line['utilisation']:.0%}", f"{line['cost']:.4f}")
    return table


def read_times(path: Path) -> ServiceTimes:
    """Reads a file of `revelator eval cost measure`. Raises ArtifactError for any other file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']!r}")
        return ServiceTimes(**value["times"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "revelator eval cost measure RUN --out FILE"
        raise ArtifactError(f"no service times: {error}", where=str(path), hint=hint) from error
