"""A round of self-training: a model plans questions that have no plan, and the plans that stand up become a set.

ROUND/proposals.jsonl   the samples of each question, appended as they come
ROUND/executions.jsonl  what the leaves of the agreed plans were asked, answered and found
ROUND/questions.jsonl   the questions that are kept, whole or absent
ROUND/set/              the instruction set, its manifest written last
ROUND/round.json        the settings, what was proposed and kept and, once measured, the gain
ROUND/README.md         the same as a card
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
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
    choose_likeliest,
    states_answer,
)
from data_gen.sources.formats import READERS
from data_gen.sources.rows import count_outcome
from evaluation.gate.scores import TaskScore
from evaluation.metrics.bootstrap import bootstrap
from evaluation.rows import append_rows, progress_bar, read_rows
from revelator.errors import ConfigError, RevelatorError
from revelator.files import sha256_text, write_bytes, write_json
from revelator.plans.language import BNF
from revelator.tasks import TASKS, TRANSLATE_BNF, TranslateInput
from revelator.trace import Node, Trace, sort_ids
from serving.models.decoding import Marks
from serving.models.engine import Engine
from serving.models.local import BEAMS, complete
from serving.protocols import Decoding

BATCH = 32  # questions whose samples are drawn together
RECORD = "round.json"

Propose = Callable[[Sequence[str], int], list[list[str]]]  # prompts, place of the first of them → texts of each
Run = Callable[[str, str], Awaitable[Trace]]  # question, plan → trace


@dataclass(frozen=True)
class Settings:
    """What a round is made with. `model` and `index` are digests: another model needs another round.

    `least` is the share of the samples that must agree, `coverage` the share of a question's names that a plan keeps.
    If the graph of every question is known (`letters`), the samples are the likeliest plans of that graph.
    """

    questions: str
    format: str
    source: str
    licence: str
    limit: int
    seed: int
    temperatures: tuple[float, ...]
    letters: str | None
    least: float
    coverage: float
    held_out: str | None
    decoding: str
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
        if {"letters": None} | before != known:  # a round of before there were letters has none
            hint = "name another folder for another model, other questions or other settings"
            raise ConfigError("a round with other settings stands there", where=str(out), hint=hint)
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is not empty and no round", where="--out", hint="name another folder, or empty it")
    else:
        write_json(out / RECORD, {"settings": known})


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


def search_letters(engine: Engine, letters: str) -> Propose:
    """Returns a function that finds the likeliest distinct texts whose operators ` *` and ` +` are those of `letters`,
    such as "(A + B) * C", in the same order, and which open the groups at its beginning.

    No grammar constrains them: the model may close a group or not. Raises ConfigError where the base's tokenizer has no
    token for an operator.
    """
    tokens = {sign: engine.tokenizer(f" {sign}", add_special_tokens=False)["input_ids"] for sign in "*+"}
    if any(len(found) > 1 for found in tokens.values()):
        hint = "name another base, or leave --letters out"
        raise ConfigError("the tokenizer of this base has no token for an operator", where="--letters", hint=hint)
    signs = {sign: token for sign, (token,) in tokens.items()}
    marks = Marks(list(signs.values()), [signs[sign] for sign in letters if sign in signs])
    groups = "(" * (len(letters) - len(letters.lstrip("(")))

    def propose(prompts: Sequence[str], place: int) -> list[list[str]]:
        begun = [f"{prompt} {groups}" if groups else prompt for prompt in prompts]
        found = engine.search_beams(begun, BEAMS, BNF.beam_tokens, marks=marks)
        return [list(dict.fromkeys(groups + text.text for text in texts)) for texts in found]

    return propose


def propose(questions: Sequence[AnnotatedQuestion], settings: Settings, path: Path, write: Propose) -> list[Proposal]:
    """Draws the samples of every question, in batches that do not depend on each other."""
    done = {row.id for row in read_rows(path, Proposal)}
    with progress_bar() as progress:
        bar = progress.add_task("plans", total=len(questions), completed=len(done))
        for start in range(0, len(questions), BATCH):
            batch = questions[start : start + BATCH]
            if all(question.id in done for question in batch):
                continue
            prompts = [TRANSLATE_BNF.render(TranslateInput(question.question)) for question in batch]
            made = [Proposal(q.id, texts) for q, texts in zip(batch, write(prompts, start), strict=True)]
            append_rows(path, [proposal for proposal in made if proposal.id not in done])
            progress.advance(bar, len(batch))
    return read_rows(path, Proposal)


async def execute(
    wanted: Iterable[tuple[AnnotatedQuestion, AgreedPlan]], path: Path, run: Run, concurrency: int = 8
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
                    leaves = _describe_leaves(await run(question.question, plan.plan), question.answers)
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
    return [_describe_leaf(atomic[id], _find_members(atomic, id), gold) for id in sort_ids(atomic) if "." not in id]


def _find_members(atomic: dict[str, Node], id: str) -> list[Node]:
    return [node for other, node in atomic.items() if other == id or other.startswith(f"{id}.")]


def _describe_leaf(node: Node, members: Sequence[Node], gold: Sequence[str]) -> dict[str, Any]:
    asked = node.asked or node.question
    found = any(states_answer(f"{d.title} {d.text}", gold) for member in members for d in member.documents)
    return {"question": asked, "answers": list(node.answers), "found": found and not states_answer(asked, gold)}


@dataclass
class Funnel:
    """How many questions, samples and plans are left after each test."""

    questions: int = 0
    samples: int = 0
    valid: int = 0  # samples
    agreeing: int = 0  # questions, from here on
    kept: int = 0
    with_steps: int = 0


def select(
    questions: Sequence[AnnotatedQuestion], proposals: Iterable[Proposal], settings: Settings, dropped: Counter[str]
) -> tuple[list[tuple[AnnotatedQuestion, AgreedPlan]], Funnel]:
    """Selects the questions whose samples agree on a valid plan, of the known letters if there are any."""
    samples = {proposal.id: proposal.samples for proposal in proposals}
    funnel, chosen = Funnel(len(questions)), []
    for question in questions:
        own = samples[question.id]
        if settings.letters:
            plan = choose_likeliest(question, own, settings.letters, settings.least, settings.coverage)
        else:
            plan = choose_agreed(question, own, settings.least, settings.coverage)
        funnel.samples += len(own)
        if isinstance(plan, str):
            dropped[plan] += 1
        else:
            funnel.valid += plan.valid_samples
            chosen.append((question, plan))
    funnel.agreeing = len(chosen)
    return chosen, funnel


def write_kept_questions(
    chosen: Sequence[tuple[AnnotatedQuestion, AgreedPlan]],
    executions: dict[str, Execution],
    settings: Settings,
    out: Path,
    funnel: Funnel,
    dropped: Counter[str],
) -> None:
    """Writes the questions whose leaves find the known answer; without an index, all questions."""
    with write_questions(out / QUESTIONS) as write:
        for question, plan in chosen:
            asked = executions[question.id].asked_leaves if settings.index else []
            if settings.index and (fault := check_support(plan.plan, asked)):
                dropped[fault] += 1
                continue
            row = annotate(question, plan, asked, settings.model[:12])
            funnel.kept += 1
            funnel.with_steps += bool(row.steps)
            write(row)


def build_round(out: Path, settings: Settings, beside: SetConfig | None, funnel: Funnel, dropped: Counter[str]) -> dict:
    """Builds the set of a round, alone or as one more source of `beside`, then the record and the card. Returns the
    manifest."""
    if not funnel.kept:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(dropped.items()))
        raise RevelatorError(f"no plan was kept ({reasons})", where=str(out), hint="more questions, or a better model")
    source = {"format": "world", "path": str(out / QUESTIONS), "sub_questions": 0}
    alone = {"name": out.name, "seed": settings.seed, "held_out": settings.held_out, "split": {"dev": 0.0}}
    only = {name: {"share": 0.0} for name in TASKS if name not in (TRANSLATE_BNF.name, "refine", "end")}
    base: dict[str, Any] = beside.model_dump() if beside else {**alone, "sources": [], "tasks": only}
    config = SetConfig.model_validate({**base, "sources": [*base["sources"], source]})
    counts = {name.replace("_", " "): f"{count:,}" for name, count in asdict(funnel).items()}
    notes = {"model": settings.model, "index": settings.index, **counts}
    notes |= {f"not kept, {reason}": f"{count:,}" for reason, count in sorted(dropped.items())}
    manifest = build(config, out / "set", teaching=notes)
    update_record(
        out, {"counts": asdict(funnel), "dropped": dict(sorted(dropped.items())), "digest": manifest["digest"]}
    )
    return manifest


def update_record(out: Path, more: dict[str, Any]) -> None:
    """Adds to the record of a round and rewrites its card."""
    known = json.loads((out / RECORD).read_text(encoding="utf-8")) | more
    write_bytes(out / "README.md", write_card(out.name, known).encode())
    write_json(out / RECORD, known)


def write_card(name: str, known: dict[str, Any]) -> str:
    """Writes in Markdown how the round was made, how much each test left, and the gain if it was measured."""
    settings = known["settings"]
    lines = [
        f"# Self-training round `{name}`",
        f"Model `{settings['model'][:12]}` planned questions of `{settings['source']}` ({settings['licence']}), "
        + (
            f"the likeliest plans of letters `{settings['letters']}`; "
            if settings.get("letters")
            else f"a sample at each of the temperatures {', '.join(map(str, settings['temperatures']))}; "
        )
        + (f"index `{settings['index'][:12]}`." if settings["index"] else "no index: the plans were not run."),
        "\n".join(f"* {what.replace('_', ' ')}: {count:,}" for what, count in known["counts"].items()),
        "Left out:",
        "\n".join(f"* {reason}: {count:,}" for reason, count in known["dropped"].items()) or "nothing",
        f"The set is `set/`, digest `{known['digest'][:12]}`.",
    ]
    if gain := known.get("gain"):
        write_questions = f"dev rows of set `{gain['set'][:12]}`" + (
            f" from `{gain['source']}`" if gain["source"] else ""
        )
        adapters = f"before (`{gain['before'][:12]}`) and after (`{gain['after'][:12]}`) training on it"
        lines += [
            f"## Gain\n\nThe {write_questions}, {adapters}; 95 % paired bootstrap intervals.",
            _tabulate_gains(gain["tasks"]),
        ]
    return "\n\n".join(lines) + "\n"


def compare_scores(before: TaskScore, after: TaskScore) -> dict[str, Any]:
    """Compares both scores of each measure of a task on the same rows, with the paired bootstrap interval."""
    pairs = {name: np.subtract(after.values[name], values) for name, values in before.values.items()}
    changes = {name: bootstrap(pair, groups=before.questions) for name, pair in pairs.items()}
    return {
        "n": before.n,
        "scores": {name: (value, after.scores[name]) for name, value in before.scores.items()},
        "intervals": {name: (change.low, change.high) for name, change in changes.items()},
    }


def _tabulate_gains(tasks: dict[str, dict[str, Any]]) -> str:
    table = ["| task | n | measure | before | after | gain |", "|---|---|---|---|---|---|"]
    for task, own in tasks.items():
        for measure, (before, after) in own["scores"].items():
            ends = own["intervals"].get(measure)
            interval = f" [{ends[0]:+.3f}, {ends[1]:+.3f}]" if ends else ""
            gain = f"{after - before:+.3f}{interval}"
            table.append(f"| {task} | {own['n']} | {measure} | {before:.3f} | {after:.3f} | {gain} |")
    return "\n".join(table)
