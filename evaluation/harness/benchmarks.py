"""Reads benchmarks from their published files, and predictions that another system made for them.

A benchmark is every question of a file, with whatever is known of its solution.

An unreadable row is an error: a benchmark that is silently smaller measures something else. A question without a gold
plan is kept, because its answer is still known. A row that occurs twice is one question.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator

from evaluation.harness.config import BenchmarkConfig, RunConfig
from evaluation.harness.folder import check_ids
from evaluation.harness.formats import FORMATS, BenchmarkQuestion, read_own_questions
from evaluation.harness.trained_models import list_compared_models
from evaluation.rows import read_rows, take_sample
from evaluation.seen import Seen, SeenCount, find_seen_question, leave_out_seen
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import sha256_file, sha256_text
from revelator.fingerprints import normalise
from revelator.rows import SET, stream_rows
from serving.retrieval.index_folder import IndexSettings, Kind
from serving.retrieval.indexing import build_index

NO_QUESTIONS_HINT = "see split, kinds, dev_of and sample"
# Values of a run's `index` that stand for an index of the questions' own passages.
CLOSED_INDEX_KINDS: dict[str, Kind] = {"closed": "bm25", "closed-dense": "dense", "closed-hybrid": "hybrid"}


@dataclass(frozen=True)
class Benchmark:
    """Pinned questions: `questions` are chosen from `all_questions` of the files. `files` holds the sha256 of each file
    by the path that was given. `seen` says by the id of each question what models have seen of it. `left_out` counts
    what was left out because a model has seen it, None where nothing was to be; `without_gold` what a bound cannot be
    asked."""

    name: str
    format: str
    normaliser: str
    has_list_answers: bool
    questions: tuple[BenchmarkQuestion, ...]
    files: dict[str, str]
    all_questions: tuple[BenchmarkQuestion, ...] = ()
    seen: Mapping[str, Seen] = field(default_factory=dict)
    left_out: SeenCount | None = None
    without_gold: int = 0

    def to_json(self) -> dict[str, Any]:
        """Describes the benchmark for a run's record."""
        answers = "list" if self.has_list_answers else "aliases"
        about = {name: getattr(self, name) for name in ("name", "format", "normaliser", "files")}
        left_out: dict[str, Any] = {"left_out": self.left_out.to_json()} if self.left_out else {}
        left_out |= {"without_gold": self.without_gold} if self.without_gold else {}
        return about | {"answers": answers, "questions": len(self.questions)} | left_out

    def describe_left_out(self) -> str:
        """Which questions are not asked, and why; "" if none were to be left out."""
        said = []
        if (left := self.left_out) is not None:
            models = f" ({left.list_models()})" if left.count else ""
            unknown = f"; unknown: {', '.join(left.unknown)}" if left.unknown else ""
            said.append(f"left out {left.count:,} of {left.n:,} that models have seen in training{models}{unknown}")
        if self.without_gold:
            said.append(f"left out {self.without_gold:,} without the gold that the bound is given")
        return "; ".join(said)


def open_benchmark(config: BenchmarkConfig, compared: Sequence[RunConfig] = ()) -> Benchmark:
    """Reads the questions that the configuration names; of `unseen` those that no model of the `compared` runs has
    seen in training.

    Raises ConfigError for an unknown format and where no question is unseen, ArtifactError for a file whose sha256 is
    not the pinned one, DataError for what cannot be read.
    """
    how = FORMATS.get(config.format)
    if how is None:
        raise ConfigError(f"there is no benchmark format {config.format!r}", hint=f"one of {', '.join(FORMATS)}")
    files = {path: _digest_file(path) for path in config.path}
    pinned = dict(zip(config.path, config.sha256, strict=False))
    if changed := [path for path, digest in pinned.items() if files[path] != digest]:
        lines = "".join(f"\n  {path}: sha256 {files[path]}, pinned {pinned[path]}" for path in changed)
        hint = "take the pinned file, or pin the new one on purpose"
        raise ArtifactError(f"the benchmark changed:{lines}", hint=hint)
    read = partial(read_own_questions, columns=config.columns) if config.columns else how.read
    all_questions = _merge_duplicates(question for path in config.path for question in read(path))
    if config.dev_of:
        SET.read_manifest(Path(config.dev_of), verify=True)  # its files are as they were built
        files[config.dev_of] = sha256_file(Path(config.dev_of) / "manifest.json")
    questions = _select_questions(config, all_questions)
    if not questions:
        raise DataError("no question is left to ask", where=", ".join(config.path), hint=NO_QUESTIONS_HINT)
    left_out = None
    if config.unseen:
        models = list_compared_models(compared)
        seen = [find_seen_question(models, question.gold) for question in questions]
        questions, left_out = leave_out_seen(questions, seen, models)
    about = config.name or config.format, config.format, how.normaliser, how.has_list_answers
    drawn = {question.id for question in take_sample(questions, config.sample, config.seed, lambda each: each.id)}
    chosen = tuple(question for question in questions if question.id in drawn)
    return Benchmark(*about, chosen, files, tuple(all_questions), left_out=left_out)


