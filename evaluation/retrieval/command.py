"""`revelator eval recall`: which gold paragraphs the whole question finds, and which the leaves of its compiled plan.

OUT/run.json         what is measured: digests of set, adapter, index and corpora, command, machine
OUT/plans.jsonl      the model's plan of each dev question, appended batch by batch
OUT/ranked.jsonl     one row a question and corpus, appended as it is done
OUT/metrics.json     every figure with n and interval; written last
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markdown import Markdown

from data_gen.annotated import AnnotatedQuestion
from evaluation.commands import AS_JSON, BASE, FOLDER, HOME, REGISTERED, THREADS, URI, adapter_folder
from evaluation.published import CORPORA as PUBLISHED
from evaluation.published import all_questions
from evaluation.questions import by_id_hash
from evaluation.retrieval.corpora import Corpus, Searching, pool
from evaluation.retrieval.page import metrics_of, page_text
from evaluation.retrieval.queries import (
    DEPTH,
    Ranked,
    compiled_queries,
    gold_queries,
    interleaved,
    parsed,
    shape_of,
)
from evaluation.rows import append_rows, progress_bar, read_rows, sole_writer
from revelator.config import DATA_DEFAULT, DATA_VARIABLE
from revelator.errors import ConfigError, RevelatorError
from revelator.files import sha256_file, sha256_text, write_bytes, write_json
from revelator.registry import CHAMPION
from revelator.rows import read_manifest, stream_rows
from revelator.tasks import TASKS, TranslateInput
from revelator.trace import Trace, sort_ids
from serving.retrieval import IndexSettings
from serving.retrieval.index_folder import Kind

if TYPE_CHECKING:
    from serving.models.engine import Engine

BATCH = 32  # questions compiled together
AT_ONCE = 2  # questions executed at a time
PATIENCE = 3_600_000.0  # milliseconds: on a busy machine, too, the documents decide and not the clock
RUN = "run.json"

Execute = Callable[[AnnotatedQuestion, str, Corpus], Awaitable[list[str]]]  # question, plan → leaves as asked


@dataclass(frozen=True)
class Plan:
    id: str
    plan: str


@click.command()
@click.argument("adapter", default=CHAMPION)
@click.option("--set", "set_folder", type=FOLDER, help="Set whose questions are asked.  [default: HOME/sets/real]")
@click.option(
    "--index",
    "index_folder",
    type=FOLDER,
    help="A third corpus: any index.  [default: HOME/indexes/real, or none with --kind dense or hybrid]",
)
@click.option("--data", default=lambda: os.environ.get(DATA_VARIABLE, DATA_DEFAULT), type=FOLDER,
              help=f"The published files.  [env: {DATA_VARIABLE}; default: {DATA_DEFAULT}]")  # fmt: skip
@click.option("--out", type=FOLDER, help="Folder of the measurement; goes on there.  [default: HOME/recall]")
@click.option("--questions", default=200, show_default=True, type=click.IntRange(1),
              help="Dev questions of a set and corpus, the first by hash of their id.")  # fmt: skip
@click.option("--more", default=2000, show_default=True, type=click.IntRange(0),
              help="Other questions of a set, asked without a model: whole, and by their gold steps.")  # fmt: skip
@click.option("--kind", default="bm25", show_default=True, type=click.Choice(["bm25", "dense", "hybrid"]),
              help="How the sets' own paragraphs are searched.")  # fmt: skip
@click.option("--model", default="", help="sentence-transformers model of --kind dense and hybrid: `minilm`.")
@click.option("--page", type=FOLDER, help="Write the tables as Markdown there, too.")
@BASE
@THREADS
@REGISTERED
@HOME
@URI
@AS_JSON
def recall(
    adapter: str,
    set_folder: Path | None,
    index_folder: Path | None,
    data: Path,
    out: Path | None,
    questions: int,
    more: int,
    kind: Kind,
    model: str,
    page: Path | None,
    base: str | None,
    threads: int | None,
    name: str,
    home: Path,
    tracking_uri: str | None,
    as_json: bool,
) -> None:
    """Measure retrieval alone: gold paragraphs found by the whole question, and by the leaves of its plan.

    Each way to ask has the same number of documents. ADAPTER, as of `model grade`, compiles dev questions, split
    off by the hash of their id and never trained on; its leaves are asked with gold answers filled in, and as the
    executor asks them with its own. No generator is needed. What was killed goes on with the same command.

    \b
    Examples:
      revelator eval recall --home runs/real --data ../shared/data --page docs/retrieval.md
      revelator eval recall runs/adapters/mine --home runs/real --out runs/recall/mine --questions 50
      revelator eval recall --home runs/real --kind hybrid --model minilm --out runs/recall/hybrid
    """
    set_folder = set_folder or home / "sets" / "real"
    if index_folder is None and kind == "bm25":  # so that all corpora of a measurement are searched alike
        index_folder = home / "indexes" / "real"
    folder, tags = adapter_folder(adapter, name, home, tracking_uri)
    out = out or home / "recall"
    made = read_manifest(set_folder)
    splits = {split: {r.group for r in stream_rows(set_folder, split)} for split in ("dev", "train")}
    everything = {question.id: question for question in reversed(list(all_questions(set_folder)))}
    asked = [q for q in by_id_hash(everything.values()) if q.source in PUBLISHED and q.route == "complex"]
    dev, others = ([q for q in asked if q.id in splits[split]] for split in ("dev", "train"))
    settings = IndexSettings(kind=kind, model=model)
    corpora = _corpora([*dev, *others], index_folder, data, out, settings)

    from revelator.artifact import read_manifest as read_adapter
    from serving.models.engine import Engine

    engine = Engine(base or (read_adapter(folder).base_name if folder else "tiny"), folder, threads=threads)
    about = {
        "kind": "retrieval",
        "set": made["digest"],
        "adapter": sha256_file(folder / "manifest.json") if folder else "",
        "base": engine.base_digest,
        "decoding": "beams",
        "indexes": {
            "index" if c == "index" else f"{c} {source}": sha256_file(corpus.index.folder / "manifest.json")
            for (c, source), corpus in corpora.items()
        },
        "questions": questions,
        "more": more,
        "search": {"kind": kind, "model": model},
    }
    with sole_writer(out):
        begin(out, about, {"version": tags.get("version", adapter)})
        plans = compile_all(dev, out / "plans.jsonl", engine)
        todo = [
            (question, split, corpus)
            for (_, source), corpus in corpora.items()
            for split, found, limit in (("dev", dev, questions), ("train", others, more))
            if split == "dev" or corpus.name != "index"
            for question in _answerable(found, corpus, source)[:limit]
        ]
        asyncio.run(rank_all(todo, plans, out / "ranked.jsonl", Leaves(engine)))
        found = metrics_of(read_rows(out / "ranked.jsonl", Ranked))
        write_json(out / "metrics.json", found)
    text = page_text(found, json.loads((out / RUN).read_text(encoding="utf-8")))
    if page:
        write_bytes(page, text.encode())
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        Console().print(Markdown(text))
        click.echo(f"every row: {out}")


def _corpora(
    questions: Sequence[AnnotatedQuestion], index_folder: Path | None, data: Path, out: Path, settings: IndexSettings
) -> dict[tuple[str, str], Corpus]:
    """By the corpus's name and the set whose questions are put to it."""
    from serving.retrieval import Index

    third = Corpus("index", Index.open(index_folder)) if index_folder else None
    found = {("index", source): third for source in PUBLISHED if third}
    for source, published in PUBLISHED.items():
        if not (data / published).is_file():
            raise ConfigError(f"{published} is not there", where=str(data), hint="give the published files: --data DIR")
        index = pool([q for q in questions if q.source == source], [data / published], out / "pools" / source, settings)
        found |= {(name, source): Corpus(name, index) for name in ("own", "pooled")}
    return found


