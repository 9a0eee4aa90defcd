"""The command `revelator eval run`: systems on a benchmark or on one's own questions, or a reader on rows."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from evaluation.harness.config import GeneratorConfig, RunConfig, describe_own, load_runs, read_columns
from evaluation.reading import measure_reader
from evaluation.rows import progress_bar
from revelator import registry
from revelator.cluster import open_engine
from revelator.config import check_config
from revelator.errors import ConfigError
from revelator.options import ENGINE, PATH, refuse_options_except
from serving.agent.parts import AGENT
from serving.commands.model_options import (
    INDEX_ADDRESS,
    judge_options,
    planner_options,
    read_judge_options,
    read_planner_options,
)
from serving.models.endpoint_revelator import PlannerConfig
from serving.protocols import PlannerPrompt

if TYPE_CHECKING:
    from evaluation.harness.benchmarks import Benchmark
    from evaluation.harness.folder import Run
    from evaluation.report.page import Section
    from evaluation.report.runs import LoadedRun
    from serving.executor.judges import JudgeSetting
    from serving.retrieval.places import IndexAddress

PACKAGES = ("revelator", "data_gen", "serving", "evaluation")  # that ask and score a question
TAKEN = {  # which runs can take an option
    "generator": "it is for strategies, baselines and bounds without `url`, and for the ranking `bright`",
    "judge": "it is for strategies and baselines that judge documents, without `url`",
}
TIMEOUT_HELP = "Seconds of one call of an endpoint.  [default: as in CONFIG, else what the deadline leaves]"
OUT_HELP = (
    "The run's folder, or that of several runs.  [default: runs/evaluations/NAME of CONFIG or FILE; of --rows only with"
    " --generator URL]"
)
ROWS_OPTIONS = (
    *("rows", "reader", "dev", "adapter", "home", "generator", "generator_model", "timeout", "sample", "seed", "out"),
    "as_json",
)
HOME_HELP = "Where --questions looks for a champion.  [env: REVELATOR_HOME; default: runs]"
ADAPTER_HELP = "Folder, version, alias, or `base`.  [default of --questions: the champion below HOME, else `base`]"

LATEST_AGENT = f"models:/{AGENT}/latest"
AGENT_OPTIONS = "questions", "columns", "agent", "answer_judge", "answer_judge_model", "sample", "home", "as_json"


@click.command()
@click.argument("config", type=PATH, required=False)
@click.option("--questions", type=PATH, metavar="FILE", help="Own questions and answers, in place of CONFIG.")
@click.option("--index", type=INDEX_ADDRESS, help="The index that --questions are asked over.")
@click.option("--column", "columns", multiple=True, metavar="FIELD=NAME", help="FILE's name of a column; repeatable.")
@click.option("--rows", type=PATH, metavar="FILE", help="Rows of question, passage and answers, which a reader reads.")
@click.option("--reader", type=PATH, help="--rows: folder of a trained reader.  [default: the one that ships]")
@click.option("--dev", is_flag=True, help="--rows: only the articles that the reader's training held back.")
@click.option(
    "--agent",
    metavar="[URI]",
    is_flag=False,
    flag_value=LATEST_AGENT,
    help="A logged agent, which MLflow asks --questions; without URI the latest.",
)
@click.option("--answer-judge", metavar="URL", help="--agent: an OpenAI-compatible endpoint that judges each answer.")
@click.option("--answer-judge-model", metavar="NAME", help="--agent: the endpoint's model.")
@click.option("--out", type=PATH, help=OUT_HELP)
@click.option("--run", "names", multiple=True, help="Of several runs this one; can be given more than once.")
@click.option("--url", help="Ask the running service at this gRPC address instead of this process.")
@click.option("--sample", type=click.IntRange(1), help="Only so many questions: the first by the sha256 of their id.")
@click.option("--seed", type=int, help="Of the sample, and of what a model samples.  [default: as in CONFIG, else 0]")
@click.option("--unseen/--no-unseen", default=None, help="Leave out what a model of any of the runs has seen, or not.")
@click.option("--concurrency", type=click.IntRange(1), help="Questions in flight.")
@click.option("--adapter", help=ADAPTER_HELP)
@planner_options("An OpenAI-compatible endpoint that plans: in CONFIG's planner's place, or beside base and champion.")
@click.option(
    "--generator",
    metavar="URL",
    help="An OpenAI-compatible endpoint that reads, or `revelator`.",
)
@click.option("--generator-model", metavar="NAME", help="The endpoint's model that reads.")
@judge_options("Who judges documents, in every run that judges: the adapter, nobody, or a language model.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help=TIMEOUT_HELP)
@click.option("--home", type=PATH, default=registry.find_home, help=HOME_HELP)
@click.option(
    "--check", is_flag=True, help="Check everything that is needed, build a missing closed index; ask nothing."
)
@ENGINE
@click.option("--json", "as_json", is_flag=True, help="Write JSON: an object a run of CONFIG, then one that compares.")
def evaluate(
    config: Path | None,
    questions: Path | None,
    index: IndexAddress | None,
    columns: tuple[str, ...],
    rows: Path | None,
    reader: Path | None,
    dev: bool,
    agent: str | None,
    answer_judge: str | None,
    answer_judge_model: str | None,
    out: Path | None,
    names: tuple[str, ...],
    home: Path,
    check: bool,
    engine: str,
    as_json: bool,
    planner: str | None,
    planner_model: str | None,
    planner_prompt: PlannerPrompt | None,
    generator: str | None,
    generator_model: str | None,
    judge: str | None,
    judge_model: str | None,
    **overrides: Any,
) -> None:
    """Ask one system every question of a benchmark, and write down answers, scores and costs.

    CONFIG names benchmark, system, index and switches; evaluation/configs has examples. Run the same command again to
    continue an interrupted run: only the questions in flight are asked again. Options replace values of CONFIG.

    With `runs`, CONFIG is a comparison: several named systems or switches, each with a folder of its own. All of them
    are checked before the first question is asked, and they share index and model. One table, one sentence that says
    what follows from it, and a report compare them.

    With --questions, plain retrieval (five passages for the whole question) and `auto` (the revelator plans) are
    compared. FILE is CSV, TSV, JSON lines or parquet with `question` and `answer`, and perhaps `also` (other spellings
    of the answer), `titles` (of passages that hold it), `plan`, `route` and `kind` (the report has a table by kind of
    question). Several answers are a list, or have `|` between them; all are wanted. Where the documents hold no answer,
    `answer` is empty: it is right to refuse.
    With --planner, a language model plans, too, and so does the embedded base where `auto` is the champion.

    With --agent, MLflow evaluates a logged agent on --questions. Each question becomes a trace there, with exact match,
    F1, whether a cited passage says the values, the route, and whether the plan is valid. With --answer-judge, a
    language model says, too, whether each answer is right, and how often that agrees with F1.

    With --rows, a reader alone reads JSON lines of question, passage and answers (gzipped or not), or a language model
    (--generator), or a revelator (--generator revelator --adapter NAME). Exact match and F1 are over the rows that have
    an answer, by SQuAD's rule; the area under the curve is of those against the others; F1 of list items is over the
    exact items of list answers. A row that a language model or a revelator leaves unanswered has exact match and F1 0.

    --generator and --judge set who reads and judges in every run that can take them: baselines and
    `auto` are read by the same model. In a comparison --planner takes the place of the planners that CONFIG names; if
    it names none, it plans in every run that plans. An option that no run can take is refused.

    With --engine ray, shards of the questions are asked by the workers of a Ray cluster, one for each of its CPUs. Each
    opens the system for itself and has --concurrency questions in flight; this process writes their rows. Index,
    adapter and files must lie at the same paths on all nodes, and an endpoint's key in their OPENAI_API_KEY. The shards
    of a lost node are asked again. Rankings and predictions are scored in this process.

    \b
    Examples:
      revelator eval run --questions qa.csv --index runs/indexes/mine
      revelator eval run --questions qa.tsv --column question=Frage --column answer=Antwort --index runs/indexes/mine
      revelator eval run evaluation/configs/world.yaml --out runs/evaluations/world
      revelator eval run evaluation/configs/musique.yaml --sample 50 --concurrency 4
      revelator eval run evaluation/configs/gold-passages.yaml --generator URL --generator-model NAME --sample 50
      revelator eval run evaluation/configs/world.yaml --url 127.0.0.1:8001 --out runs/evaluations/served
      revelator eval run evaluation/configs/world-naive-5.yaml --check
      revelator eval run evaluation/configs/compare-world.yaml --run auto --run naive-5
      revelator eval run evaluation/configs/compare-planners.yaml --planner URL --planner-model NAME
      revelator eval run --questions qa.csv --index runs/indexes/mine --generator URL --generator-model NAME
      revelator eval run --questions qa.csv --agent
      revelator eval run --questions qa.csv --agent models:/revelator-agent/3 --sample 100 --json
      revelator eval run --rows runs/reading/squad2_dev.jsonl.gz --reader runs/readers/mine --dev --json
      revelator eval run --rows runs/reading/squad2_dev.jsonl.gz --generator URL --generator-model NAME --sample 200
      RAY_ADDRESS=10.0.0.1:6379 revelator eval run evaluation/configs/musique.yaml --engine ray
    """
    from evaluation.harness.benchmarks import open_benchmark
    from evaluation.harness.run import prepare_run, run_questions
    from evaluation.harness.run_metrics import write_metrics
    from evaluation.harness.systems import SharedModels
    from evaluation.report.page import build_report
    from evaluation.report.runs import load_run_folders

    if sum(one is not None for one in (config, questions, rows)) != 1:
        raise ConfigError("what is to be asked?", hint="give CONFIG, --questions FILE --index DIR, or --rows FILE")
    if rows:
        from serving.models.adapters import find_adapter

        refuse_options_except(ROWS_OPTIONS, "--rows")
        models = read_model_options(generator, generator_model, None)
        given = {name: overrides[name] for name in ("timeout", "sample", "seed")}
        who, named = models.get("generator"), overrides["adapter"]
        if (named is None) == (who == "revelator"):
            raise ConfigError("a revelator reads by its adapter", hint="--generator revelator --adapter NAME")
        measure_reader(
            rows,
            folder=reader,
            adapter=find_adapter(named, home) if named else None,
            endpoint=None if named else who,
            only_dev=dev,
            out=out,
            as_json=as_json,
            **given,
        )
        return
    if reader or dev:
        raise ConfigError("--reader and --dev belong to --rows", hint="leave them out")
    if agent and questions:
        refuse_options_except(AGENT_OPTIONS, "--agent")
        from evaluation.agent import measure_agent

        measure_agent(
            agent,
            questions,
            columns=columns,
            sample=overrides["sample"],
            url=answer_judge,
            model=answer_judge_model,
            home=home,
            as_json=as_json,
        )
        return
    if agent or answer_judge or answer_judge_model:
        raise ConfigError("--agent and --answer-judge belong to --questions", hint="add --questions FILE --agent")
    source = config or questions
    assert source is not None
    endpoint = read_planner_options(planner, planner_model, planner_prompt)
    models = read_model_options(generator, generator_model, read_judge_options(judge, judge_model))
    if questions:
        runs = make_plain_and_auto_runs(questions, index, columns, home, endpoint, **overrides)
    elif index or columns:
        raise ConfigError("--index and --column belong to --questions", hint=f"write them into {source}")
    else:
        runs = read_runs(source, endpoint, **overrides)
    chosen = set_models(choose_runs(runs, names, str(source)), models, str(source))
    folder = out or Path("runs") / "evaluations" / source.stem
    compared, command = [*runs.values()], shlex.join(["revelator", *sys.argv[1:]])
    read = cache(partial(open_benchmark, compared=compared))  # `--run` chooses runs, and changes no run's questions
    prepared = {name: prepare_run(settings, command, compared, read) for name, settings in chosen.items()}
    console, shared = Console(stderr=True), SharedModels()
    about = {name: describe_asking(run, benchmark) for name, (_, run, benchmark) in prepared.items()}
    if check:
        for said in about.values():
            click.echo(f"{said}: everything fits; nothing was asked")
        return
    with open_engine(engine, *PACKAGES) as opened:
        for name, (settings, run, benchmark) in prepared.items():
            console.print(f"{about[name]} → {folder / name}", highlight=False)
            with progress_bar() as progress:
                run_questions(settings, run, benchmark, folder / name, progress, shared, opened)
            metrics = write_metrics(folder / name, run)
            if as_json and config:
                named = {"run": str(folder / name), "system": run.name, "benchmark": benchmark.name}
                click.echo(json.dumps(named | metrics))
    loaded = load_run_folders([folder / name for name in chosen], [*chosen] if questions else None)
    if questions or len(chosen) > 1:
        report_comparison(loaded, folder, as_json)
    elif not as_json:
        print_sections(build_report(loaded).sections)
        shown = folder if "" in chosen else folder / "*"
        click.echo(f"every question: {folder}\ncompare runs: revelator eval report {shown}")


def describe_asking(run: Run, benchmark: Benchmark) -> str:
    about = f"{run.name} on {len(run.ids):,} questions of {benchmark.name}"
    return "; ".join(filter(None, [about, benchmark.describe_left_out()]))


def read_runs(config: Path, endpoint: PlannerConfig | None, **overrides: Any) -> dict[str, RunConfig]:
    """Reads the runs of a configuration, by name, with an endpoint as planner where one is given."""
    if config.suffix not in (".yaml", ".yml"):
        hint = f"own questions: --questions {config}; an adapter's scores, task by task: revelator model grade {config}"
        raise ConfigError(f"{config} is no configuration file (.yaml)", hint=hint)
    runs = load_runs(config, **overrides)
    return replace_planners(runs, endpoint, str(config)) if endpoint else runs


def choose_runs(runs: dict[str, RunConfig], names: Sequence[str], where: str) -> dict[str, RunConfig]:
    """Returns the runs of these names, all of them without names. Raises ConfigError for a name that none has."""
    if unknown := [name for name in names if name not in runs]:
        known = ", ".join(filter(None, runs))
        hint = f"runs: {known}" if known else "it holds one run, without a name: leave --run out"
        raise ConfigError(f"there is no run {unknown[0]!r}", where=where, hint=hint)
    return {name: settings for name, settings in runs.items() if not names or name in names}


def replace_planners(runs: dict[str, RunConfig], endpoint: PlannerConfig, where: str) -> dict[str, RunConfig]:
    """Returns the runs with `endpoint` as the planner of those that have one; where none has, of all that plan. Raises
    ConfigError if none does."""
    from evaluation.harness.system_needs import takes_option

    planned = {name for name, config in runs.items() if config.planner} or {
        name for name, config in runs.items() if takes_option(config, "planner")
    }
    if not planned:
        raise ConfigError("no run plans in this process", where=where, hint="leave out --planner")
    return {
        name: config.model_copy(update={"planner": endpoint} if name in planned else {})
        for name, config in runs.items()
    }


def read_model_options(
    generator: str | None, generator_model: str | None, judge: JudgeSetting | None
) -> dict[str, Any]:
    """The fields of `RunConfig` that the options set. Raises ConfigError for one half of an endpoint."""
    if generator == "revelator" and generator_model is None:
        return {"generator": generator} | ({"judge": judge} if judge else {})
    if (generator is None) != (generator_model is None):
        where = "--generator-model" if generator else "--generator"
        raise ConfigError(
            "an endpoint needs an address and a model", where=where, hint="--generator URL --generator-model NAME"
        )
    endpoint = None
    if generator:
        endpoint = check_config({"url": generator, "model": generator_model}, GeneratorConfig, "--generator")
    given = {"generator": endpoint, "judge": judge}
    return {name: value for name, value in given.items() if value is not None}


def set_models(runs: dict[str, RunConfig], models: dict[str, Any], where: str) -> dict[str, RunConfig]:
    """Returns the runs, each with those of `models` that it can take. Raises ConfigError for one that none takes."""
    from evaluation.harness.system_needs import takes_option

    for name in models:
        if not any(takes_option(config, name) for config in runs.values()):
            raise ConfigError(f"no run can take --{name}", where=where, hint=TAKEN[name])
    return {
        run: config.model_copy(update={name: value for name, value in models.items() if takes_option(config, name)})
        for run, config in runs.items()
    }


def make_plain_and_auto_runs(
    questions: Path,
    index: IndexAddress | None,
    columns: tuple[str, ...],
    home: Path,
    endpoint: PlannerConfig | None = None,
    **overrides: Any,
) -> dict[str, RunConfig]:
    """Makes the configurations of plain retrieval and of `auto` over a file of own questions. With an endpoint
    there is a second `auto` with it as planner, and a third with the embedded base if another adapter plans."""
    chosen = {name: overrides.pop(name, None) for name in ("sample", "unseen")}
    benchmark = describe_own(questions, read_columns(columns), **chosen, seed=overrides.get("seed"))
    shared: dict[str, Any] = {"benchmark": benchmark, "index": str(index or ""), "home": str(home)}
    shared |= {name: value for name, value in overrides.items() if value is not None}
    if not overrides.get("url"):  # a running server has its own
        shared.setdefault("adapter", "champion" if has_champion(home) else "base")
    auto = {"system": {"strategy": "auto"}}
    systems: dict[str, dict[str, Any]] = {"plain": {"system": {"baseline": "naive-5"}}, "auto": auto}
    if endpoint and shared.get("adapter") != "base":
        systems["base"] = auto | {"adapter": "base"}
    if endpoint:
        systems["planner"] = auto | {"planner": endpoint}
    return {name: check_config(shared | own, RunConfig, "--questions") for name, own in systems.items()}


def has_champion(home: Path) -> bool:
    """Whether a version was promoted; a home folder without a registry is left as it is."""
    if "MLFLOW_TRACKING_URI" not in os.environ and not (home / "mlflow.db").exists():
        return False
    registry.connect(home)
    return bool(registry.search_versions(registry.NAME)) and registry.find_champion() is not None


def report_comparison(runs: list[LoadedRun], folder: Path, as_json: bool) -> None:
    """Prints the summary of each benchmark, and writes the report beside the runs."""
    from evaluation.harness.run_metrics import COSTS, SCORES
    from evaluation.report.command import PAGE, write_report

    built, page = write_report(runs, folder), folder / PAGE
    says = " ".join(section.conclusion for section in built.sections)
    if as_json:
        figures = [{name: run.figures[name]["value"] for name in SCORES | COSTS if name in run.figures} for run in runs]
        about = [
            {"name": run.name, "n": len(run.rows), **run.seen.to_json(), "without_gold": run.run.without_gold}
            for run in runs
        ]
        systems = [one | own for one, own in zip(about, figures, strict=True)]
        click.echo(json.dumps({"systems": systems, "says": says, "report": str(page)}))
        return
    print_sections(built.sections)
    click.echo(f"report: {page}")


def print_sections(sections: Sequence[Section]) -> None:
    """Prints quality and cost of each benchmark, and what follows from them."""
    from evaluation.report.page import SUMMARY, render_for_terminal

    for section in sections:
        for table in section.tables:
            if table.title in SUMMARY:
                Console().print(render_for_terminal(table, section.name))
        click.echo(f"{section.about}\n{section.conclusion}")
