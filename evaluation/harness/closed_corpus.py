"""Closed corpora: the index of a benchmark is the union of its questions' own passages, gold and distractors, so that
every gold passage is there, and nothing decides but retrieval and reading (as HippoRAG and its followers measure)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from evaluation.harness.formats import BenchmarkQuestion
from revelator.errors import DataError
from revelator.files import sha256_text
from serving.retrieval.build import build_index

CLOSED = "closed"  # as `index` of a run


def build_closed_index(questions: Iterable[BenchmarkQuestion], home: Path) -> Path:
    """Indexes the distinct passages of the questions below the home folder, once: the folder's name is their digest.
    Raises DataError for questions without passages."""
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
    folder = home / "indexes" / f"closed-{sha256_text(text)[:12]}"
    if not (folder / "manifest.json").is_file():
        with tempfile.TemporaryDirectory() as work:
            corpus = Path(work) / "passages.jsonl"
            corpus.write_text(text, encoding="utf-8")
            build_index([corpus], folder)
    return folder
