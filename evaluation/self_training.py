"""`revelator data self-train`: a model plans questions that have no plan, and the plans that stand up become a set.

ROUND/attempts.jsonl   the samples of each question, and what the leaves of the plan that they agree on found
ROUND/questions.jsonl  the questions that are kept, whole or absent
ROUND/set/             the instruction set, its manifest written last
ROUND/round.json       the settings, and what was proposed and kept
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.leakage import Admission
from data_gen.questions import QUESTIONS, AnnotatedQuestion, write_questions
from data_gen.records import shuffle_by_hash
from data_gen.self_training import (
    AskedLeaf,
    annotate,
    check_support,
    choose_agreed,
    states_answer,
)
from data_gen.sources.formats import READERS
from data_gen.sources.rows import count_outcome
from evaluation.rows import append_rows, continue_rows, progress_bar
from revelator.artifact import DEFAULT_BASE, read_manifest
from revelator.config import DATA_DEFAULT, DATA_VARIABLE
from revelator.errors import ConfigError, RevelatorError
from revelator.files import sha256_file, sha256_text, write_json
from revelator.limits import Limits
from revelator.options import AS_JSON, FOLDER, THREADS
from revelator.plans.language import BNF
from revelator.tasks import TASKS, TRANSLATE_BNF, TranslateInput
from revelator.trace import Trace, sort_ids
from serving.executor.executor import Executor
from serving.models.embedded import EmbeddedGenerator
from serving.models.engine import Engine
from serving.models.local import LocalRevelator, complete
from serving.retrieval import Index
from serving.retrieval.index import LocalRetriever

TEMPERATURES = (0.0, 0.5, 0.7, 0.9, 1.0)  # of the samples of a question
AGREEMENT = 0.6  # the share of the samples that must agree
COVERAGE = 0.8  # the share of a question's names that a plan keeps
BATCH = 32  # questions whose samples are drawn together, and whose plans run at the same time
PATIENCE = 3_600_000.0  # milliseconds for a plan: on a busy machine, too, the passages decide and not the clock
HELD_OUT = "held_out.sha256"
ATTEMPTS, RECORD = "attempts.jsonl", "round.json"
COUNTS = ("questions", "samples", "valid", "agreeing", "kept", "with_steps")

Propose = Callable[[Sequence[str], int], list[list[str]]]  # prompts, place of the first of them → texts of each


@dataclass(frozen=True)
class Settings:
    """What a round is made with. `model` and `index` are digests: another model needs another round."""

    questions: str
    format: str
    limit: int
    seed: int
    held_out: str | None
    model: str
    index: str


@dataclass(frozen=True)
class Attempt:
    """What a model wrote for a question, and the leaves of the plan that was run, in the plan's order; none where no
    plan was."""

    id: str
    samples: list[str]
    leaves: list[AskedLeaf]


@click.command(name="self-train")
@click.argument("questions", type=FOLDER)
@click.option("--adapter", type=FOLDER, help="The model's adapter folder; without it the base alone plans.")
@click.option("--base", help="Base model.  [default: the one that the adapter names, else mini]")
@click.option(
    "--index", "index_folder", type=FOLDER, help="Where the leaves' passages are looked for; without it, not."
)
@click.option("--out", required=True, type=FOLDER, help="Folder of the round; goes on there.")
@click.option("--format", default="pairs", show_default=True, type=click.Choice(sorted(READERS)))
@click.option("--limit", default=300, show_default=True, type=click.IntRange(1), help="Questions of the round.")
@click.option("--seed", default=1, show_default=True, type=int, help="Chooses the questions: another seed, others.")
@click.option("--held-out", type=FOLDER, help=f"Hashes of questions to leave out.  [default: {HELD_OUT} of the data]")
@THREADS
@AS_JSON
def self_train(
    questions: Path,
    adapter: Path | None,
    base: str | None,
    index_folder: Path | None,
    out: Path,
    format: str,
    limit: int,
    seed: int,
    held_out: Path | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Make training data of a model's own plans for QUESTIONS, rows with `question` and `answer` (or another --format).

    A plan is kept if it is valid, keeps the question's names, agrees with the other samples up to the order of `+`, and
    if its leaves, run on the index, find the known answer. Without an index that last test is left out. Run the same
    command again to continue a round that was killed.

    \b
    Example:
      revelator data self-train questions.jsonl --adapter runs/real/adapters/real \\
        --index runs/real/indexes/real --limit 300 --out runs/self/1
    """
    if not questions.is_file():
        raise ConfigError("there is no such file", where=str(questions), hint="rows with `question` and `answer`")
    index = Index.open(index_folder) if index_folder else None
    engine = Engine(base or (read_manifest(adapter).base_name if adapter else DEFAULT_BASE), adapter, threads=threads)
    settings = Settings(
        questions=str(questions),
        format=format,
        limit=limit,
        seed=seed,
        held_out=_find_held_out(held_out),
        model=sha256_file(adapter / "manifest.json") if adapter else engine.base_digest,
        index=sha256_file(index_folder / "manifest.json") if index_folder else "",
    )
    local = LocalRevelator(engine)
    limits = Limits(deadline_ms=PATIENCE)
    executor = Executor(local, LocalRetriever(index), EmbeddedGenerator(), limits) if index else None
    run_round(out, settings, draw_samples(engine, TEMPERATURES, seed), executor)
    local.close()
    record = (out / RECORD).read_text(encoding="utf-8")
    if as_json:
        click.echo(record)
        return
    known = json.loads(record)
    table = Table("round", "count", title=f"{out}: questions, samples and plans that each test left")
    for name, count in [*known["counts"].items(), *((f"dropped: {why}", n) for why, n in known["dropped"].items())]:
        table.add_row(name.replace("_", " "), f"{count:,}")
    Console().print(table)
    click.echo(f"what the set holds: revelator data inspect {out / 'set'}")


