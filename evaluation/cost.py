"""`revelator eval cost`: what serving so many questions a second over so many passages takes, on paper.

Each unit cost is a `Figure` that says where it is from. `evaluation/cost.yaml` has ours; a file of the user's replaces
some of them, a run of `revelator eval run` replaces what a question needs. A part has ⌈work at the peak / what one of
it can do⌉ pieces, and at least `load.fewest`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from pydantic import AfterValidator, BeforeValidator, Field

from evaluation.harness.folder import read_metrics, read_run
from revelator.config import Strict, check_config, read_table, read_yaml
from revelator.errors import ConfigError, DataError
from revelator.options import AS_JSON, PATH

GIB = 2**30
MONTH_DAYS = 365 / 12
FAISS = "faiss"  # the FAISS index that `index build` takes for so many passages
ROUNDED = 1 - 1e-12  # 30.000000000000004 machines are 30
LEAST, MOST = 1e-9, 1e15  # of a figure: no product of them overflows
MOST_RATE, MOST_PASSAGES = 1e9, 10**13
PARTS = ("plan", "relevance", "reader")
COLUMNS = "questions/s", "M passages", "engine", "executors", "servers", "or GPUs", "nodes", "GiB", "$/day", "$, GPUs"
RULES = "---:", "---:", "---", *["---:"] * 7
NOTES = {  # which figures each column rests on, by the first words of their names
    "every count": ("load",),
    "executors": ("executor", "work.searches"),
    "servers, or GPUs": ("work.plan", "work.relevance", "work.reader", "cpu", "gpu"),
    "nodes and memory": ("engines",),
    "dollars, beside the machines": ("endpoint", "disk"),
}


class Figure(Strict):
    """A number and where it is from. A bare number in a file is one that was given without a source."""

    value: float = Field(ge=0, le=MOST, allow_inf_nan=False)
    source: str = Field(pattern=r"^(measured|counted|assumed|given): \S")  # which command, or on what ground


def _read_figure(value: Any) -> Any:
    is_number = isinstance(value, int | float | str) and not isinstance(value, bool)  # YAML reads 1e-3 as a text
    return {"value": value, "source": "given: without a source"} if is_number else value


def _check_positive(figure: Figure) -> Figure:
    if figure.value < LEAST:
        raise ValueError(f"must be greater than 0, at least {LEAST:g}")
    return figure


def _check_share(figure: Figure) -> Figure:
    if figure.value > 1:
        raise ValueError("is a share: at most 1")
    return figure


def _check_count(figure: Figure) -> Figure:
    if figure.value < 1:
        raise ValueError("must be 1 or more")
    return figure


Amount = Annotated[Figure, BeforeValidator(_read_figure)]
Positive = Annotated[Amount, AfterValidator(_check_positive)]
PositiveShare = Annotated[Positive, AfterValidator(_check_share)]
Count = Annotated[Amount, AfterValidator(_check_count)]


class Machine(Strict):
    """A machine to rent. One of `units: 1` stands for one core or card."""

    units: Positive  # cores, or cards of a machine with GPUs
    dollars_hour: Amount


class Node(Machine):
    """A machine that holds vectors."""

    memory_gib: Positive


class Load(Strict):
    """How full machines may be."""

    peak_over_mean: Count  # machines are counted for the peak, tokens of an endpoint are paid at the mean
    busy: PositiveShare  # of a machine's time that it is at work at the peak
    memory_share: PositiveShare  # of a node's memory that an index may fill
    fewest: Count  # of each part, so that one may fail


class ExecutorCost(Strict):
    """An executor, which holds no model."""

    core_seconds: Positive  # of a question, without models and searches
    core_seconds_a_search: Amount  # to embed its text
    memory_gib: Positive  # that one executor holds, without the index
    machine: Machine  # of an executor that no engine is part of


class PartWork(Strict):
    """What one of the models does for a mean question."""

    tokens_in: Amount
    tokens_out: Amount
    at: Literal["servers", "endpoint"]  # on machines that are counted here, or paid by the token


class Work(Strict):
    """What a mean question needs."""

    searches: Amount
    plan: PartWork  # route, plan and what else belongs to it
    relevance: PartWork
    reader: PartWork


class ModelServer(Strict):
    """Tokens a second, read and written together, of one unit of the machine."""

    plan: Positive
    relevance: Positive
    reader: Positive
    machine: Machine


class EndpointPrice(Strict):
    """A language model of somebody else's, paid by the token."""

    dollars_a_million_in: Amount
    dollars_a_million_out: Amount


