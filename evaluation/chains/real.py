"""`revelator real`: the whole way on MuSiQue and 2WikiMultiHopQA, ending in a page of measured results."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import data_gen
from data_gen.config import DATA_DEFAULT, DATA_VARIABLE
from data_gen.questions import AnnotatedQuestion
from evaluation.adapters.predictions import read_predicted
from evaluation.chains.answers import AnswerRow, ask_all
from evaluation.chains.chain import Chain, Step, shown
from evaluation.chains.results import Measured, page_text
from evaluation.chains.server import local_server
from evaluation.facts import code_digest, facts
from evaluation.promotion.gate import RULES
from evaluation.published import CORPORA, TITLES
from evaluation.questions import by_id_hash, read_questions
from evaluation.retrieval.recall import Retrieved, gold_titles, retrieve, titles_of
from evaluation.rows import append_rows, progress_bar, read_rows
from evaluation.sections import kept
from revelator import registry
from revelator.artifact import base_digest, base_folder
from revelator.durable import sha256_file, sha256_text, write_bytes
from revelator.errors import ArtifactError, ConfigError
from revelator.terminal import printable
from serving.retrieval import Index
from serving.retrieval.settings import FORMAT as INDEX_FORMAT
from training.config import CONFIGS

SET_CONFIG = Path(data_gen.__file__).parent / "configs" / "real.yaml"
WIKIPEDIA = Path("wikipedia") / "wiki_intros.jsonl.gz"
QUESTIONS = (Path("musique") / "musique_decomposed.jsonl.gz", Path("2wikimultihopqa") / "2wiki_evidences.jsonl.gz")
NEEDED = (WIKIPEDIA, *CORPORA.values(), *QUESTIONS)
FOLDER = click.Path(path_type=Path)
DATA_HELP = f"The published files.  [env: {DATA_VARIABLE}; default: {DATA_DEFAULT}]"


def check_data(data: Path) -> None:
    """Raises ConfigError naming the first published file that is missing."""
    for name in NEEDED:
        if not (data / name).is_file():
            raise ConfigError(
                f"{name} is not there",
                where=str(data),
                hint="give the folder with the published files: --data DIR, or the environment variable REVELATOR_DATA",
            )


def steps(home: Path, data: Path, base: str, adapter: Path | None, rules: Path) -> list[Step]:
    """Everything before the server starts, in order; training only where no adapter is given."""
    built, index, at_home = home / "sets" / "real", home / "indexes" / "real", ("--home", str(home))
    material, corpora = home / "material", tuple(data / name for name in CORPORA.values())
    searched = (data / WIKIPEDIA, material / "passages.jsonl")
    built_made, index_made = built / "manifest.json", index / "manifest.json"
    made = (adapter or home / "adapters" / "real") / "manifest.json"
    train = Step(
        "train",
        "train a LoRA adapter on its train split, register it",
        ("train", "real", "--base", base, "--set", str(built), *at_home),
        made,
        needs=(built_made, CONFIGS / "real.yaml"),
        digest=base_digest(base_folder(base)),
        resume=("--resume",),
    )
    return [
        Step(
            "set",
            "build the set from MuSiQue and 2WikiMultiHopQA",
            ("data", "build", os.path.relpath(SET_CONFIG), "--out", str(built)),
            built_made,
            needs=(SET_CONFIG, *(data / name for name in QUESTIONS)),
            environment=(("REVELATOR_DATA", str(data)),),
        ),
        *([] if adapter else [train]),
        Step(
            "promote",
            "gate on every task, and make the version champion",
            ("promote", "--set", str(built), "--rules", os.path.relpath(rules), *at_home),
            None,
            needs=(made, built_made, rules),
        ),
        Step(
            "material",
            "gather dev questions, and the sets' own passages",
            ("evaluation.chains.material", "--set", str(built), "--out", str(material), *map(str, corpora)),
            material / "questions.jsonl",
            needs=(built_made, *corpora),
        ),
        Step(
            "index",
            "index Wikipedia's introductions and those passages",
            ("index", "build", *map(str, searched), "--detokenize", "--out", str(index)),
            index_made,
            needs=searched,
            digest=INDEX_FORMAT,
        ),
        Step(
            "deploy",
            "deploy the champion into the Triton model repository",
            ("deploy", "--index", str(index), *at_home),
            None,
            needs=(made, index_made),
        ),
    ]


def register_given(adapter: Path, home: Path, console: Console) -> None:
    """A version of an adapter that was trained elsewhere; one that is registered already keeps its number."""
    registry.connect(home=home)
    version = registry.register_adapter(adapter, tags={"set_folder": str((home / "sets" / "real").resolve())})
    console.print(f"{adapter} is version {version} of {registry.NAME}", highlight=False)


def measure_recall(pairs: list[tuple[AnnotatedQuestion, tuple[str, ...]]], index_folder: Path, out: Path) -> None:
    """Adds to `out` what the index finds for each question with gold titles, and for the single questions beside it."""
    done = {row.id for row in read_rows(out, Retrieved)}
    todo = [(question, asked) for question, asked in pairs if question.id not in done and gold_titles(question)]
    if not todo:
        return
    index = Index.open(index_folder)
    held = titles_of(index)
    with progress_bar() as progress:
        for question, asked in progress.track(todo, description=out.stem):
            append_rows(out, [retrieve(question, index, held, asked)])


def champion_version(made: Path) -> int:
    """The champion's number. Raises ArtifactError when the champion is another adapter than the one measured here."""
    found = registry.resolve(registry.NAME, registry.CHAMPION)
    if found.tags.get(registry.DIGEST_TAG) != sha256_file(made):
        raise ArtifactError(
            f"the champion, version {found.version}, is not the adapter of this run",
            where=str(made.parent),
            hint="promote this one (`revelator promote`), or measure in a --home of its own",
        )
    return found.version