def _select_questions(config: BenchmarkConfig, questions: list[BenchmarkQuestion]) -> list[BenchmarkQuestion]:
    """Selects the questions of `split` and of `kinds` ("static" includes "static/comparison"), and those in the dev
    split of the instruction set `dev_of`."""
    if config.split:
        questions = [q for q in questions if q.gold.split == config.split]
    if config.kinds:
        questions = [q for q in questions if any(f"{q.kind}/".startswith(f"{kind}/") for kind in config.kinds)]
    if config.dev_of:
        dev = {record.group for record in stream_rows(Path(config.dev_of), "dev")}
        questions = [q for q in questions if q.id in dev]
    return questions


def _digest_file(path: str) -> str:
    place = Path(path) / "questions.jsonl" if Path(path).is_dir() else Path(path)
    if not place.is_file():
        hint = "check the path and REVELATOR_DATA"
        raise DataError("there is no such file, or it is a folder", where=path, hint=hint)
    return sha256_file(place)


def _merge_duplicates(questions: Iterable[BenchmarkQuestion]) -> list[BenchmarkQuestion]:
    found: dict[str, BenchmarkQuestion] = {}
    for question in questions:
        first = found.setdefault(question.id, question)
        if normalise(first.gold.question) != normalise(question.gold.question):
            raise DataError(f"two questions have the id {question.id}")
    return list(found.values())


def build_closed_index(questions: Iterable[BenchmarkQuestion], home: Path, kind: Kind = "bm25") -> Path:
    """Indexes the distinct passages of the questions, gold and distractors, below the home folder, once: the folder's
    name is their digest. Every gold passage is there, so nothing decides but retrieval and reading (as HippoRAG and its
    followers measure). Raises DataError for questions without passages."""
    passages = dict.fromkeys((passage.title, passage.text) for q in questions for passage in q.gold.passages)
    if not passages:
        raise DataError(
            "the questions of this benchmark come without passages",
            where="index: closed",
            hint="name an index, or give the files that hold passages (MuSiQue with paragraphs, HotpotQA with context)",
        )
    lines = [
        json.dumps({"id": str(number), "title": title, "text": text}) + "\n"
        for number, (title, text) in enumerate(passages)
        if f"{title}{text}".strip()
    ]
    text = "".join(lines)
    folder = home / "indexes" / f"closed-{kind}-{sha256_text(text)[:12]}"
    if not (folder / "manifest.json").is_file():
        with tempfile.TemporaryDirectory() as work:
            corpus = Path(work) / "passages.jsonl"
            corpus.write_text(text, encoding="utf-8")
            build_index([corpus], folder, IndexSettings(kind=kind, model="" if kind == "bm25" else "minilm"))
    return folder


class Prediction(BaseModel):
    """What another system answered: one text, or several; None is no answer."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    id: str
    values: tuple[str, ...] = Field(validation_alias=AliasChoices("prediction", "predicted_answer", "answer"))

    @field_validator("values", mode="before")
    @classmethod
    def _make_list(cls, value: Any) -> Any:
        listed = value if isinstance(value, list) else [] if value is None else [value]
        return [str(one) if isinstance(one, bool) else one for one in listed]


def read_predictions(path: Path, ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Reads the predicted values of each id: JSON lines of `id` with `prediction`, `predicted_answer` (MuSiQue) or
    `answer`, a text or a list.

    An id may omit the name of its set. Raises DataError for ids that are missing, doubled or foreign.
    """
    hint = 'rows are {"id": "…", "prediction": "…"}'
    if not path.is_file():
        raise DataError("there is no such file, or it is a folder", where=str(path), hint=hint)
    full = {id.partition(":")[2]: id for id in ids if ":" in id} | {id: id for id in ids}
    try:
        rows = read_rows(path, Prediction)
    except DataError as error:
        raise DataError(error.message, where=error.where, hint=hint) from error
    named = [(full.get(row.id, row.id), row.values) for row in rows]
    check_ids([id for id, _ in named], ids, str(path))
    return dict(named)
