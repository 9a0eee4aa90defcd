"""Logical questions made over a corpus (`data_gen.logic`); each comes with its query and its split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from data_gen.logic.questions import Shares, logical_questions
from data_gen.logic.topics import read_topics
from data_gen.sources.rows import Outcome


def read_logic(path: Path, size: int, seed: int, dev: float, test: float) -> Iterator[Outcome]:
    """`size` questions over the documents of `path`, a JSON-lines corpus or the folder of a world."""
    yield from logical_questions(read_topics(path), size, seed, Shares(dev, test), path.name.partition(".")[0])
