"""What a measurement needs beside the instruction set: its dev questions, and the passages that its sources carry.

    python -m evaluation.chains.material --set DIR --out DIR [CORPUS...]

Reads the set's sources again, once, and writes `passages.jsonl` (each passage that stands beside a question or in a
CORPUS, once, distractors too) and, last, `questions.jsonl` (annotated dev questions).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import click

from data_gen.instruction_set import read_records
from data_gen.questions import AnnotatedQuestion, Evidence
from evaluation.published import all_questions
from revelator.cli import run
from revelator.durable import sha256_text, write_bytes
from serving.retrieval.passages import read_corpus

FOLDER = click.Path(path_type=Path)


def passages(questions: Iterable[AnnotatedQuestion], corpora: Iterable[Path]) -> Iterator[Evidence]:
    for path in corpora:
        yield from (Evidence(p.title, p.text, False) for _, p in read_corpus(path))
    for question in questions:
        yield from question.passages


@click.command()
@click.option("--set", "set_folder", required=True, type=FOLDER)
@click.option("--out", required=True, type=FOLDER)
@click.argument("corpora", nargs=-1, type=FOLDER)
def main(set_folder: Path, out: Path, corpora: tuple[Path, ...]) -> None:
    """Write dev questions and passages."""
    dev_ids = {record.group for record in read_records(set_folder, "dev")}
    questions = list(all_questions(set_folder))
    dev = {q.id: replace(q, split="dev") for q in reversed(questions) if q.id in dev_ids}  # the first file counts
    texts = {sha256_text(f"{p.title}\0{' '.join(p.text.split())}"): p for p in passages(questions, corpora)}
    rows = ({"id": f"set:{key[:16]}", "title": p.title, "text": p.text} for key, p in texts.items())
    write_bytes(out / "passages.jsonl", _lines(rows))
    write_bytes(out / "questions.jsonl", _lines(q.to_json() for q in dev.values()))
    click.echo(f"{len(dev):,} dev questions, {len(texts):,} passages: {out}")


def _lines(rows: Iterable[Mapping[str, object]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


if __name__ == "__main__":
    run(main)
