"""What the gate scores two versions on: the rows that are new in the challenger's set, pinned those of the set that the
champion was promoted on, so that what is new takes nothing away, and files of questions that are asked end to end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evaluation.gate.scores import ANSWERS, PINNED, REFUSALS, Scores, TaskScore, read_pinned_rows, score_adapter
from evaluation.harness.benchmarks import Benchmark
from evaluation.harness.config import RunConfig, describe_own, read_columns
from evaluation.harness.folder import QuestionRow, Run, read_questions
from evaluation.harness.run import prepare_run, run_questions
from evaluation.rows import progress_bar
from evaluation.seen import SeenCount
from revelator.config import check_config
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import sha256_file, sha256_text
from revelator.registry import Version
from revelator.rows import SET, Row, read_split, sample_rows
from serving.models.adapters import fetch_version
from serving.retrieval.places import IndexAddress

TAG = "questions"  # of a version: the file of questions that it was promoted on, as JSON


@dataclass(frozen=True)
class QuestionFile:
    """Questions with answers, and the index over which they are asked. `sha256` pins what the file held."""

    path: str
    index: str
    columns: dict[str, str]
    sha256: str

    def to_tag(self) -> str:
        return json.dumps(vars(self))


def open_question_file(path: Path, index: IndexAddress | None, columns: Sequence[str]) -> QuestionFile:
    """Raises ConfigError where there is no such file, or for columns that are not FIELD=NAME."""
    if not path.is_file():
        raise ConfigError("no such file", where=f"--questions {path}", hint="give a CSV with question and answer")
    place = index.resolve() if isinstance(index, Path) else index or ""
    return QuestionFile(str(path.resolve()), str(place), read_columns(columns), sha256_file(path))


def list_question_files(given: QuestionFile | None, champion: Version | None) -> dict[str, QuestionFile]:
    """The file that is given, and the one that the champion was promoted on, by the names of their scores."""
    files = {ANSWERS: given} if given else {}
    pinned = QuestionFile(**json.loads(champion.tags[TAG])) if champion and TAG in champion.tags else None
    return files | ({f"{PINNED}{ANSWERS}": pinned} if pinned and pinned != given else {})


@dataclass(frozen=True)
class Examination:
    """What both versions are scored on: `slices` of rows, by what stands before the task's name in their scores, and
    `files` of questions by the name of their score. `shared` are the questions of both sets, by their `group`.
    At most `limit` rows of a task and questions of a file are taken."""

    home: Path
    base: str | None
    limit: int
    slices: dict[str, list[Row]]
    shared: frozenset[str]
    files: dict[str, QuestionFile]

    def count(self, version: Version) -> dict[str, int]:
        """Questions by what they are of. Raises ConfigError, DataError or ArtifactError where a file, its index or the
        version does not fit."""
        of = {"": "the challenger's set", PINNED: "the champion's set"}
        counts = {of[name]: len({row.group for row in rows}) for name, rows in self.slices.items()}
        counts[of[""]] += len({row.group for row in self.slices.get(PINNED, ())} & self.shared)
        return counts | {self.files[name].path: len(run.ids) for name, (_, run, _) in self._prepare(version).items()}

    def score(self, version: Version, title: str) -> Scores:
        adapter = fetch_version(version, self.home)
        found = score_adapter(adapter, self.slices, title, self.home, self.base)
        for name, prepared in self._prepare(version).items():
            asked = ask_questions(*prepared, self.home, f"{title}: {name}")
            found |= {name.replace(ANSWERS, task): score for task, score in asked.items()}
        return found

    def _prepare(self, version: Version) -> dict[str, tuple[RunConfig, Run, Benchmark]]:
        """The runs of `auto` with this version's adapter over the question files, checked."""
        adapter = str(fetch_version(version, self.home).folder) if self.files else ""
        shared = {"system": {"strategy": "auto"}, "adapter": adapter, "base": self.base or "", "home": str(self.home)}
        prepared = {}
        for name, file in self.files.items():
            benchmark = describe_own(Path(file.path), file.columns, sample=self.limit) | {"sha256": file.sha256}
            values = shared | {"benchmark": benchmark, "index": file.index}
            prepared[name] = prepare_run(check_config(values, RunConfig, "--questions"), "revelator model promote")
        return prepared


def read_slices(
    folder: Path, challenger: Version, champion: Version | None, split: str, limit: int
) -> tuple[dict[str, list[Row]], frozenset[str], tuple[str, ...]]:
    """The rows of the set in `folder` and, where the champion was promoted on another, PINNED ones of that, without
    those that the challenger was trained on; the questions of both; and why pinned ones cannot be read.

    Questions of both sets are pinned ones alone: among hundreds of them, ten new ones would not be seen. Where no
    question is new, both have them all.
    """
    slices, shared = {"": read_pinned_rows(folder, split, limit)}, frozenset[str]()
    if champion is None:
        return slices, shared, ()
    try:
        if "set_folder" not in champion.tags:
            raise DataError("it names no set")
        pinned = Path(champion.tags["set_folder"])
        if SET.read_manifest(pinned, verify=True)["digest"] != SET.read_manifest(folder, verify=True)["digest"]:
            sets = [challenger.tags.get("set_folder", folder), *json.loads(challenger.tags.get("other_sets", "[]"))]
            trained = {row.prompt for each in sets for row in read_split(Path(each), "train")}
            slices[PINNED] = [row for row in read_pinned_rows(pinned, split, limit) if row.prompt not in trained]
            known, own = {row.group for row in read_split(pinned, split)}, read_split(folder, split)
            if new := [row for row in own if row.group not in known]:
                slices[""], shared = sample_rows(new, limit), frozenset(row.group for row in own) & known
    except (ArtifactError, DataError) as error:
        unread = (f"the champion's questions cannot be read: {error.message} ({error.where or 'registry'})",)
        return slices, shared, unread
    return slices, shared, ()


def find_too_few(counts: Mapping[str, int], minimum: int) -> list[str]:
    """Returns a sentence for each kind that has fewer than `minimum` questions."""
    return [f"{n} questions of {name}, and {minimum} are wanted" for name, n in counts.items() if n < minimum]


def ask_questions(config: RunConfig, run: Run, benchmark: Benchmark, home: Path, title: str) -> Scores:
    """Asks the questions of a run that was prepared, or goes on where it was broken off. Scores the answers (`f1` and
    `em`, by SQuAD's normaliser) and, of questions without an answer, the refusals, whichever there are."""
    about = json.dumps([run.config, run.benchmark, run.adapter, run.index, run.generator, run.code], sort_keys=True)
    folder = home / "gate" / sha256_text(about)[:16]
    with progress_bar() as progress:
        progress.console.print(f"{title}: {len(run.ids):,} questions → {folder}", highlight=False)
        run_questions(config, run, benchmark, folder, progress)
    rows = read_questions(folder)
    kinds = {ANSWERS: [row for row in rows if row.golds], REFUSALS: [row for row in rows if not row.golds]}
    return {task: _score_rows(task, own, run) for task, own in kinds.items() if own}


def _score_rows(task: str, rows: Sequence[QuestionRow], run: Run) -> TaskScore:
    names = ("f1", "em") if task == ANSWERS else ("refused",)
    values = {name: tuple(float(row.scores.get(name, 0.0)) for row in rows) for name in names}
    scores = {name: sum(own) / len(own) for name, own in values.items()}
    seen = SeenCount.of((row.seen for row in rows), run.unknown)
    return TaskScore(task, scores, tuple(f"{row.id}/{task}/0" for row in rows), values, seen)
