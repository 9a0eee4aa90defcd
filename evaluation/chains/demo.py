"""`revelator demo`: the whole way once, from an empty folder to six answered questions, narrated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

import data_gen
from data_gen.questions import AnnotatedQuestion
from evaluation.chains.chain import Chain, Step
from evaluation.chains.server import local_server
from evaluation.gate.rules import RULES
from evaluation.harness.formats import FORMATS
from evaluation.harness.question_scores import answer_values
from evaluation.metrics.answers import AnswerScore
from evaluation.questions import one_of_each_kind, read_questions
from revelator.artifact import base_digest, base_folder
from revelator.client import Client
from revelator.errors import RevelatorError
from revelator.files import write_bytes
from revelator.plans import parse, to_letters
from revelator.trace import Trace, join_answers
from revelator.trace_view import show
from serving.retrieval.index_folder import FORMAT as INDEX_FORMAT
from training.config import CONFIGS

WORLD_CONFIG = Path(data_gen.__file__).parent / "configs" / "world.yaml"
SEED = "7"
ROWS = "100"  # a task, for evaluation and gate: together about a minute on two cores
ASK_SECONDS = 60.0


@dataclass(frozen=True)
class Asked:
    kind: str
    question: AnnotatedQuestion
    trace: Trace
    score: AnswerScore


def steps(home: Path, base: str, size: int, rules: Path) -> list[Step]:
    """Everything before the server starts, in order."""
    world, built, index = home / "world", home / "sets" / "world", home / "indexes" / "world"
    adapter, at_home = home / "adapters" / "demo" / "manifest.json", ("--home", str(home))
    world_made, built_made, index_made = (folder / "manifest.json" for folder in (world, built, index))
    return [
        Step(
            "world",
            "generate a world: facts, documents, questions, gold plans",
            ("data", "world", "--size", str(size), "--seed", SEED, "--out", str(world)),
            world_made,
        ),
        Step(
            "set",
            "build the instruction set of all tasks",
            ("data", "build", os.path.relpath(WORLD_CONFIG), "--out", str(built)),
            built_made,
            needs=(world_made, WORLD_CONFIG),
            environment=(("REVELATOR_WORLD", str(world)),),
        ),
        Step(
            "train",
            "train a LoRA adapter, track it in MLflow, register it",
            ("train", "demo", "--base", base, "--set", str(built), *at_home),
            adapter,
            needs=(built_made, CONFIGS / "demo.yaml"),
            digest=base_digest(base_folder(base)),
            resume=("--resume",),
        ),
        Step(
            "grade",
            "grade it on the test split, whose names are all new",
            ("model", "grade", "latest", "--split", "test", "--limit", ROWS, *at_home),
            None,
            needs=(adapter,),
        ),
        Step(
            "promote",
            "gate on every task, and make the version champion",
            ("model", "promote", "--limit", ROWS, "--rules", os.path.relpath(rules), *at_home),
            None,
            needs=(adapter, rules),
        ),
        Step(
            "index",
            "index the world's passages",
            ("index", "build", str(world / "passages.jsonl"), "--out", str(index)),
            index_made,
            needs=(world_made,),
            digest=INDEX_FORMAT,
        ),
        Step(
            "deploy",
            "deploy the champion into the Triton model repository",
            ("model", "deploy", "--index", str(index), *at_home),
            None,
            needs=(adapter, index_made),
        ),
    ]


def ask_each(chosen: dict[str, AnnotatedQuestion], url: str, chain: Chain) -> list[Asked]:
    """Puts each question to the server and shows what happened to it."""
    asked = []
    with Client(url, timeout=ASK_SECONDS) as client:
        for kind, question in chosen.items():
            chain.console.print(f"\n[bold cyan]{kind}[/]")
            chain.say_command(("ask", question.question, "--home", str(chain.home)))
            try:
                trace = client.ask(question.question).trace
                show(trace, chain.console)
            except RevelatorError as error:  # the other questions are asked all the same
                trace = Trace(question.question, "auto", outcome="failed")
                chain.console.print(f"error: {error}", style="red", markup=False)
            points = score(question, trace.answers)
            asked.append(Asked(kind, question, trace, points))
            chain.console.print(f"gold answer: {join_answers(question.answers)} · {met(points)}", highlight=False)
    return asked


def score(question: AnnotatedQuestion, answers: Sequence[str]) -> AnswerScore:
    """Score `answers` by the rule of the question's benchmark: of a list every gold value is wanted, elsewhere gold
    values are aliases of one answer."""
    how, text = FORMATS[question.source], join_answers(answers)
    return AnswerScore(**answer_values(text, answers, question.answers, how.normaliser, is_list=how.lists))


def met(points: AnswerScore) -> str:
    return "[green]met[/]" if points.em else "[yellow]partly met[/]" if points.f1 else "[red]not met[/]"


def summary(asked: list[Asked]) -> Table:
    table = Table("kind", "route", "shape", "answer", "gold", "", "ms", title="Six questions", show_lines=True)
    for row in asked:
        trace, gold = row.trace, join_answers(row.question.answers)
        shape = to_letters(parse(trace.plan)) if trace.plan else ""
        answer = join_answers(trace.answers) or "none"
        table.add_row(row.kind, trace.route, shape, answer, gold, met(row.score), f"{trace.wall_ms:.0f}")
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
  http://127.0.0.1:5000. In the experiment `revelator`: losses, scores by task, the set's digest. Under Models:
  `revelator`, whose alias `champion` is the version that is served.
* **Look into the instruction set**: `revelator data inspect {home}/sets/world`; the questions with their gold plans
  are in `{home}/world/questions.jsonl`
* **What the server said**: `{home}/logs/`
* **The same on MuSiQue and 2WikiMultiHopQA**: `examples/musique.sh` (needs their published files)
* **Your own documents, base model, language model**: README.md, "Use it on your own"
"""


