"""A synthetic world: its `questions.jsonl` holds annotated questions already, with their splits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from data_gen.annotated import AnnotatedQuestion
from data_gen.sources.rows import Outcome, read_annotated


def read_world(path: Path | str) -> Iterator[Outcome]:
    """The questions of the world in folder `path` (or of one `questions.jsonl`)."""
    folder = Path(path)
    return read_annotated(folder / "questions.jsonl" if folder.is_dir() else path, AnnotatedQuestion.from_json)