def _find_held_out(given: Path | None) -> str | None:
    """The given file, or else the file of the published data, if it exists."""
    found = given or Path(os.environ.get(DATA_VARIABLE) or DATA_DEFAULT) / HELD_OUT
    if given or found.is_file():
        return str(found)
    click.echo(f"no held-out questions are left out: there is no {found}; --held-out names them", err=True)
    return None


def run_round(out: Path, settings: Settings, draw: Propose, executor: Executor | None) -> dict[str, Any]:
    """Makes a round, or continues it, and returns the manifest of its set. Without an executor plans are not run."""
    begin_round(out, settings)
    counts, dropped = Counter(dict.fromkeys(COUNTS, 0)), Counter[str]()
    asked = choose_questions(settings, dropped)
    attempts = asyncio.run(attempt_questions(asked, out / ATTEMPTS, draw, executor))
    with write_questions(out / QUESTIONS) as write:
        for question in asked:
            kept = judge_attempt(question, attempts[question.id], settings, counts)
            if isinstance(kept, str):
                dropped[kept] += 1
            else:
                write(kept)
    return build_set(out, settings, counts, dropped)


def begin_round(out: Path, settings: Settings) -> None:
    """Creates the folder of a round, or continues the round in it. Raises ConfigError if it holds anything else."""
    known = asdict(settings)
    if (out / RECORD).exists():
        before = json.loads((out / RECORD).read_text(encoding="utf-8")).get("settings", {})
        if before != known:
            hint = "name another folder for another model, other questions or other settings"
            raise ConfigError("a round with other settings stands there", where=str(out), hint=hint)
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is not empty and no round", where="--out", hint="name another folder, or empty it")
    else:
        write_json(out / RECORD, {"settings": known})


def choose_questions(settings: Settings, dropped: Counter[str]) -> list[AnnotatedQuestion]:
    """Chooses `limit` questions by the hash of seed and id, without duplicates and held-out questions."""
    admission, found = Admission(settings.held_out), []
    source = Path(settings.questions).name.partition(".")[0]
    for row in READERS[settings.format](settings.questions):
        if not isinstance(row, AnnotatedQuestion):
            count_outcome(row, dropped)
            continue
        bare = replace(row, source=source, expression="", steps=(), parts=())
        if admission.admits(bare, dropped):
            found.append(bare)
    return shuffle_by_hash(found, f"round:{settings.seed}", lambda question: question.id)[: settings.limit]


def draw_samples(engine: Engine, temperatures: Sequence[float], seed: int) -> Propose:
    """Returns a function that draws a sample at each temperature. The samples of a batch depend only on its prompts,
    its place and the seed."""

    def propose(prompts: Sequence[str], place: int) -> list[list[str]]:
        draws = []
        for number, temperature in enumerate(temperatures):
            torch.manual_seed(int(sha256_text(f"{seed}:{place}:{number}")[:8], 16))
            done = complete(engine, TRANSLATE_BNF.name, prompts, temperature, BNF.beam_tokens, "grammar")
            draws.append([completion.text for completion in done])
        return [list(texts) for texts in zip(*draws, strict=True)]

    return propose