def write_next(home: Path, asked: list[Asked]) -> Path:
    example = next(row.question for row in asked if row.kind == "complex")
    page = NEXT.format(home=home, question=example.question, plan=example.expression)
    write_bytes(home / "NEXT.md", page.encode())
    return home / "NEXT.md"


def times(chain: Chain) -> str:
    return ", ".join(f"{name} {seconds:.0f} s" for name, seconds in chain.times)


@click.command()
@click.option("--home", default="runs/demo", show_default=True, type=click.Path(path_type=Path), help="Where all goes.")
@click.option("--base", default="tiny", show_default=True, help="Base model: `tiny`, a folder, or a Hub id.")
@click.option("--size", default=2000, show_default=True, type=click.IntRange(200), help="Questions in the world.")
@click.option(
    "--rules", default=RULES, type=click.Path(path_type=Path), help="Gate.  [default: evaluation/gate/gate.yaml]"
)
def demo(home: Path, base: str, size: int, rules: Path) -> None:
    """Run the whole way on a generated world and ask six questions.

    World, instruction set, LoRA training, MLflow, gate and promotion, index, Triton, questions. A second run reuses
    what is there; a run that was broken off goes on.

    \b
    Examples:
      revelator demo
      revelator demo --home runs/mine --base Qwen/Qwen2.5-0.5B
    """
    console = Console()
    todo = steps(home, base, size, rules)
    chain = Chain(home, len(todo) + 2, f"revelator demo --home {home}", console)
    for step in todo:
        chain.run(step)
    chosen = one_of_each_kind(read_questions(home / "world" / "questions.jsonl"))
    chain.heading("start the Triton server")
    serve = ("serve", "--home", str(home), "--ports", "auto")
    chain.say_command(serve)
    with local_server(home, serve) as url:
        console.print(f"[green]ready[/] at {url}", highlight=False)
        chain.heading("ask six questions: of each kind the first by hash of its id")
        asked = ask_each(chosen, url, chain)
    console.print("\nthe server has stopped\n")
    console.print(summary(asked))
    page = write_next(home, asked)
    console.print(Panel(Markdown(page.read_text(encoding="utf-8")), title=str(page)))
    console.print(f"Took {chain.elapsed():.0f} s: {times(chain)}", highlight=False)
