"""The two published sets that pages of results are about, and a table as such a page writes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from data_gen.config import SetConfig
from data_gen.questions import AnnotatedQuestion
from data_gen.sources.formats import READERS
from revelator.rows import read_manifest

TITLES = {"musique": "MuSiQue", "2wiki": "2WikiMultiHopQA"}
CORPORA = {  # below the folder of published files
    "2wiki": Path("2wikimultihopqa") / "2wiki_corpus.jsonl.gz",
    "musique": Path("corpora") / "musique_passages.jsonl.gz",
}


def all_questions(set_folder: Path) -> Iterator[AnnotatedQuestion]:
    """Every question of the sources of an instruction set, as it stands there."""
    config = SetConfig.model_validate(read_manifest(set_folder)["config"])
    for source in config.sources:
        yield from (q for q in READERS[source.format](source.path) if isinstance(q, AnnotatedQuestion))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