class Disk(Strict):
    """What each copy of an index keeps on disk."""

    bytes_a_passage: Amount  # beside what the engine keeps
    dollars_gib_month: Amount


class EngineCost(Strict):
    """An engine of vectors. One that is not `sharded` is searched in the executor's process, and each node holds all
    passages; a sharded one is a service of its own that spreads them."""

    bytes: Positive  # of memory, a passage
    disk_bytes: Amount  # a passage
    core_seconds: Positive  # of a query, on each node that holds a part of the passages
    core_seconds_a_million: Amount  # of a query, for each million of passages
    machine: Node
    sharded: bool = False
    from_passages: Annotated[int, Field(ge=1)] | None = None  # `faiss` takes this engine from so many on
    fixed_dollars_hour: Amount = Figure(value=0, source="counted: nothing beside the nodes")


class CostConfig(Strict):
    """A file of your own names only what differs from ours (`evaluation/cost.yaml`): `load: {busy: 0.5}`."""

    load: Load
    executor: ExecutorCost
    work: Work
    cpu: ModelServer  # a server that runs the models on its cores
    gpu: ModelServer  # one that runs them on its cards
    endpoint: EndpointPrice
    disk: Disk
    engines: dict[str, EngineCost]


@dataclass(frozen=True)
class Sizing:
    """What a mean of `questions_per_second` over `passages` takes. Models run on `cpu_servers` or on `gpus`: each has
    its bill. `memory_gib` is what copies of the index and executors hold. The executors of an engine that is not
    sharded run on its nodes."""

    questions_per_second: float
    passages: int
    engine: str
    executors: int
    cpu_servers: int
    gpus: int
    engine_nodes: int
    memory_gib: float
    dollars_day_cpu: float
    dollars_day_gpu: float


def read_costs(path: Path | None, run: Path | None = None) -> CostConfig:
    """Our figures, in their place those of the file at `path`, and in theirs what the questions of a `run` needed.
    Raises ConfigError for a figure that is none, DataError for a run without traces."""
    value = read_table("evaluation", "cost.yaml")
    where = str(path) if path else "evaluation/cost.yaml"
    if path:
        value = _replace_figures(value, read_yaml(path))
    config = check_config(value, CostConfig, where)
    if run:
        config = check_config(_replace_figures(config.model_dump(), measure_work(run, config)), CostConfig, str(run))
    return config