async def attempt_questions(
    questions: Sequence[AnnotatedQuestion], path: Path, draw: Propose, executor: Executor | None
) -> dict[str, Attempt]:
    """Draws the samples of every question and runs the plans that they agree on, in batches that do not depend on each
    other. A batch that was broken off is drawn again."""
    done = {row.id: row for row in continue_rows(path, Attempt)}
    with progress_bar() as progress:
        bar = progress.add_task("plans", total=len(questions), completed=len(done))
        for start in range(0, len(questions), BATCH):
            batch = questions[start : start + BATCH]
            if all(question.id in done for question in batch):
                continue
            prompts = [TRANSLATE_BNF.render(TranslateInput(question.question)) for question in batch]
            drawn = [pair for pair in zip(batch, draw(prompts, start), strict=True) if pair[0].id not in done]
            made = await asyncio.gather(*[_attempt_question(*pair, executor) for pair in drawn])
            append_rows(path, made)
            done |= {attempt.id: attempt for attempt in made}
            progress.advance(bar, len(made))
    return done


async def _attempt_question(question: AnnotatedQuestion, samples: list[str], executor: Executor | None) -> Attempt:
    plan, leaves = choose_agreed(question, samples, AGREEMENT, COVERAGE), list[AskedLeaf]()
    if executor and not isinstance(plan, str):
        with suppress(RevelatorError):
            trace = await executor.run(question.question, plan=plan.plan, strategy="compile")
            leaves = _describe_leaves(trace, question.answers)
    return Attempt(question.id, samples, leaves)


def _describe_leaves(trace: Trace, gold: Sequence[str]) -> list[AskedLeaf]:
    """Describes each leaf, in the plan's order, with the documents of its fan-out's members. A leaf that names the
    known answer itself finds nothing."""
    atomic = {node.id: node for node in trace.nodes if node.kind == "atomic"}
    described = []
    for id in [id for id in sort_ids(atomic) if "." not in id]:
        asked = atomic[id].asked or atomic[id].question
        members = [node for other, node in atomic.items() if other == id or other.startswith(f"{id}.")]
        found = any(states_answer(f"{d.title} {d.text}", gold) for node in members for d in node.documents)
        found = found and not states_answer(asked, gold)
        described.append(AskedLeaf(asked, tuple(atomic[id].answers), found))
    return described


def judge_attempt(
    question: AnnotatedQuestion, attempt: Attempt, settings: Settings, counts: Counter[str]
) -> AnnotatedQuestion | str:
    """The question as training data, or why it is none: its samples do not agree on a valid plan, or, with an index,
    its leaves do not find the known answer."""
    counts["questions"] += 1
    counts["samples"] += len(attempt.samples)
    plan = choose_agreed(question, attempt.samples, AGREEMENT, COVERAGE)
    if isinstance(plan, str):
        return plan
    counts["valid"] += plan.valid_samples
    counts["agreeing"] += 1
    if settings.index and (fault := check_support(plan.plan, attempt.leaves)):
        return fault
    kept = annotate(question, plan, attempt.leaves, settings.model[:12])
    counts["kept"] += 1
    counts["with_steps"] += bool(kept.steps)
    return kept


def build_set(out: Path, settings: Settings, counts: Counter[str], dropped: Counter[str]) -> dict[str, Any]:
    """Builds the set of a round, then writes the record. Raises RevelatorError where no plan was kept."""
    record = {"settings": asdict(settings), "counts": counts, "dropped": dropped}
    if not counts["kept"]:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(dropped.items()))
        raise RevelatorError(f"no plan was kept ({reasons})", where=str(out), hint="more questions, or a better model")
    config = SetConfig.model_validate(
        {
            "name": out.name,
            "seed": settings.seed,
            "held_out": settings.held_out,
            "split": {"dev": 0.0},
            "sources": [{"format": "world", "path": str(out / QUESTIONS), "sub_questions": 0}],
            "tasks": {name: {"share": 0.0} for name in TASKS if name not in (TRANSLATE_BNF.name, "refine", "end")},
        }
    )
    notes = {"model": settings.model, "index": settings.index}
    notes |= {name.replace("_", " "): f"{count:,}" for name, count in counts.items()}
    notes |= {f"not kept, {reason}": f"{count:,}" for reason, count in sorted(dropped.items())}
    manifest = build(config, out / "set", teaching=notes)
    write_json(out / RECORD, record | {"digest": manifest["digest"]})
    return manifest