def _answerable(questions: Sequence[AnnotatedQuestion], corpus: Corpus, source: str) -> list[AnnotatedQuestion]:
    """Those of a set whose gold documents the corpus holds, all of them."""
    return [question for question in questions if question.source == source and corpus.gold(question)]


def begin(out: Path, about: dict[str, Any], more: dict[str, Any]) -> None:
    """Makes the folder of a measurement, or finds that it is this one's. Raises ConfigError for any other."""
    from evaluation.facts import machine

    about = about | {"config_hash": sha256_text(json.dumps(about, sort_keys=True))}
    if (out / RUN).exists():
        known = json.loads((out / RUN).read_text(encoding="utf-8"))
        changed = [name for name, value in about.items() if known.get(name) != value and name != "config_hash"]
        if changed:
            hint = "name another folder: --out DIR"
            raise ConfigError(f"a measurement of another {', '.join(changed)} stands there", where=str(out), hint=hint)
    else:
        write_json(out / RUN, about | more | machine() | {"command": shlex.join(["revelator", *sys.argv[1:]])})


def compile_all(questions: Sequence[AnnotatedQuestion], path: Path, engine: Engine) -> dict[str, str]:
    """The plan of each question by its id, as a server writes it."""
    from serving.models.revelator_model import complete

    known = {row.id: row.plan for row in read_rows(path, Plan)}
    todo = [question for question in questions if question.id not in known]
    with progress_bar() as progress:
        bar = progress.add_task("plans", total=len(questions), completed=len(known))
        for start in range(0, len(todo), BATCH):
            batch = todo[start : start + BATCH]
            prompts = [TASKS["translate_bnf"].render(TranslateInput(question.question)) for question in batch]
            written = complete(engine, "translate_bnf", prompts)
            made = [Plan(q.id, completion.text) for q, completion in zip(batch, written, strict=True)]
            append_rows(path, made)
            known |= {row.id: row.plan for row in made}
            progress.advance(bar, len(batch))
    return known


