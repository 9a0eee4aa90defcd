"""`revelator eval cost`: the seconds of work of each service a question, and the servers that a rate needs.

A run's metrics hold the mean work of each part. It holds no waiting where one question runs at a time, one leaf after
the other: `concurrency: 1` and `limits: {concurrency: 1}` in the run's configuration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from evaluation.harness.folder import read_metrics, read_run
from revelator.errors import DataError
from revelator.options import AS_JSON, PATH

MONTH_HOURS = 730
FEWEST = 2  # servers of a service, so that one may fail


@dataclass(frozen=True)
class Demand:
    """Mean seconds of work of one question at each service, and the tokens that language models at endpoints read and
    write: the generator, and a planner and a judge if there are such."""

    revelator: float
    retriever: float
    generator: float
    tokens_in: float
    tokens_out: float


@dataclass(frozen=True)
class Sizing:
    """Servers of each service that `rate` questions a second need, and what those of the revelator and the generator's
    tokens cost: for a month of 730 hours, and for one question."""

    rate: float
    revelator: int
    retriever: int
    generator: int
    month: float
    question: float


def sum_work(
    parts: Mapping[str, Mapping[str, float]], has_planner: bool = False, judges_at_endpoint: bool = False
) -> Demand:
    """Sums the `parts` of a run's metrics. `has_planner`: an endpoint routed and planned. Raises DataError where no
    question had a trace."""
    if not parts:
        raise DataError("no question of this run has a trace", hint="predictions of another system have none")
    revelator = [parts["route"], parts["plan"], parts["relevance"]]
    planned = [parts["route"], parts["plan"]] if has_planner else []
    endpoints = [parts["reader"], *planned, *([parts["relevance"]] if judges_at_endpoint else [])]
    return Demand(
        sum(part["seconds"] for part in revelator),
        parts["search"]["seconds"],
        parts["reader"]["seconds"],
        sum(part["tokens_in"] for part in endpoints),
        sum(part["tokens_out"] for part in endpoints),
    )


def size_deployment(
    demand: Demand,
    rate: float,
    busy: float,
    *,
    server_hour: float = 0.0,
    tokens_in: float = 0.0,
    tokens_out: float = 0.0,
) -> Sizing:
    """`busy` is the share of its time that a server may be at work: the rest is for peaks, and for queues to stay
    short. Prices are of a server of the revelator an hour, and of a million tokens that the generator reads and
    writes."""

    def count(seconds: float) -> int:
        return max(FEWEST, math.ceil(rate * seconds / busy)) if seconds else 0

    servers = count(demand.revelator)
    asked = rate * MONTH_HOURS * 3600
    tokens = (demand.tokens_in * tokens_in + demand.tokens_out * tokens_out) / 1e6
    month = servers * server_hour * MONTH_HOURS + asked * tokens
    return Sizing(rate, servers, count(demand.retriever), count(demand.generator), month, month / asked)


@click.command()
@click.argument("run_folder", metavar="RUN", type=PATH)
@click.option("--rate", "rates", multiple=True, default=(1.0,), show_default=True,
              type=click.FloatRange(0, min_open=True), help="Questions a second; may be given again.")  # fmt: skip
@click.option("--busy", default=0.6, show_default=True, type=click.FloatRange(0, 1, min_open=True),
              help="Share of its time that a server may be at work.")  # fmt: skip
@click.option("--server-hour", default=0.0, type=click.FloatRange(0), help="Price of a revelator's server an hour.")
@click.option(
    "--tokens-in", default=0.0, type=click.FloatRange(0), help="Price of 1,000,000 tokens that an endpoint reads."
)
@click.option("--tokens-out", default=0.0, type=click.FloatRange(0), help="Price of 1,000,000 tokens that it writes.")
@AS_JSON
def cost(run_folder: Path, rates: tuple[float, ...], busy: float, as_json: bool, **prices: float) -> None:
    """Calculate the servers that so many questions a second of RUN's system need, and what a month and a question cost.

    The seconds of work of a question are those that the traces of RUN measured on its machine. They hold no waiting
    where the run asked one question at a time, one leaf after the other: `concurrency: 1` and
    `limits: {concurrency: 1}` in its configuration. This is a calculation, not a measurement at that rate.

    \b
    Examples:
      revelator eval cost runs/evaluations/auto --rate 1 --rate 100
      revelator eval cost runs/evaluations/auto --rate 20 --server-hour 2.50 --tokens-in 0.15 --tokens-out 0.60
    """
    run = read_run(run_folder)
    at_endpoint = bool(run.config.get("planner")), isinstance(run.config.get("judge"), dict)
    demand = sum_work(read_metrics(run_folder)["parts"], *at_endpoint)
    sizings = [size_deployment(demand, rate, busy, **prices) for rate in rates]
    if as_json:
        click.echo(json.dumps({"seconds": asdict(demand), "sizes": [asdict(sizing) for sizing in sizings]}))
        return
    columns = "questions/s", "revelators", "retrievers", "generators", "a month", "a question"
    table = Table(*columns, title=f"{run.name}: servers and cost")
    for sizing in sizings:
        servers = str(sizing.revelator), str(sizing.retriever), str(sizing.generator)
        table.add_row(f"{sizing.rate:g}", *servers, f"{sizing.month:,.0f}", f"{sizing.question:.6f}")
    Console().print(table)
    work = f"revelator {demand.revelator:.3f}, retriever {demand.retriever:.3f}, generator {demand.generator:.3f}"
    click.echo(f"seconds of work a question (n = {len(run.ids)}, {run.machine}): {work}")
    click.echo(f"tokens of endpoints a question: {demand.tokens_in:,.0f} in, {demand.tokens_out:,.0f} out")
