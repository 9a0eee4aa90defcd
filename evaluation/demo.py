"""`revelator demo`: the whole way once, from an empty folder to six answered questions, narrated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

import data_gen
from data_gen.questions import AnnotatedQuestion
from evaluation.chain import PASSIVE_WAIT, Chain, Step
from evaluation.gate.rules import RULES
from evaluation.harness.formats import FORMATS, KINDS, BenchmarkQuestion
from evaluation.harness.question_scores import score_answers
from revelator.artifact import DEFAULT_BASE, digest_base, find_base
from revelator.client import Client
from revelator.errors import DataError, RevelatorError
from revelator.files import sha256_text, write_bytes
from revelator.options import FOLDER
from revelator.plans import parse, to_letters
from revelator.trace import Trace, join_answers
from revelator.trace_view import print_trace
from serving.retrieval import INDEX
from serving.triton.repository import Settings
from serving.triton.serve import serve_home
from serving.triton.server import read_ports
from training.config import CONFIGS

WORLD_CONFIG = Path(data_gen.__file__).parent / "configs" / "world.yaml"
SEED = "7"
ROWS = "100"  # a task, for evaluation and gate: together about a minute on two cores
ASK_SECONDS = 60.0


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

    make_world = ("data", "world", "--size", str(size), "--seed", SEED, "--out", str(world))
    build_set = ("data", "build", os.path.relpath(WORLD_CONFIG), "--out", str(built))
    train = ("train", "demo", "--base", base, "--set", str(built), *at_home)
    grade = ("model", "grade", "latest", "--split", "test", "--limit", ROWS, *at_home)
    promote = ("model", "promote", "--limit", ROWS, *at_home)
    build_index = ("index", "build", str(world / "passages.jsonl"), "--out", str(index))
    deploy = ("model", "deploy", *at_home)
    return [
        Step("world", "generate a world: facts, documents, questions, gold plans", make_world, world_made),
        Step("set", "build the instruction set of all tasks", build_set, built_made, (world_made, WORLD_CONFIG),
             environment=(("REVELATOR_WORLD", str(world)),)),
        Step("train", "train a LoRA adapter, track it in MLflow, register it", train, adapter,
             (built_made, CONFIGS / "demo.yaml"), resume=("--resume",), digest=digest_base(find_base(base))),
        Step("grade", "grade it on the test split, whose names are all new", grade, None, (adapter,)),
        Step("promote", "gate on every task, and make the version champion", promote, None, (adapter, RULES)),
        Step("index", "index the world's passages", build_index, index_made, (world_made,), digest=INDEX.format),
        Step("deploy", "deploy the champion into the Triton model repository", deploy, None, (adapter,)),
    ]  # fmt: skip


def choose_one_of_each_kind(questions: Iterable[BenchmarkQuestion]) -> dict[str, AnnotatedQuestion]:
    """Chooses the first question of each kind in the test split, in the order of sha256(id). Raises DataError for a
    missing kind."""
    ordered = sorted((q for q in questions if q.gold.split == "test"), key=lambda q: sha256_text(q.id))
    first = {question.kind: question.gold for question in reversed(ordered)}
    if missing := [kind for kind in KINDS if kind not in first]:
        raise DataError(f"no {missing[0]} question in the test split", hint="make a larger world: --size")
    return {kind: first[kind] for kind in KINDS}


def ask_questions(chosen: dict[str, AnnotatedQuestion], url: str, chain: Chain) -> list[AnsweredQuestion]:
    """Asks the server each question and prints its trace."""
    asked = []
    with Client(url, timeout=ASK_SECONDS) as client:
        for kind, question in chosen.items():
            chain.console.print(f"\n[bold cyan]{kind}[/]")
            chain.print_command(("ask", question.question, "--home", str(chain.home)))
            try:
                trace = client.ask(question.question).trace
                print_trace(trace, chain.console)
            except RevelatorError as error:  # the other questions are asked all the same
                trace = Trace(question.question, "auto", outcome="failed")
                chain.console.print(f"error: {error}", style="red", markup=False)
            mark = mark_answers(question, trace.answers)
            asked.append(AnsweredQuestion(kind, question, trace, mark))
            chain.console.print(f"gold answer: {join_answers(question.answers)} · {mark}", highlight=False)
    return asked


def mark_answers(question: AnnotatedQuestion, answers: Sequence[str]) -> str:
    rule = FORMATS["world"].normaliser
    points = score_answers(join_answers(answers), answers, question.answers, rule, is_list=True)
    return "[green]met[/]" if points["em"] else "[yellow]partly met[/]" if points["f1"] else "[red]not met[/]"


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


NEXT = """\
# What to do next

The demo left everything below `{home}`. First put the command on your path: `source .venv/bin/activate`. Then:

* **Start the server again** (Ctrl-C stops it): `revelator serve --home {home}`
* **Ask it**, from another terminal: `revelator ask "{question}" --home {home}`
* **Run a plan that you corrected**, where the model erred:
  `revelator ask "{question}" --plan "{plan}" --home {home}`
* **See a plan run in the browser, mend it, run it again, compare two runs**: `revelator inspect --home {home}`
* **See runs, scores and versions**: `mlflow server --backend-store-uri sqlite:///{home}/mlflow.db`, then open
  http://127.0.0.1:5000
* **Look into the instruction set**: `revelator data inspect {home}/sets/world`
* **Your own documents, base model, language model**: docs/your-data.md
"""


def write_next(home: Path, asked: list[AnsweredQuestion]) -> Path:
    example = next(row.question for row in asked if row.kind == "complex")
    page = NEXT.format(home=home, question=example.question, plan=example.expression)
    write_bytes(home / "NEXT.md", page.encode())
    return home / "NEXT.md"


@click.command()
@click.option("--home", default="runs/demo", show_default=True, type=FOLDER, help="Where all goes.")
@click.option("--base", default=DEFAULT_BASE, show_default=True, help="Base model: `mini`, a folder, or a Hub id.")
@click.option(
    "--size",
    default=2000,
    show_default=True,
    type=click.IntRange(1000),
    help="Questions in the world; the gate asks 100.",
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
    console = Console()
    todo = list_steps(home, base, size)
    chain = Chain(home, len(todo) + 2, f"revelator demo --home {home}", console)
    for step in todo:
        chain.run(step)
    chosen = choose_one_of_each_kind(FORMATS["world"].read(str(home / "world")))
    chain.print_heading("start the Triton server")
    chain.print_command(("serve", "--home", str(home), "--ports", "auto"))
    os.environ |= PASSIVE_WAIT
    with serve_home(home, read_ports("auto"), Settings(home / "indexes" / "world", remember=True)) as (_, running):
        console.print(f"[green]ready[/] at {running.grpc}", highlight=False)
        chain.print_heading("ask six questions: of each kind the first by hash of its id")
        asked = ask_questions(chosen, running.grpc, chain)
    console.print("\nthe server has stopped\n")
    console.print(summarise(asked))
    page = write_next(home, asked)
    console.print(Panel(Markdown(page.read_text(encoding="utf-8")), title=str(page)))
    times = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in chain.times)
    console.print(f"Took {chain.elapsed():.0f} s: {times}", highlight=False)