def _replace_figures(old: Any, new: Any) -> Any:
    """`old` with the fields of `new`. A figure is replaced as a whole: a new value needs a source of its own."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or "value" in new:
        return new
    return {**old, **{name: _replace_figures(old.get(name), value) for name, value in new.items()}}


def measure_work(folder: Path, config: CostConfig) -> dict[str, Any]:
    """The fields of `CostConfig` that a run measured: searches and tokens of a question, and tokens a second of a core,
    if each call kept all cores of its machine busy. Where calls count no tokens, as the embedded reader's, those of
    `config` stand for them."""
    run, parts = read_run(folder), read_metrics(folder)["parts"]
    cores = re.search(r"(?<!\d)(\d++) cores", run.machine)
    if not parts or not cores:
        hint = "predictions of another system have none; name a run of `revelator eval run`"
        raise DataError("no question of this run has a trace", where=str(folder), hint=hint)
    source = f"measured: {folder}, n = {len(run.ids)}, {run.machine}"
    parts["plan"] = {name: parts["plan"][name] + parts["route"][name] for name in parts["plan"]}
    paid = {
        "plan": bool(run.config.get("planner")),
        "relevance": isinstance(run.config.get("judge"), dict),
        "reader": parts["reader"]["tokens_in"] > 0,  # the embedded reader counts none
    }
    work: dict[str, Any] = {"searches": {"value": parts["search"]["calls"], "source": source}}
    speeds: dict[str, Any] = {}
    for name in PARTS:
        part, before = parts[name], getattr(config.work, name)
        counts = {key: part[key] for key in ("tokens_in", "tokens_out")}
        if part["seconds"] and not any(counts.values()):
            work[name] = {"at": "servers"}
            counts = {key: getattr(before, key).value for key in counts}
        else:
            figures = {key: {"value": count, "source": source} for key, count in counts.items()}
            work[name] = {"at": "endpoint" if paid[name] else "servers", **figures}
        if part["seconds"] and sum(counts.values()) and not paid[name]:
            speed = sum(counts.values()) / (part["seconds"] * int(cores[1]))
            speeds[name] = {"value": speed, "source": source}
    return {"work": work, "cpu": speeds}


def choose_engine(config: CostConfig, name: str, passages: int) -> str:
    """The engine of that name; of `faiss` the one for so many passages. Raises ConfigError if there is none."""
    if name == FAISS:
        starts = {n: e.from_passages for n, e in config.engines.items() if e.from_passages}
        fitting = [n for n in starts if starts[n] <= passages]
        if not fitting:
            hint = f"give one of them `from_passages: {passages}`, or name it: --engine {next(iter(config.engines))}"
            raise ConfigError(f"no engine of FAISS takes {passages:,} passages", where="engines", hint=hint)
        return max(fitting, key=lambda n: starts[n])
    if name not in config.engines:
        known = ", ".join([FAISS, *config.engines])
        raise ConfigError(f"there is no engine {name!r}", where="--engine", hint=f"take one of {known}, or describe it")
    return name


def size_deployment(config: CostConfig, rate: float, passages: int, engine: str = FAISS) -> Sizing:
    """`rate` is the mean of questions a second. Raises ConfigError if a node cannot hold all passages, and the engine
    does not spread them."""
    load, work, executor = config.load, config.work, config.executor
    name = choose_engine(config, engine, passages)
    costs = config.engines[name]
    peak, fewest = rate * load.peak_over_mean.value, math.ceil(load.fewest.value)

    def count(seconds: float, machine: Machine) -> int:
        """Machines for so many seconds of a unit's work a question."""
        whole = peak * seconds / (machine.units.value * load.busy.value)
        return max(fewest, math.ceil(whole * ROUNDED)) if seconds else 0

    own = executor.core_seconds.value + work.searches.value * executor.core_seconds_a_search.value
    executors = count(own, executor.machine)
    shards = _count_shards(costs, name, passages, load.memory_share.value)
    query = shards * costs.core_seconds.value + passages / 1e6 * costs.core_seconds_a_million.value
    searching = work.searches.value * query
    nodes = max(count(searching if costs.sharded else own + searching, costs.machine), fewest * shards)
    if not costs.sharded:
        executors = max(executors, nodes)
    copies = nodes / shards
    memory = copies * passages * costs.bytes.value / GIB + executors * executor.memory_gib.value
    disk = copies * passages * (costs.disk_bytes.value + config.disk.bytes_a_passage.value) / GIB
    hourly = nodes * costs.machine.dollars_hour.value + costs.fixed_dollars_hour.value
    hourly += executors * executor.machine.dollars_hour.value if costs.sharded else 0
    tokens = rate * 86_400 * _price_tokens(config) + disk * config.disk.dollars_gib_month.value / MONTH_DAYS
    servers = [count(_sum_seconds(work, kind), kind.machine) for kind in (config.cpu, config.gpu)]
    prices = config.cpu.machine.dollars_hour.value, config.gpu.machine.dollars_hour.value
    days = [tokens + 24 * (hourly + n * price) for n, price in zip(servers, prices, strict=True)]
    return Sizing(rate, passages, name, executors, servers[0], servers[1], nodes, memory, days[0], days[1])


def _count_shards(costs: EngineCost, name: str, passages: int, share: float) -> int:
    """Nodes that one copy of the index takes."""
    needed, given = passages * costs.bytes.value / GIB, share * costs.machine.memory_gib.value
    shards = math.ceil(needed / given * ROUNDED)
    if shards > 1 and not costs.sharded:
        message = f"{name} holds all passages on each node: {passages:,} take {needed:,.0f} GiB of its {given:,.0f}"
        hint = "take --engine milvus, which spreads them over nodes, or give its machine more memory_gib"
        raise ConfigError(message, where=f"engines.{name}", hint=hint)
    return shards


def _sum_seconds(work: Work, server: ModelServer) -> float:
    """Seconds of one unit that the models of a question take."""
    own = {name: getattr(work, name) for name in PARTS}
    return sum(
        (part.tokens_in.value + part.tokens_out.value) / getattr(server, name).value
        for name, part in own.items()
        if part.at == "servers"
    )


def _price_tokens(config: CostConfig) -> float:
    """Dollars of the tokens of a question at endpoints."""
    parts = [part for name in PARTS if (part := getattr(config.work, name)).at == "endpoint"]
    read = sum(part.tokens_in.value for part in parts) * config.endpoint.dollars_a_million_in.value
    written = sum(part.tokens_out.value for part in parts) * config.endpoint.dollars_a_million_out.value
    return (read + written) / 1e6