async def rank_all(
    todo: Sequence[tuple[AnnotatedQuestion, str, Corpus]], plans: dict[str, str], path: Path, execute: Execute
) -> None:
    """Adds the row of each question and corpus that has none yet; one without a plan is asked without a model."""
    done = {(row.id, row.corpus) for row in read_rows(path, Ranked)}
    slots = asyncio.Semaphore(AT_ONCE)
    with progress_bar() as progress:
        bar = progress.add_task("questions", total=len(todo), completed=len(done))

        async def one(question: AnnotatedQuestion, split: str, corpus: Corpus) -> None:
            async with slots:
                append_rows(path, [await ranked(question, split, corpus, plans.get(question.id), execute)])
                progress.advance(bar)

        async with asyncio.TaskGroup() as group:
            for question, split, corpus in todo:
                if (question.id, corpus.name) not in done:
                    group.create_task(one(question, split, corpus))


async def ranked(question: AnnotatedQuestion, split: str, corpus: Corpus, plan: str | None, execute: Execute) -> Ranked:
    queries = {"question": [question.question], "gold": gold_queries(question)}
    if plan is not None:
        queries["compiled"] = compiled_queries(plan, question)
        queries["executed"] = await execute(question, plan, corpus) if parsed(plan) else [question.question]
    found = {
        way: interleaved([corpus.rank(question, query, DEPTH) for query in dict.fromkeys(texts)])
        for way, texts in queries.items()
    }
    return Ranked(
        question.id,
        question.source,
        split,
        corpus.name,
        shape_of(question),
        len(question.steps),
        corpus.gold(question),
        found,
        {way: len(set(texts)) for way, texts in queries.items()},
    )


class Leaves:
    """Runs a plan with the embedded reader, and says what its leaves were asked."""

    def __init__(self, engine: Engine) -> None:
        from serving.generators import EmbeddedGenerator
        from serving.models.revelator_model import LocalRevelator

        self._revelator = LocalRevelator(engine)
        self._generator = EmbeddedGenerator()

    async def __call__(self, question: AnnotatedQuestion, plan: str, corpus: Corpus) -> list[str]:
        from revelator.limits import Limits
        from serving.executor import Executor

        retriever = Searching(corpus.of(question))
        executor = Executor(self._revelator, retriever, self._generator, Limits(deadline_ms=PATIENCE))
        try:
            return asked(await executor.run(question.question, plan=plan, strategy="compile"))
        except RevelatorError:
            return [question.question]


def asked(trace: Trace) -> list[str]:
    """The texts of the leaves after substitution, in the plan's order; the question where none could be asked."""
    atomic = {node.id: node for node in trace.nodes if node.kind == "atomic" and node.asked}
    return [text for id in sort_ids(atomic) if (text := atomic[id].asked)] or [trace.question]
