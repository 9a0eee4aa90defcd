"""`revelator demo`: the whole way once, from an empty folder to six answered questions, narrated.

Each step is a command, run as a person would type it, in a process of its own. A step is skipped when `steps.json`
says that the same command was done, its result is there, and no step before it ran.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

import data_gen
from data_gen.annotate.endings import end_plan, is_said
from data_gen.questions import AnnotatedQuestion
from evaluation.harness.formats import FORMATS, PLAN_KINDS, BenchmarkQuestion
from evaluation.harness.question_scores import score_answers
from revelator.artifact import DEFAULT_BASE
from revelator.client import Client
from revelator.errors import DataError, RevelatorError
from revelator.files import sha256_text, write_bytes, write_json
from revelator.options import PATH
from revelator.plans import parse, render, to_letters
from revelator.trace import Trace, join_answers
from revelator.trace_view import print_trace
from serving.home.running import find_running_server
from serving.triton.installation import is_installed

CONFIGS = Path(data_gen.__file__).parent / "configs"
MIXED, WORLD_CONFIG = CONFIGS / "worlds" / "mixed.yaml", CONFIGS / "world.yaml"
SEED = "7"
ROWS = "40"  # a task, for the gate: about forty seconds on two cores
ASK_SECONDS = 60.0
LOOK_SECONDS = 0.1
STOP_SECONDS = 20  # what a command may take to stop before it is killed
# Threads that spin while they wait take the cores from the others: on two cores that something else uses too, writing
# a plan of 24 tokens took 0.4 to 3.5 s with spinning and 0.35 s without.
PASSIVE_WAIT = {"OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
PROGRAM = Path(sys.executable).with_name("revelator")


@dataclass(frozen=True)
class Step:
    """One command: `arguments` follow `revelator`, `makes` is the file that it writes last, and `resume` is added
    where it was broken off before."""

    name: str
    title: str
    arguments: tuple[str, ...]
    makes: Path | None = None
    resume: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> str:
        """What a person would type."""
        return format_command(self.arguments, self.environment)


@dataclass(frozen=True)
class AnsweredQuestion:
    kind: str
    question: AnnotatedQuestion
    trace: Trace
    mark: str  # whether the gold answer was met


def list_steps(home: Path, base: str, size: int) -> list[Step]:
    """Everything before the server starts, in order."""
    world, built, index = home / "world", home / "sets" / "world", home / "indexes" / "world"
    world_made, built_made, index_made = (folder / "manifest.json" for folder in (world, built, index))
    adapter, at_home = home / "adapters" / "demo" / "manifest.json", ("--home", str(home))

    sized = ("--size", str(size), "--seed", SEED)
    make_world = ("data", "build", os.path.relpath(MIXED), *sized, "--out", str(world))
    build_set = ("data", "build", os.path.relpath(WORLD_CONFIG), "--out", str(built))
    train = ("train", "demo", "--base", base, "--set", str(built), *at_home)
    promote = ("model", "promote", "--limit", ROWS, *at_home)
    build_index = ("index", "build", str(world / "passages.jsonl"), "--out", str(index))
    deploy = ("model", "deploy", *at_home)
    return [
        Step("world", "generate a world: facts, documents, questions, gold plans", make_world, world_made),
        Step("set", "build the instruction set of all tasks", build_set, built_made,
             environment=(("REVELATOR_WORLD", str(world)),)),
        Step("train", "train a LoRA adapter, track it in MLflow, register it", train, adapter, ("--resume",)),
        Step("promote", "gate on every task, and make the version champion", promote),
        Step("index", "index the world's passages", build_index, index_made),
        Step("deploy", "deploy the champion into the home folder's model repository", deploy),
    ]  # fmt: skip


def format_command(arguments: Sequence[str], environment: Sequence[tuple[str, str]] = ()) -> str:
    """Returns the line that a person would type."""
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in environment), "revelator", shlex.join(arguments)]
    )


def run_steps(steps: Sequence[Step], home: Path, console: Console) -> str:
    """Runs the steps that are not done, and says how long each took. Raises RevelatorError where a command fails."""
    home.mkdir(parents=True, exist_ok=True)
    ledger = home / "steps.json"
    known: dict[str, dict[str, object]] = json.loads(ledger.read_text(encoding="utf-8")) if ledger.exists() else {}
    times, is_stale = list[str](), False
    for number, step in enumerate(steps, start=1):
        show_heading(console, number, len(steps) + 2, step.title)
        show_command(console, step.command)
        before, place = known.get(step.name, {}), step.makes.parent if step.makes else home
        is_begun = before.get("command") == step.command
        is_stale = is_stale or not (is_begun and before.get("done") and (step.makes is None or step.makes.exists()))
        if not is_stale:
            console.print(f"[green]already done[/], reused: {place}", highlight=False)
            continue
        write_json(ledger, known := known | {step.name: {"command": step.command, "done": False}})
        began = time.monotonic()
        arguments = step.arguments + (step.resume if is_begun else ())
        variables = os.environ | {"REVELATOR_HOME": str(home)} | PASSIVE_WAIT | dict(step.environment)
        if status := run_group([str(PROGRAM), *arguments], variables):
            raise RevelatorError(
                f"step {number} failed with exit status {status}",
                where=format_command(arguments, step.environment),
                hint=f"once its message above is mended, `revelator demo --home {home}` goes on from this step",
            )
        write_json(ledger, known := known | {step.name: {"command": step.command, "done": True}})
        times.append(f"{step.name} {time.monotonic() - began:.0f} s")
        console.print(f"[green]done[/]: {place}", highlight=False)
    return ", ".join(times)


def run_group(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs a command in a process group of its own and returns its exit status. Ctrl-C or SIGTERM here ends the command
    with all its children."""
    process = subprocess.Popen(command, env=environment, process_group=0)
    try:
        return process.wait()
    except BaseException as stop:
        os.killpg(process.pid, signal.SIGINT if isinstance(stop, KeyboardInterrupt) else signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


@contextmanager
def serving(command: Sequence[str], home: Path, console: Console) -> Iterator[str]:
    """Runs `revelator serve` until the end of the block; yields its gRPC address. Raises RevelatorError where it ends
    before it answers."""
    process = subprocess.Popen(command, env=os.environ | PASSIVE_WAIT, process_group=0, stdout=subprocess.DEVNULL)
    try:
        while (running := find_running_server(home)) is None or running.pid != process.pid:
            if process.poll() is not None:
                raise RevelatorError(
                    f"the service ended with exit status {process.returncode}", where=shlex.join(command)
                )
            time.sleep(LOOK_SECONDS)
        console.print(f"[green]ready[/] at {running.grpc}, page {running.http}", highlight=False)
        yield running.grpc
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def show_heading(console: Console, number: int, total: int, title: str) -> None:
    console.print(f"\n[bold reverse] {number}/{total} [/] [bold]{title}[/]", highlight=False)


def show_command(console: Console, command: str) -> None:
    console.print(f"$ {command}", style="dim", highlight=False, markup=False, soft_wrap=True)


def choose_one_of_each_kind(questions: Iterable[BenchmarkQuestion]) -> dict[str, AnnotatedQuestion]:
    """Chooses the first question of each kind in the test split, in the order of sha256(id), that a plan can answer
    whole. Raises DataError for a missing kind."""
    fitting = (q for q in questions if q.gold.split == "test" and is_said(q.gold.ending))
    ordered = sorted(fitting, key=lambda q: sha256_text(q.id))
    first = {question.kind: question.gold for question in reversed(ordered)}
    if missing := [kind for kind in PLAN_KINDS if kind not in first]:
        raise DataError(f"no {missing[0]} question in the test split", hint="make a larger world: --size")
    return {kind: first[kind] for kind in PLAN_KINDS}


def ask_questions(
    chosen: dict[str, AnnotatedQuestion], url: str, home: Path, console: Console
) -> list[AnsweredQuestion]:
    """Asks the server each question and prints its trace."""
    asked = []
    with Client(url, timeout=ASK_SECONDS) as client:
        for kind, question in chosen.items():
            console.print(f"\n[bold cyan]{kind}[/]")
            show_command(console, format_command(("ask", question.question, "--home", str(home))))
            try:
                trace = client.ask(question.question).trace
                print_trace(trace, console)
            except RevelatorError as error:  # the other questions are asked all the same
                trace = Trace(question.question, "auto", outcome="failed")
                console.print(f"error: {error}", style="red", markup=False)
            mark = mark_answers(question, trace.answers)
            asked.append(AnsweredQuestion(kind, question, trace, mark))
            console.print(f"gold answer: {join_answers(question.answers)} · {mark}", highlight=False)
    return asked


def mark_answers(question: AnnotatedQuestion, answers: Sequence[str]) -> str:
    rule = FORMATS["world"].normaliser
    points = score_answers(join_answers(answers), answers, question.answers, rule, is_list=True)
    return "[green]met[/]" if points["em"] else "[yellow]partly met[/]" if points["f1"] else NOT_MET


def summarise(asked: list[AnsweredQuestion]) -> Table:
    table = Table("kind", "route", "shape", "answer", "gold", "", "ms", title="Six questions", show_lines=True)
    for row in asked:
        trace, gold = row.trace, join_answers(row.question.answers)
        shape = to_letters(parse(trace.plan)) if trace.plan else ""
        answer = join_answers(trace.answers) or "none"
        table.add_row(row.kind, trace.route, shape, answer, gold, row.mark, f"{trace.wall_ms:.0f}")
    for column in table.columns:
        column.overflow = "fold"  # on a narrow terminal a name goes on in the next line
    return table


NOT_MET = "[red]not met[/]"
NEXT = """\
# What to do next

The demo left everything below `{home}`. First put the command on your path: `source .venv/bin/activate`. Then:

* **Start the service again** (Ctrl-C stops it): `revelator serve --home {home}`; `--triton local` for Triton, too
* **Ask it**, from another terminal: `revelator ask "{question}" --home {home}`
* **Run a plan that you corrected**, where the model erred:
  `revelator ask "{mended}" --plan "{plan}" --home {home}`
* **See a plan run in the browser, mend it, run it again, compare two runs**: `revelator inspect --home {home}`
* **See runs, scores and versions**: `mlflow server --backend-store-uri sqlite:///{home}/mlflow.db`, then open
  http://127.0.0.1:5000
* **Look into the instruction set**: `revelator data inspect {home}/sets/world`
* **Grade the champion on the test split**, whose names are all new:
  `revelator model grade champion --split test --limit 60 --home {home}`
* **Your own documents, base model, language model**: docs/your-data.md
"""


def write_next(home: Path, asked: list[AnsweredQuestion]) -> Path:
    """The corrected plan is that of the first question whose answer was not met, else of the complex one."""
    example = next(row.question for row in asked if row.kind == "complex")
    missed = [row.question for row in asked if row.trace.plan and row.mark == NOT_MET]
    [mended, *_] = missed or [example]
    plan = render(end_plan(parse(mended.expression), mended.ending))
    page = NEXT.format(home=home, question=example.question, mended=mended.question, plan=plan)
    write_bytes(home / "NEXT.md", page.encode())
    return home / "NEXT.md"


@click.command()
@click.option("--home", default="runs/demo", show_default=True, type=PATH, help="Where all goes.")
@click.option("--base", default=DEFAULT_BASE, show_default=True, help="Base model: `mini`, a folder, or a Hub id.")
@click.option(
    "--size",
    default=2000,
    show_default=True,
    type=click.IntRange(1000),
    help="Questions in the world; the gate asks 60.",
)
def demo(home: Path, base: str, size: int) -> None:
    """Run the whole way on a generated world and ask six questions.

    World, instruction set, LoRA training, MLflow, gate and promotion, index, Triton, questions. A second run reuses
    what is there; a run that was broken off goes on.

    \b
    Examples:
      revelator demo
      revelator demo --home runs/mine --base Qwen/Qwen2.5-0.5B
    """
    console, began = Console(), time.monotonic()
    todo = list_steps(home, base, size)
    times = run_steps(todo, home, console)
    chosen = choose_one_of_each_kind(FORMATS["world"].read(str(home / "world")))
    show_heading(
        console,
        len(todo) + 1,
        len(todo) + 2,
        "serve: the executor, and its models, on a Triton server where one is installed",
    )
    triton = "local" if is_installed() else "none"
    arguments = ("serve", "--home", str(home), "--index", str(home / "indexes" / "world"), "--triton", triton)
    show_command(console, format_command(arguments))
    with serving([str(PROGRAM), *arguments], home, console) as url:
        title = "ask six questions: of each kind the first by hash of its id"
        show_heading(console, len(todo) + 2, len(todo) + 2, title)
        asked = ask_questions(chosen, url, home, console)
    console.print("\nthe server has stopped\n")
    console.print(summarise(asked))
    page = write_next(home, asked)
    console.print(Panel(Markdown(page.read_text(encoding="utf-8")), title=str(page)))
    console.print(f"Took {time.monotonic() - began:.0f} s: {times}", highlight=False)
