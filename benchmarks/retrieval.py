"""BM25 retrieval: build time, peak memory, latency, memory of a process, recall; beside bm25s used plainly.

    python benchmarks/retrieval.py [CORPUS.jsonl.gz] [--passages N] [--queries N]

Each figure is taken in a process of its own. "plainly": `bm25s.tokenize`, `BM25.index`, and `BM25.load` with its corpus
memory-mapped. Queries are the titles of passages in the corpus, each with three words of its text: the passage itself
should come first. Memory is what the process holds for itself (Linux `RssAnon`), beyond shared and cached pages.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

Search = Callable[[str, int], list[str]]


def read_rows(corpus: Path, limit: int) -> Iterator[tuple[str, str, str]]:
    from serving.retrieval.corpora import read_corpus

    for number, (_, passage) in enumerate(read_corpus(corpus)):
        if number == limit:
            return
        yield passage.id, passage.title, passage.text


def build_own(corpus: Path, folder: Path) -> None:
    from serving.retrieval import IndexSettings, build_index

    build_index([corpus], folder, IndexSettings(detokenize=True))


def open_own(folder: Path) -> Search:
    from serving.retrieval import Index

    index = Index.open(folder)
    return lambda query, k: [passage.id for passage in index.search(query, k)]


def build_plain(corpus: Path, folder: Path) -> None:
    import bm25s
    import Stemmer

    texts = [{"id": i, "title": title, "text": text} for i, title, text in read_rows(corpus, -1)]
    words = [f"{row['title']} {row['text']}" for row in texts]
    tokens = bm25s.tokenize(words, stemmer=Stemmer.Stemmer("english"), show_progress=False)
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    index.save(folder, corpus=texts, show_progress=False)


def open_plain(folder: Path) -> Search:
    import bm25s
    import Stemmer

    index = bm25s.BM25.load(folder, mmap=True, load_corpus=True, show_progress=False)
    stemmer = Stemmer.Stemmer("english")

    def search(query: str, k: int) -> list[str]:
        tokens = bm25s.tokenize(query, stemmer=stemmer, show_progress=False)
        return [row["id"] for row in index.retrieve(tokens, k=k, show_progress=False).documents[0]]

    return search


WAYS: dict[str, tuple[Callable[[Path, Path], None], Callable[[Path], Search]]] = {
    "revelator": (build_own, open_own),
    "bm25s plainly": (build_plain, open_plain),
}


def measure_build(way: str, corpus: Path, folder: Path) -> dict[str, float]:
    started = time.perf_counter()
    WAYS[way][0](corpus, folder)
    seconds = time.perf_counter() - started
    return {"build s": seconds, "build peak MiB": read_memory("VmHWM")}


def measure_search(way: str, folder: Path, queries: list[tuple[str, str]]) -> dict[str, float]:
    started = time.perf_counter()
    search = WAYS[way][1](folder)
    opened = time.perf_counter() - started
    search(queries[0][0], 10)
    times, first, ten = [], 0, 0
    for query, gold in queries:
        started = time.perf_counter()
        found = search(query, 10)
        times.append(1000 * (time.perf_counter() - started))
        first += found[:1] == [gold]
        ten += gold in found
    p50, p99 = np.percentile(times, [50, 99])
    return {
        "open s": opened,
        "p50 ms": float(p50),
        "p99 ms": float(p99),
        "own memory MiB": read_memory("RssAnon"),
        "recall@1": first / len(queries),
        "recall@10": ten / len(queries),
    }


def read_memory(name: str) -> float:
    """MiB of this process, by the name of a line of Linux's /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def sample_queries(corpus: Path, count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    passages = [(i, title, text.split()) for i, title, text in read_rows(corpus, -1) if len(text.split()) > 12]
    chosen = rng.sample(passages, min(count, len(passages)))
    return [(f"{title} {' '.join(rng.sample(words, 3))}", i) for i, title, words in chosen]


def run_in_process(function: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def cut_corpus(corpus: Path, limit: int, into: Path) -> Path:
    path = into / "cut.jsonl"
    with path.open("w") as file:
        for i, title, text in read_rows(corpus, limit):
            file.write(json.dumps({"id": i, "title": title, "text": text}) + "\n")
    return path


def main() -> None:
    data = Path(os.environ.get("REVELATOR_DATA", "../shared/data"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, default=data / "wikipedia/wiki_intros.jsonl.gz")
    parser.add_argument("--passages", type=int, default=0, help="index only the first N passages")
    parser.add_argument("--queries", type=int, default=500)
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = cut_corpus(arguments.corpus, arguments.passages, folder) if arguments.passages else arguments.corpus
        queries = sample_queries(corpus, arguments.queries, seed=1)
        for way in WAYS:
            figures[way] = run_in_process(measure_build, way, corpus, folder / way)
            figures[way] |= run_in_process(measure_search, way, folder / way, queries)
    table = Table("", *figures, title=f"{arguments.corpus.name}: {arguments.passages or 'all'} passages")
    for row in next(iter(figures.values())):
        table.add_row(row, *(f"{figures[way][row]:,.2f}" for way in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
