"""A world divided among three sources, and the questions that two of them answer only together.

Each document of a world goes to one source: to a text corpus, to a corpus that a web search finds, or, as triples, to a
graph. A question of two steps whose documents lie in different sources needs both: the answer of the first step is the
bridge to the second. BlendQA (Xin et al. 2024, section 4.1.2) merges two sub-questions of two sources in this way; here
the plan of a world's question already has the two.

OUT/text.jsonl, OUT/web.jsonl   documents: id, title, text
OUT/triples.tsv                 head, relation, tail
OUT/questions.jsonl             question, answer, type (the pair of sources), plan; the format `blendqa`
OUT/manifest.json               counts and digests; written last
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_gen.questions import QUESTIONS, AnnotatedQuestion, check_place
from data_gen.records import hash_fraction
from revelator.errors import DataError
from revelator.files import sha256_folder, staged_folder, write_json

SOURCES = ("graph", "text", "web")
KIND = "blend"
PER_PAIR = 150  # questions of a pair of sources; BlendQA has 132 to 163


def blend(world: Path, out: Path, *, force: bool = False) -> dict[str, Any]:
    """Divides the world in the folder `world` and writes OUT; returns its manifest.

    A document's source follows from its title alone. Raises DataError where a pair of sources has no question.
    """
    check_place(out, force, KIND)
    passages = list(_read_rows(world / "passages.jsonl"))
    triples = [line.split("\t") for line in (world / "triples.tsv").read_text(encoding="utf-8").splitlines()]
    known: dict[str, set[str]] = defaultdict(set)  # what the graph says of each thing
    for head, _, tail in triples:
        if choose_source(head) == "graph":
            known[head].add(tail)
    asked: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _read_rows(world / QUESTIONS):
        question = AnnotatedQuestion.from_json(row)
        pair = _find_pair(question, known)
        if pair and len(asked[pair]) < PER_PAIR:
            asked[pair].append(_describe(question, pair))
    if len(asked) < len(SOURCES):
        raise DataError(f"only {len(asked)} of 3 pairs of sources have a question", hint="make a larger world (--size)")
    with staged_folder(out) as folder:
        for source in ("text", "web"):
            _write_rows(folder / f"{source}.jsonl", [row for row in passages if choose_source(row["title"]) == source])
        lines = ["\t".join(triple) for triple in triples if choose_source(triple[0]) == "graph"]
        (folder / "triples.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        _write_rows(folder / QUESTIONS, [row for pair in sorted(asked) for row in asked[pair]])
        manifest = {
            "kind": KIND,
            "documents": dict(Counter(choose_source(row["title"]) for row in passages)),
            "questions": {pair: len(rows) for pair, rows in sorted(asked.items())},
            "files": sha256_folder(folder),
        }
        write_json(folder / "manifest.json", manifest)
    return manifest


def choose_source(title: str) -> str:
    return SOURCES[int(hash_fraction(f"blend:{title}") * len(SOURCES))]


def _find_pair(question: AnnotatedQuestion, known: dict[str, set[str]]) -> str | None:
    """The two sources of a question of two steps in a row, "graph-text"; None where one source has both, or where the
    graph has no triple for its step."""
    if question.route != "complex" or len(question.steps) != 2 or question.operation not in ("", "none"):
        return None
    sources = [choose_source(step.title) for step in question.steps]
    for step, source in zip(question.steps, sources, strict=True):
        if source == "graph" and not known[step.title].issuperset(step.answers):
            return None
    return None if len(set(sources)) < 2 else "-".join(sorted(sources))


def _describe(question: AnnotatedQuestion, pair: str) -> dict[str, Any]:
    return {
        "id": question.id,
        "question": question.question,
        "answer": list(question.answers),
        "type": pair,
        "plan": question.expression,
        "split": question.split,
    }


def _read_rows(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