def pinned_sample(questions: list[AnnotatedQuestion], each: int) -> list[AnnotatedQuestion]:
    """The first `each` of every set by sha256 of the id."""
    ordered = by_id_hash(questions)
    return [question for name in TITLES for question in [q for q in ordered if q.source == name][:each]]


@click.command()
@click.option("--home", default="runs/real", show_default=True, type=FOLDER, help="Where all goes.")
@click.option("--data", default=lambda: os.environ.get(DATA_VARIABLE, DATA_DEFAULT), type=FOLDER, help=DATA_HELP)
@click.option("--base", default="tiny", show_default=True, help="Base model: `tiny`, a folder, or a Hub id.")
@click.option("--adapter", type=FOLDER, help="Adapter folder that was trained on this set before; trains nothing.")
@click.option("--questions", default=200, show_default=True, type=click.IntRange(1), help="Executed, of each set.")
@click.option("--page", default="docs/results.md", show_default=True, type=FOLDER, help="The page of results.")
@click.option("--rules", default=RULES, type=FOLDER, help="Gate.  [default: evaluation/promotion/gate.yaml]")
def real(home: Path, data: Path, base: str, adapter: Path | None, questions: int, page: Path, rules: Path) -> None:
    """Run the whole way on MuSiQue and 2WikiMultiHopQA and write down what was measured.

    Dev questions, split off by the hash of their id and never trained on, are compiled, and a pinned sample of them is
    executed and answered by the running server. Each stage goes on where it stopped.

    \b
    Examples:
      revelator real --data ../shared/data
      revelator real --adapter runs/gpu/adapter --questions 50
    """
    check_data(data)
    weights = ("--adapter", str(adapter)) if adapter else ("--base", base)
    command = shown(("real", "--home", str(home), "--data", str(data), *weights, "--questions", str(questions)))
    todo = steps(home, data, base, adapter, rules)
    chain = Chain(home, len(todo) + 5 + bool(adapter), command, Console())
    made = (adapter or home / "adapters" / "real") / "manifest.json"
    for step in todo:
        chain.run(step)
        if adapter and step.name == "set":
            chain.heading("register the adapter that was given")
            register_given(adapter, home, chain.console)
    registry.connect(home=home)
    version = champion_version(made)
    measured = measure(chain, made, questions)
    chain.heading(f"write {page}")
    about = facts(command, home, made, version, Counter(row.source for row in measured.answers))
    write_bytes(page, kept(page_text(replace(measured, facts=about)), page).encode())
    show_some(chain.console, measured.answers)
    chain.console.print(f"Took {chain.elapsed():.0f} s. The page: {page}", highlight=False)


def measure(chain: Chain, made: Path, each: int) -> Measured:
    """All rows, measured where they are missing: plans and labels in batches, answers by a server, retrieval here."""
    home = chain.home
    built, index, material = home / "sets" / "real", home / "indexes" / "real", home / "material"
    out = rows_folder(home, [made, built / "manifest.json", index / "manifest.json"])
    chain.heading("compile every dev question, answer every dev label")
    predicting = (
        "evaluation.adapters.predictions",
        "--set",
        str(built),
        "--adapter",
        str(made.parent),
        "--out",
        str(out),
    )
    chain.say_command(predicting)
    chain.call(predicting)
    dev = {question.id: question for question in read_questions(material / "questions.jsonl")}
    sample = {question.id: question for question in pinned_sample(list(dev.values()), each)}
    ask_sample(chain, list(sample.values()), out / "answers.jsonl")
    chain.heading("search the index for every gold title")
    answers = [row for row in read_rows(out / "answers.jsonl", AnswerRow) if row.id in sample]
    measure_recall([(q, tuple(step.question for step in q.steps)) for q in dev.values()], index, out / "recall.jsonl")
    measure_recall([(dev[row.id], tuple(row.asked)) for row in answers], index, out / "recall-asked.jsonl")
    return Measured(
        **vars(read_predicted(out)),
        gold=read_rows(out / "recall.jsonl", Retrieved),
        predicted=[row for row in read_rows(out / "recall-asked.jsonl", Retrieved) if row.id in sample],
        answers=answers,
    )


def ask_sample(chain: Chain, sample: list[AnnotatedQuestion], out: Path) -> None:
    """Puts the questions that have no row yet to a server, which runs as long as that takes."""
    chain.heading("start the Triton server")
    done = {row.id for row in read_rows(out, AnswerRow)}
    todo = [question for question in sample if question.id not in done]
    if not todo:
        chain.console.print("not needed: every answer is there")
    serve = ("serve", "--home", str(chain.home))
    chain.say_command(serve)
    with local_server(chain.home, serve) if todo else nullcontext("") as url:
        chain.heading(f"ask {len(sample)} dev questions, the first of each set by hash")
        ask_all(todo, url, out)


def rows_folder(home: Path, manifests: list[Path]) -> Path:
    """Where the rows of one adapter, set, index and code go: what was measured with others is never mixed in."""
    return home / "results" / sha256_text("".join([*map(sha256_file, manifests), code_digest()]))[:12]


def show_some(console: Console, answers: list[AnswerRow], each: int = 3) -> None:
    """The first executed questions of each set, however they turned out."""
    table = Table("question", "plan", "answer", "gold", "EM", show_lines=True)
    for name in TITLES:
        for row in [row for row in answers if row.source == name][:each]:
            cells = row.question, row.plan or "", row.answer or "none", row.gold[0], f"{row.em:.0f}"
            table.add_row(*[Text(printable(cell)) for cell in cells])
    console.print(table)
