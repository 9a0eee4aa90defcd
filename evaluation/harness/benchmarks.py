"""Benchmarks from their published files: every question of a file, with whatever is known of its solution.

A row that cannot be read stops the reading: a benchmark that is silently smaller measures something else. A question
without a gold plan is kept, because its answer is still known. A row that stands in a file twice is one question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.leakage import normalise
from evaluation.harness.checks import check_digests, check_ids
from evaluation.harness.formats import FORMATS, BenchmarkQuestion
from evaluation.questions import by_id_hash
from revelator.errors import ConfigError, DataError
from revelator.files import sha256_file
from revelator.rows import read_manifest, stream_rows

LEFT_BY = "see split, kinds, ids, dev_of and sample"
STATED = re.compile(rb'"[Vv]ersion"\s*:\s*"?v?(\d+(?:\.\d+)?)')


@dataclass(frozen=True)
class Benchmark:
    """Pinned questions; `files` holds the sha256 of each file by the path that was given."""

    name: str
    format: str
    version: str
    normaliser: str
    lists: bool
    questions: tuple[BenchmarkQuestion, ...]
    files: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """What a run says of it."""
        answers = "list" if self.lists else "aliases"
        about = {name: getattr(self, name) for name in ("name", "format", "version", "normaliser", "files")}
        return about | {"answers": answers, "questions": len(self.questions)}


def open_benchmark(
    format: str,
    paths: Sequence[str],
    *,
    version: str = "",
    pinned: Sequence[str] = (),
    split: str = "",
    kinds: Sequence[str] = (),
    ids: Sequence[str] = (),
    sample: int | None = None,
    name: str = "",
    dev_of: str = "",
) -> Benchmark:
    """The questions of some files: those of `split` and of `kinds` ("static" takes "static/comparison"), those in
    `ids`, those in the dev split of the instruction set `dev_of`, the first `sample` by the sha256 of their id.

    Raises ConfigError for an unknown format or version, ArtifactError for a file whose sha256 is not in `pinned`,
    DataError for what cannot be read and for `ids` that the files do not have.
    """
    how = FORMATS.get(format)
    if how is None:
        raise ConfigError(f"there is no benchmark format {format!r}", hint=f"one of {', '.join(FORMATS)}")
    wanted = version or how.versions[0]
    if wanted not in how.versions:
        known = ", ".join(how.versions)
        raise ConfigError(
            f"there is no version {wanted!r} of {format}", where="benchmark.version", hint=f"known: {known}"
        )
    files = {path: _digest(path) for path in paths}
    if pinned:
        check_digests(files, dict(zip(paths, pinned, strict=True)), "benchmark")
    if how.states:
        for path in paths:
            _require_version(path, wanted)
    questions = _distinct(question for path in paths for question in how.read(path))
    if split:
        questions = [q for q in questions if q.gold.split == split]
    if kinds:
        questions = [q for q in questions if any(q.kind == kind or q.kind.startswith(f"{kind}/") for kind in kinds)]
    if ids:
        check_ids([*dict.fromkeys(ids)], [q.id for q in questions], "benchmark.ids", whole=False)
        questions = [q for q in questions if q.id in set(ids)]
    if dev_of:
        read_manifest(Path(dev_of))  # its files are as they were built
        files[dev_of] = sha256_file(Path(dev_of) / "manifest.json")
        dev = {record.group for record in stream_rows(Path(dev_of), "dev")}
        questions = [q for q in questions if q.id in dev]
    if sample:
        chosen = {q.id for q in by_id_hash(q.gold for q in questions)[:sample]}
        questions = [q for q in questions if q.id in chosen]
    if not questions:
        raise DataError("no question is left to ask", where=", ".join(paths), hint=LEFT_BY)
    return Benchmark(name or format, format, wanted, how.normaliser, how.lists, tuple(questions), files)


def _digest(path: str) -> str:
    place = Path(path) / "questions.jsonl" if Path(path).is_dir() else Path(path)
    if not place.is_file():
        raise DataError("there is no such file", where=path, hint="check the path and REVELATOR_DATA")
    return sha256_file(place)


def _require_version(path: str, wanted: str) -> None:
    """What the file itself says of its version is what was asked for; a file that says nothing is taken as it is."""
    data = Path(path).read_bytes()
    if found := STATED.search(data[:4096]) or STATED.search(data[-4096:]):
        stated = found[1].decode()
        if float(stated) != float(wanted):
            raise DataError(f"the file says that it is version {stated}, not {wanted}", where=path)


def _distinct(questions: Iterable[BenchmarkQuestion]) -> list[BenchmarkQuestion]:
    found: dict[str, BenchmarkQuestion] = {}
    for question in questions:
        first = found.setdefault(question.id, question)
        if normalise(first.gold.question) != normalise(question.gold.question):
            raise DataError(f"two questions have the id {question.id}")
    return list(found.values())
