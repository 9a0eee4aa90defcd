"""The folder of a run: what one system answered to the questions of one benchmark. An interrupted run can continue.

RUN/run.json         written first: what is run, on what, by which code and weights (`Run`)
RUN/questions.jsonl  one object for each question (`QuestionRow`), appended when the question ends
RUN/metrics.json     written last (`evaluation.harness.run_metrics`): a run without it is incomplete

A figure is {n, value, low, high}: mean and 95 % bootstrap interval. metrics.json has `figures` by name; `groups`, the
same by route, shape, hops, depth, negations and kind of question; `parts`, what each part of the system costs
{calls, tokens_in, tokens_out, seconds, share}; `confusion`, counts of predicted routes by gold
route; `coverage` by the limit that refuses answers [{floor, coverage, accuracy, kept, refused}]; `outcomes`, counts of
right, wrong and refused where some questions have no answer; `normaliser`, the rule of em, acc and f1; `seen`
{count, n, by_model}, the questions that models have seen in training, and `unknown`, the models of which that is not
known; `without_gold`, how many questions a bound was not asked, because the gold that it is given is not known;
`questions_sha256`, the digest of the rows.

Digests identify a run. A run that differs from the one in its folder is refused before anything is asked, and the error
names what differs.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import revelator
import serving
from evaluation.rows import begin_folder, continue_rows, find_differences, read_rows, refuse_differences
from revelator.errors import ArtifactError, DataError
from revelator.files import digest_code, sha256_file, sha256_text

FORMAT = 1
SHOWN = 3  # ids that an error names
RUN, QUESTIONS, METRICS = "run.json", "questions.jsonl", "metrics.json"


@dataclass(frozen=True)
class Cost:
    """The cost of one question. `model_calls` counts prompts to the revelator, by task. `documents` counts the passages
    that were read, each as often as it was. `steps` counts sequential rounds of retrieval and generation; parts that
    run in parallel are one round (HANRAG, section 5). `wall_s` is the whole time of the question, `path_s` that of its
    longest chain of calls."""

    tokens_in: int = 0
    tokens_out: int = 0
    generator_calls: int = 0
    model_calls: dict[str, int] = field(default_factory=dict)
    retrievals: int = 0
    steps: int = 0
    wall_s: float = 0.0
    path_s: float = 0.0
    documents: int = 0


NO_COST = Cost()


@dataclass(frozen=True)
class QuestionRow:
    """One question. `status` is the outcome (`answered`, `partial`, `unanswered`, `failed`) or `error` (refused:
    `error` says why).

    `golds` are one answer and its aliases, or all values of a list (`Run.benchmark["answers"]` says which), or nothing
    where the documents do not answer the question: then `scores` has `refused` in place of em, acc and f1. Gold fields
    that the benchmark does not give are ""; `hops` counts the gold steps, `depth` the stages of the gold plan's
    longest chain, `terms` and `negations` those of a logical query, `shape` is the letters of the gold plan, `kind` the
    benchmark's own word for the question. `retrieved` are the titles found, each once: the first of every leaf, then
    the second of every leaf. `probability` is the least that a reading of its leaves had, `relevance` the least that
    the most relevant document of a leaf had. `trace` is a `revelator.trace.Trace`, or its JSON when read from a file,
    or None of predictions. `seen` says what each model has seen in training, the `question` or an `article` that it is
    about, by the model's name; None in runs of earlier releases.
    """

    id: str
    benchmark: str
    question: str
    golds: tuple[str, ...]
    prediction: str = ""
    predictions: tuple[str, ...] = ()
    status: str = "failed"
    error: str = ""
    route: str = ""
    gold_route: str = ""
    plan: str = ""
    gold_plan: str = ""
    shape: str = ""
    hops: int = 0
    depth: int = 0
    negations: int = 0
    terms: int = 0
    kind: str = ""
    gold_titles: tuple[str, ...] = ()
    retrieved: tuple[str, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)
    probability: float | None = None
    relevance: float | None = None
    trace: Any = None
    seen: dict[str, str] | None = None

    @property
    def has_cost(self) -> bool:
        """Whether the cost is known: refused questions and predictions of another system have none."""
        return self.status != "error" and self.cost != NO_COST


@dataclass(frozen=True)
class Run:
    """`config` as resolved; `benchmark` {name, format, normaliser, answers (`aliases` or `list`), files
    {path: sha256}}, with `left_out` and `without_gold` where questions were left out because a model has seen them, or
    because a bound has no gold of them; `system` {kind (`strategy`, `baseline`, `bound`, `predictions`, `ranking`),
    name}; `adapter` {version, manifest, base} and `index` {folder, digest, count} are empty where there is none.
    `fingerprints` holds the sha256 of each file that says what a model was trained on, by the name of the model's
    folder ("" where there is no file); `unknown` names the models of which that is not known."""

    config: dict[str, Any]
    command: str
    benchmark: dict[str, Any]
    system: dict[str, str]
    ablation: dict[str, Any]
    ids: tuple[str, ...]
    adapter: dict[str, str] = field(default_factory=dict)
    index: dict[str, Any] = field(default_factory=dict)
    generator: str = ""
    code: str = ""
    machine: str = ""
    seed: int = 0
    started: str = ""
    fingerprints: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def config_hash(self) -> str:
        return sha256_text(json.dumps(self.config, sort_keys=True))

    @property
    def without_gold(self) -> int:
        """How many questions were left out because the gold that the bound is given is not known of them."""
        return self.benchmark.get("without_gold", 0)

    @property
    def name(self) -> str:
        """The system with its ablations, as tables name it."""
        switched = [name if value is True else f"{name}={value}" for name, value in self.ablation.items()]
        return " ".join([self.system["name"], *(f"({one})" for one in switched)])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "config_hash": self.config_hash}


def describe_machine() -> dict[str, Any]:
    """Describes the time, the machine and the code of a run: what its configuration does not determine. Other code in
    the packages that answer a question may give other answers."""
    cpu = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"model name\s*:\s*(.+)", cpu)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    processor = found[1].strip() if found else platform.machine()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}",
        "code": digest_code(revelator, serving),
    }


def begin_run(folder: Path, run: Run) -> list[QuestionRow]:
    """Creates the folder of a run, or continues it, and returns the rows that it holds. Raises ConfigError if the
    folder holds something else, and ArtifactError naming each value in which the run in the folder differs from this
    one."""
    if begin_folder(folder / RUN, run.to_json()):
        return []
    there = read_run(folder)
    refuse_differences(find_difference(there, run), folder)
    return _order(continue_rows(folder / QUESTIONS, QuestionRow), folder, there, whole=False)


def find_difference(old: Run, new: Run) -> dict[str, tuple[Any, Any]]:
    """Finds what differs between two runs: both values, by name. Of the configurations only where nothing else does."""
    if found := find_differences(_identify(old), _identify(new)):
        if "ids" in found:
            others = "others" if len(old.ids) == len(new.ids) else "questions"
            found["ids"] = f"{len(old.ids)} questions", f"{len(new.ids)} {others}"
        return found
    return {f"config.{name}": pair for name, pair in find_differences(old.config, new.config).items()}


def _identify(run: Run) -> dict[str, Any]:
    """What makes two runs the same, by name; where files and folders lie does not."""
    own = {name: getattr(run, name) for name in ("system", "ablation", "seed", "code", "generator", "ids")}
    for part in ("benchmark", "adapter", "index", "fingerprints"):
        values = getattr(run, part)
        own |= {f"{part}.{name}": value for name, value in values.items() if name not in ("files", "folder")}
    return own | {"benchmark.files (sha256)": sorted(run.benchmark.get("files", {}).values())}


def read_run(folder: Path) -> Run:
    """Reads run.json. Raises ArtifactError if the folder is not a run, or has another format."""
    path = folder / RUN
    if not path.exists():
        hint = "`revelator eval run CONFIG.yaml --out DIR` makes one"
        raise ArtifactError("this is no run: run.json is missing", where=str(folder), hint=hint)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        run = TypeAdapter(Run).validate_python(value)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"this is no run: {error}", where=str(path)) from error
    if run.format != FORMAT:
        raise ArtifactError(f"a run of format {run.format}; this program reads format {FORMAT}", where=str(path))
    if value.get("config_hash") != run.config_hash:
        raise ArtifactError("the configuration was changed after the run was begun", where=str(path))
    return run


def read_questions(folder: Path, run: Run | None = None) -> list[QuestionRow]:
    """Reads the rows in the order of the run's ids. Raises DataError for an unreadable row, and for duplicate, unknown
    or missing ids."""
    return _order(read_rows(folder / QUESTIONS, QuestionRow), folder, run or read_run(folder))


def _order(rows: Sequence[QuestionRow], folder: Path, run: Run, *, whole: bool = True) -> list[QuestionRow]:
    check_ids([row.id for row in rows], run.ids, str(folder / QUESTIONS), whole=whole)
    order = {id: place for place, id in enumerate(run.ids)}
    return sorted(rows, key=lambda row: order[row.id])


def check_ids(found: Sequence[str], wanted: Collection[str], where: str, *, whole: bool = True) -> None:
    """Raises DataError that names ids that are doubled, foreign or missing."""
    doubled = [id for id, times in Counter(found).items() if times > 1]
    known, given = set(wanted), set(found)
    faults = [
        ("twice", doubled),
        ("of no question of the benchmark", [id for id in dict.fromkeys(found) if id not in known]),
    ]
    if whole:
        faults.append(("missing", [id for id in wanted if id not in given]))
    if said := [f"{_list_some(ids)} {fault}" for fault, ids in faults if ids]:
        raise DataError(f"the ids do not fit the benchmark: {'; '.join(said)}", where=where)


def _list_some(ids: Sequence[str]) -> str:
    """`4 ids (a, b, c, …)`."""
    more = ", …" if len(ids) > SHOWN else ""
    return f"{len(ids)} id{'s' if len(ids) > 1 else ''} ({', '.join(ids[:SHOWN])}{more})"


def read_metrics(folder: Path) -> dict[str, Any]:
    """Reads metrics.json. Raises ArtifactError if it is missing, or if the rows have changed since."""
    path = folder / METRICS
    if not path.exists():
        hint = "run the same `revelator eval run` again: it goes on where it stopped"
        raise ArtifactError("the run is not whole: metrics.json is missing", where=str(folder), hint=hint)
    metrics = json.loads(path.read_text(encoding="utf-8"))
    if metrics["questions_sha256"] != sha256_file(folder / QUESTIONS):
        raise ArtifactError("questions.jsonl was changed after it was measured", where=str(folder))
    return metrics
