"""A round of self-training: a model plans questions that have no plan, and the plans that stand up become a set.

ROUND/proposals.jsonl   the samples of each question, appended as they come
ROUND/executions.jsonl  what the leaves of the agreed plans were asked, answered and found
ROUND/questions.jsonl   the questions that are kept, whole or absent
ROUND/set/              the instruction set, its manifest written last
ROUND/round.json        the settings, what was proposed and kept and, once measured, the gain
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.leakage import Admission
from data_gen.questions import QUESTIONS, AnnotatedQuestion, write_questions
from data_gen.records import shuffle_by_hash
from data_gen.self_training import (
    AgreedPlan,
    AskedLeaf,
    annotate,
    check_support,
    choose_agreed,
    states_answer,
)
from data_gen.sources.formats import READERS
from data_gen.sources.rows import count_outcome
from evaluation.gate.scores import TaskScore
from evaluation.metrics.bootstrap import bootstrap
from evaluation.rows import append_rows, progress_bar, read_rows
from revelator.errors import ConfigError, RevelatorError
from revelator.files import sha256_text, write_json
from revelator.plans.language import BNF
from revelator.tasks import TASKS, TRANSLATE_BNF, TranslateInput
from revelator.trace import Trace, sort_ids
from serving.executor.executor import Executor
from serving.models.engine import Engine
from serving.models.local import complete
from serving.protocols import Decoding

BATCH = 32  # questions whose samples are drawn together
RECORD = "round.json"
COUNTS = ("questions", "samples", "valid", "agreeing", "kept", "with_steps")

Propose = Callable[[Sequence[str], int], list[list[str]]]  # prompts, place of the first of them → texts of each


@dataclass(frozen=True)
class Settings:
    """What a round is made with. `model` and `index` are digests: another model needs another round.

    `least` is the share of the samples that must agree, `coverage` the share of a question's names that a plan
    keeps."""

    questions: str
    format: str
    source: str
    licence: str
    limit: int
    seed: int
    temperatures: tuple[float, ...]
    least: float
    coverage: float
    held_out: str | None
    decoding: Decoding
    documents: int
    model: str
    index: str


@dataclass(frozen=True)
class Proposal:
    id: str
    samples: list[str]


@dataclass(frozen=True)
class Execution:
    id: str
    plan: str
    leaves: list[dict[str, Any]]

    @property
    def asked_leaves(self) -> list[AskedLeaf]:
        return [AskedLeaf(leaf["question"], tuple(leaf["answers"]), leaf["found"]) for leaf in self.leaves]


def begin_round(out: Path, settings: Settings) -> None:
    """Creates the folder of a round, or continues the round in it. Raises ConfigError if it holds anything else."""
    known = json.loads(json.dumps(asdict(settings)))
    if (out / RECORD).exists():
        before = json.loads((out / RECORD).read_text(encoding="utf-8")).get("settings", {})
        if before != known:
            hint = "name another folder for another model, other questions or other settings"
            raise ConfigError("a round with other settings stands there", where=str(out), hint=hint)
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is not empty and no round", where="--out", hint="name another folder, or empty it")
    else:
        write_json(out / RECORD, {"settings": known})


@dataclass
class Tally:
    """How many questions, samples (`samples`, and of these `valid`) and plans each test leaves; what is dropped, by
    reason."""

    counts: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(COUNTS, 0)))
    dropped: Counter[str] = field(default_factory=Counter)


def run_round(
    out: Path, settings: Settings, draw: Propose, executor: Executor | None, beside: SetConfig | None = None
) -> dict[str, Any]:
    """Makes a round, or continues it, and returns the manifest of its set. Without an executor plans are not run."""
    begin_round(out, settings)
    tally = Tally()
    asked = choose_questions(settings, tally.dropped)
    chosen = select(asked, propose(asked, out / "proposals.jsonl", draw), settings, tally)
    executions = asyncio.run(execute(chosen, out / "executions.jsonl", executor)) if executor else {}
    write_kept_questions(chosen, executions, settings, out, tally)
    return build_round(out, settings, beside, tally)


def choose_questions(settings: Settings, dropped: Counter[str]) -> list[AnnotatedQuestion]:
    """Chooses `limit` questions by the hash of seed and id, without duplicates and held-out questions."""
    admission, found = Admission(settings.held_out), []
    for row in READERS[settings.format](settings.questions):
        if not isinstance(row, AnnotatedQuestion):
            count_outcome(row, dropped)
            continue
        bare = replace(row, source=settings.source, licence=settings.licence, expression="", steps=(), parts=())
        if admission.admits(bare, dropped):
            found.append(bare)
    return shuffle_by_hash(found, f"round:{settings.seed}", lambda question: question.id)[: settings.limit]


def draw_samples(engine: Engine, temperatures: Sequence[float], seed: int, decoding: Decoding) -> Propose:
    """Returns a function that draws a sample at each temperature. The samples of a batch depend only on its prompts,
    its place and the seed."""

    def propose(prompts: Sequence[str], place: int) -> list[list[str]]:
        draws = []
        for number, temperature in enumerate(temperatures):
            torch.manual_seed(int(sha256_text(f"{seed}:{place}:{number}")[:8], 16))
            done = complete(engine, TRANSLATE_BNF.name, prompts, temperature, BNF.beam_tokens, decoding)
            draws.append([completion.text for completion in done])
        return [list(texts) for texts in zip(*draws, strict=True)]

    return propose


def propose(questions: Sequence[AnnotatedQuestion], path: Path, draw: Propose) -> list[Proposal]:
    """Draws the samples of every question, in batches that do not depend on each other."""
    done = {row.id for row in read_rows(path, Proposal)}
    with progress_bar() as progress:
        bar = progress.add_task("plans", total=len(questions), completed=len(done))
        for start in range(0, len(questions), BATCH):
            batch = questions[start : start + BATCH]
            if all(question.id in done for question in batch):
                continue
            prompts = [TRANSLATE_BNF.render(TranslateInput(question.question)) for question in batch]
            made = [Proposal(q.id, texts) for q, texts in zip(batch, draw(prompts, start), strict=True)]
            append_rows(path, [proposal for proposal in made if proposal.id not in done])
            progress.advance(bar, len(batch))
    return read_rows(path, Proposal)


async def execute(
    wanted: Iterable[tuple[AnnotatedQuestion, AgreedPlan]], path: Path, executor: Executor, concurrency: int = 8
) -> dict[str, Execution]:
    """Runs every agreed plan, several at a time, and records what each leaf found."""
    done = {row.id: row for row in read_rows(path, Execution)}
    todo = [(question, plan) for question, plan in wanted if question.id not in done]
    slots = asyncio.Semaphore(concurrency)
    with progress_bar() as progress:
        bar = progress.add_task("executions", total=len(todo))

        async def one(question: AnnotatedQuestion, plan: AgreedPlan) -> None:
            async with slots:
                try:
                    trace = await executor.run(question.question, plan=plan.plan, strategy="compile")
                    leaves = _describe_leaves(trace, question.answers)
                except RevelatorError:
                    leaves = []
            done[question.id] = Execution(question.id, plan.plan, leaves)
            append_rows(path, [done[question.id]])
            progress.advance(bar)

        async with asyncio.TaskGroup() as group:
            for question, plan in todo:
                group.create_task(one(question, plan))
    return done


def _describe_leaves(trace: Trace, gold: Sequence[str]) -> list[dict[str, Any]]:
    """Describes each leaf, in the plan's order, with the documents of its fan-out's members. A leaf that names the
    known answer itself finds nothing."""
    atomic = {node.id: node for node in trace.nodes if node.kind == "atomic"}
    described = []
    for id in [id for id in sort_ids(atomic) if "." not in id]:
        asked = atomic[id].asked or atomic[id].question
        members = [node for other, node in atomic.items() if other == id or other.startswith(f"{id}.")]
        found = any(states_answer(f"{d.title} {d.text}", gold) for node in members for d in node.documents)
        found = found and not states_answer(asked, gold)
        described.append({"question": asked, "answers": list(atomic[id].answers), "found": found})
    return described


def select(
    questions: Sequence[AnnotatedQuestion], proposals: Iterable[Proposal], settings: Settings, tally: Tally
) -> list[tuple[AnnotatedQuestion, AgreedPlan]]:
    """Selects the questions whose samples agree on a valid plan."""
    samples = {proposal.id: proposal.samples for proposal in proposals}
    chosen = []
    for question in questions:
        own = samples[question.id]
        tally.counts["samples"] += len(own)
        plan = choose_agreed(question, own, settings.least, settings.coverage)
        if isinstance(plan, str):
            tally.dropped[plan] += 1
        else:
            tally.counts["valid"] += plan.valid_samples
            chosen.append((question, plan))
    tally.counts["questions"], tally.counts["agreeing"] = len(questions), len(chosen)
    return chosen


def write_kept_questions(
    chosen: Sequence[tuple[AnnotatedQuestion, AgreedPlan]],
    executions: dict[str, Execution],
    settings: Settings,
    out: Path,
    tally: Tally,
) -> None:
    """Writes the questions whose leaves find the known answer; without an index, all questions."""
    with write_questions(out / QUESTIONS) as write:
        for question, plan in chosen:
            asked = executions[question.id].asked_leaves if settings.index else []
            if settings.index and (fault := check_support(plan.plan, asked)):
                tally.dropped[fault] += 1
                continue
            row = annotate(question, plan, asked, settings.model[:12])
            tally.counts["kept"] += 1
            tally.counts["with_steps"] += bool(row.steps)
            write(row)


def build_round(out: Path, settings: Settings, beside: SetConfig | None, tally: Tally) -> dict[str, Any]:
    """Builds the set of a round, alone or as one more source of `beside`, then the record."""
    counts, dropped = dict(tally.counts), dict(sorted(tally.dropped.items()))
    if not counts["kept"]:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in dropped.items())
        raise RevelatorError(f"no plan was kept ({reasons})", where=str(out), hint="more questions, or a better model")
    source = {"format": "world", "path": str(out / QUESTIONS), "sub_questions": 0}
    alone = {"name": out.name, "seed": settings.seed, "held_out": settings.held_out, "split": {"dev": 0.0}}
    only = {name: {"share": 0.0} for name in TASKS if name not in (TRANSLATE_BNF.name, "refine", "end")}
    base: dict[str, Any] = beside.model_dump() if beside else {**alone, "sources": [], "tasks": only}
    config = SetConfig.model_validate({**base, "sources": [*base["sources"], source]})
    notes = {"model": settings.model, "index": settings.index}
    notes |= {name.replace("_", " "): f"{count:,}" for name, count in counts.items()}
    notes |= {f"not kept, {reason}": f"{count:,}" for reason, count in dropped.items()}
    manifest = build(config, out / "set", teaching=notes)
    update_record(out, {"counts": counts, "dropped": dropped, "digest": manifest["digest"]})
    return manifest


def update_record(out: Path, more: dict[str, Any]) -> None:
    write_json(out / RECORD, json.loads((out / RECORD).read_text(encoding="utf-8")) | more)


def compare_scores(before: TaskScore, after: TaskScore) -> dict[str, Any]:
    """Compares both scores of each measure of a task on the same rows, with the paired bootstrap interval."""
    pairs = {name: np.subtract(after.values[name], values) for name, values in before.values.items()}
    changes = {name: bootstrap(pair, groups=before.question_ids) for name, pair in pairs.items()}
    return {
        "n": before.n,
        "scores": {name: (value, after.scores[name]) for name, value in before.scores.items()},
        "intervals": {name: (change.low, change.high) for name, change in changes.items()},
    }