def list_figures(value: Any, place: str = "") -> Iterator[tuple[str, Figure]]:
    """Each figure of a configuration, with its name: `cpu.machine.units`."""
    if isinstance(value, Figure):
        yield place, value
    elif isinstance(value, Strict | Mapping):
        for name, inner in value.items() if isinstance(value, Mapping) else value:
            yield from list_figures(inner, f"{place}.{name}".lstrip("."))


def write_table(sizings: Sequence[Sizing]) -> str:
    """A Markdown table."""
    rows = [[*COLUMNS], [*RULES]]
    for one in sizings:
        counts = one.executors, one.cpu_servers, one.gpus, one.engine_nodes
        amounts = one.memory_gib, one.dollars_day_cpu, one.dollars_day_gpu
        texts = [f"{amount:,.0f}" for amount in (*counts, *amounts)]
        rows.append([f"{one.questions_per_second:,.10g}", f"{one.passages / 1e6:,.10g}", one.engine, *texts])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def write_notes(config: CostConfig, engines: Sequence[str]) -> str:
    """Which figures the columns rest on, and where each is from."""
    unused = tuple(f"engines.{name}." for name in config.engines if name not in engines)
    figures = [(name, figure) for name, figure in list_figures(config) if not name.startswith(unused)]
    lines = []
    for column, starts in NOTES.items():
        own = [(name, figure) for name, figure in figures if name.startswith(starts)]
        lines += [f"{column}:", *(f"  {name} {figure.value:,.10g} ({figure.source})" for name, figure in own)]
    return "\n".join(lines)


class _Rate(click.FloatRange):
    """A range that has no NaN, which no comparison excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail("nan is not a number of questions", param, ctx)
        return found


@click.command()
@click.argument("config", metavar="[CONFIG.yaml]", type=PATH, required=False)
@click.option("--questions-per-second", "rates", multiple=True, default=(10, 100, 1_000), show_default=True,
              type=_Rate(0, MOST_RATE, min_open=True), help="The mean; repeatable.")  # fmt: skip
@click.option("--passages", "sizes", multiple=True, default=(10**6, 10**8, 10**9), show_default=True,
              type=click.IntRange(1, MOST_PASSAGES), help="Of the index; repeatable.")  # fmt: skip
@click.option("--engine", "engines", multiple=True, default=(FAISS, "milvus"), show_default=True,
              help="`faiss` (what `index build` takes), or one by its name, such as IVF-PQ; repeatable.")  # fmt: skip
@click.option("--run", type=PATH, metavar="DIR", help="A run of `eval run`: what its questions needed, on average.")
@AS_JSON
def cost(
    config: Path | None,
    rates: tuple[float, ...],
    sizes: tuple[int, ...],
    engines: tuple[str, ...],
    run: Path | None,
    as_json: bool,
) -> None:
    """Calculate executors, model servers, GPUs, engine nodes, memory and dollars a day for questions and passages.

    Below the table stand the figures that each column rests on, and where each is from: measured, counted, assumed.
    CONFIG.yaml replaces those that differ for you (fields: docs/configuration.md), such as a price or what your engine
    does in a second. This is a calculation, not a measurement at that load.

    \b
      load: {peak_over_mean: 3}
      gpu: {reader: {value: 150_000, source: "measured: our load test"}}

    --run takes searches, tokens and speeds from your own questions. Their seconds hold no waiting where one question
    was asked at a time, one leaf after the other: `concurrency: 1` and `limits: {concurrency: 1}` of the run.

    \b
    Examples:
      revelator eval cost
      revelator eval cost --questions-per-second 50 --passages 20_000_000 --engine faiss
      revelator eval cost mine.yaml --run runs/evaluations/auto --questions-per-second 5 --json
    """
    costs = read_costs(config, run)
    sizings = [size_deployment(costs, rate, size, name) for rate in rates for size in sizes for name in engines]
    used = list(dict.fromkeys(one.engine for one in sizings))
    if as_json:
        figures = {name: figure.model_dump() for name, figure in list_figures(costs)}
        click.echo(json.dumps({"sizings": [asdict(one) for one in sizings], "figures": figures}))
        return
    click.echo(write_table(sizings))
    click.echo("\nA row is a mean load; machines are counted for its peak. Models run on servers, or on GPUs.\n")
    click.echo(write_notes(costs, used))
