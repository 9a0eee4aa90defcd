"""Indexes of vectors side by side over the same passages and questions: time, memory, recall, and a line through them.

    python benchmarks/indexes.py PASSAGES [--sizes 10000 --sizes 100000] [--engines Flat,HNSW32,IVF-PQ,Milvus]

PASSAGES are JSON lines with `title` and `text`. The first `--real` ones are embedded by MiniLM. A further one has the
text of a real one, and the vector `a + (b - c) / 2` at length 1, where a, b and c are real ones that are drawn: so
there are as many as are asked for, spread in the directions in which real ones are. A question is "What is TITLE?" of
a real passage; it wants the ten nearest.

`Flat` compares with all, `HNSW32` and `IVF-PQ` are FAISS's, opened and asked as those of an index folder. `Milvus` is
Milvus Lite, written and asked as a collection of ours is; what it holds beside the vectors, texts too, counts.

One process builds (`build s` is its life, some seconds of start among it, for Milvus makes its graphs in the end);
another opens what was built and is asked, one question at a time, after 20 that are not timed.
`MB` is how much more memory it holds in the end than before it opened, pages of files among it. `cpu ms` is the mean of
processor time a question, which other work on the machine does not change; `recall` the share of the ten that a
comparison with all finds. Set OMP_NUM_THREADS for another number of threads than cores.

The last tables are calculated: a straight line through memory by passages, and one through the logarithms of time and
passages (time = c * passages^e), drawn on to 10^8 and 10^9.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
import psutil

from revelator.errors import RevelatorError
from revelator.trace import Passage
from serving.protocols import OWNER
from serving.retrieval.corpora import ReadPassage
from serving.retrieval.dense import VECTORS, Vectors, find_nearest, write_neighbours
from serving.retrieval.embedders import open_embedder
from serving.retrieval.index_folder import IndexSettings
from serving.retrieval.milvus_build import BATCH
from serving.retrieval.milvus_collection import FORMAT, MilvusAddress, MilvusCollection, write_row
from serving.retrieval.milvus_fields import summarize_fields
from serving.retrieval.milvus_index import MilvusIndex
from serving.retrieval.neighbours import FLAT, measure_recall

QUESTIONS, WARM, DEPTH = 200, 20, 10
SEED, BLOCK = 7, 20_000
LOAD_SECONDS = 3_600.0  # until Milvus has read its graphs
SETTINGS = IndexSettings(kind="dense", model="minilm")
FAR = (10**8, 10**9)
MB = 2**20
Ask = Callable[[np.ndarray], list[int]]


@dataclass(frozen=True)
class Row:
    """What an engine takes for so many passages."""

    engine: str
    passages: int
    build_s: float
    disk_mb: float
    memory_mb: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    recall: float


class Engine(Protocol):
    def build(self, folder: Path, vectors: Path, texts: list[tuple[str, str]]) -> None: ...

    def open(self, folder: Path) -> Ask: ...


@dataclass(frozen=True)
class Folder:
    """Vectors of an index folder, compared with all or found by FAISS."""

    factory: str

    def build(self, folder: Path, vectors: Path, texts: list[tuple[str, str]]) -> None:
        os.link(vectors, folder / VECTORS)
        matrix = np.load(vectors, mmap_mode="r")
        if self.factory != FLAT:
            lists = 2 ** round(math.log2(4 * math.sqrt(len(matrix))))
            factory = self.factory.replace("IVF-PQ", f"IVF{lists},PQ{matrix.shape[1] // 8}")
            write_neighbours(folder, matrix, factory, lambda done, count: None)

    def open(self, folder: Path) -> Ask:
        vectors = Vectors(folder)
        return lambda question: vectors.search(question[None], DEPTH)[1][0].tolist()


class Lite:
    """A collection of Milvus Lite, in the process that asks."""

    def build(self, folder: Path, vectors: Path, texts: list[tuple[str, str]]) -> None:
        matrix = np.load(vectors, mmap_mode="r")
        collection = MilvusCollection(self._name(folder), create=True)
        collection.create_manifest()
        collection.create_passages(SETTINGS, matrix.shape[1])
        for start in range(0, len(matrix), BATCH):
            rows = [self._make_row(place, texts) for place in range(start, min(start + BATCH, len(matrix)))]
            lists = matrix[start : start + BATCH].tolist()
            batch = [row | {"vector": vector} for row, vector in zip(rows, lists, strict=True)]
            collection.insist("upsert", collection.name, batch)
        collection.insist("flush", collection.name)
        about = {"settings": asdict(SETTINGS), "model": {"dimensions": matrix.shape[1]}}
        manifest = {"format": FORMAT, "version": 1, "count": len(matrix), "corpora": [], "unread": {}, **about}
        collection.write_manifest(manifest | summarize_fields([]))

    def open(self, folder: Path) -> Ask:
        index = MilvusIndex.open(self._name(folder))
        index.collection.call("load_collection", index.collection.name, seconds=LOAD_SECONDS)

        def ask(question: np.ndarray) -> list[int]:
            found = index.find_candidates([""], question[None], False, DEPTH, OWNER)
            assert found is not None
            return [int(id) for id in found]

        return ask

    def _make_row(self, place: int, texts: list[tuple[str, str]]) -> dict[str, Any]:
        passage = Passage(str(place), *texts[place % len(texts)])
        return write_row(ReadPassage("", passage, {}), "passages", "", place, SETTINGS)

    def _name(self, folder: Path) -> MilvusAddress:
        return MilvusAddress.read(f"milvus:{folder}/lite.db/passages")


ENGINES: dict[str, Engine] = {name: Folder(name) for name in (FLAT, "HNSW32", "IVF-PQ")} | {"Milvus": Lite()}


def read_texts(path: Path, count: int) -> list[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        rows = (json.loads(line) for line, _ in zip(lines, range(count), strict=False))
        return [(row["title"], row["text"]) for row in rows]


def embed(texts: list[tuple[str, str]], place: Path) -> np.ndarray:
    """Vectors of the passages, then of the questions; those that an earlier run left are taken."""
    if not place.exists():
        encoder = open_embedder(SETTINGS)
        drawn = np.random.default_rng(SEED).choice(len(texts), min(QUESTIONS + WARM, len(texts)), replace=False)
        documents = [f"{title}\n{text}" for title, text in texts]
        parts = [encoder.encode_documents(documents[start : start + 512]) for start in range(0, len(texts), 512)]
        questions = encoder.encode_queries([f"What is {texts[number][0]}?" for number in drawn])
        np.save(place, np.concatenate([*parts, questions]))
    return np.load(place)


def spread(real: np.ndarray, count: int, place: Path) -> None:
    """The real vectors, and between them those that are drawn: `count` in all."""
    matrix = np.lib.format.open_memmap(place, "w+", np.float32, (count, real.shape[1]))
    matrix[: len(real)] = real[:count]
    for start in range(len(real), count, BLOCK):
        size = min(BLOCK, count - start)
        one, plus, minus = np.random.default_rng([SEED, start]).integers(0, len(real), (3, size))
        drawn = real[one] + (real[plus] - real[minus]) / 2
        matrix[start : start + size] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    matrix.flush()


def build(name: str, folder: Path, vectors: Path, texts: list[tuple[str, str]]) -> None:
    ENGINES[name].build(folder, vectors, texts)


def ask(name: str, folder: Path, questions: np.ndarray) -> tuple[list[list[int]], list[tuple[float, float]], float]:
    """What was found, the milliseconds of each question by the clock and by the processor, and the memory in MB."""
    process = psutil.Process()
    before = process.memory_info().rss
    find, found, took = ENGINES[name].open(folder), [], []
    for question in questions:
        began = time.perf_counter(), time.process_time()
        found.append(find(question))
        took.append((1000 * (time.perf_counter() - began[0]), 1000 * (time.process_time() - began[1])))
    return found, took, (process.memory_info().rss - before) / MB


def run_apart(function: Callable[..., Any], *arguments: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as apart:
        return apart.submit(function, *arguments).result()


def measure(name: str, folder: Path, vectors: Path, texts: list[tuple[str, str]], questions: np.ndarray) -> Row:
    folder.mkdir()
    began = time.perf_counter()
    run_apart(build, name, folder, vectors, texts)
    seconds = time.perf_counter() - began
    disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    found, took, memory = run_apart(ask, name, folder, questions)
    matrix = np.load(vectors, mmap_mode="r")
    recall = measure_recall(np.array(found[WARM:]), find_nearest(matrix, questions[WARM:], DEPTH)[1])
    clock, cpu = np.array(took[WARM:]).T
    p50, p99 = np.percentile(clock, (50, 99)).tolist()
    return Row(name, len(matrix), seconds, disk / MB, memory, p50, p99, float(cpu.mean()), recall)


def measure_all(work: Path, sizes: tuple[int, ...], engines: list[str], real: np.ndarray, texts: Any) -> Iterator[Row]:
    questions = real[len(texts) :]
    for count in sizes:
        place = work / str(count)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        spread(real[: len(texts)], count, place / VECTORS)
        for name in engines:
            try:
                yield measure(name, place / name, place / VECTORS, texts, questions)
            except RevelatorError as error:
                print(f"{name:8}{count:12,}  {error}", flush=True)
            shutil.rmtree(place / name)


def print_lines(name: str, rows: list[Row]) -> None:
    """The two lines of an engine, how far the measured values are from them at most, and where they lead."""
    counts, memory, times = np.array([(row.passages, row.memory_mb, row.p50_ms) for row in rows]).T
    slope, start = np.polyfit(counts, memory, 1)
    power, factor = np.polyfit(np.log(counts), np.log(times), 1)
    off = max(abs(np.exp(factor) * counts**power / times - 1))
    told = f"{name:8}{slope * MB:14,.0f}{start:10.0f}{power:8.2f}{100 * off:8.0f} %"
    for count in FAR:
        told += f"{(start + slope * count) / 1024:12,.0f}{math.exp(factor) * count**power:12,.1f}"
    print(told)


@click.command(help=__doc__)
@click.argument("passages", type=click.Path(path_type=Path, exists=True))
@click.option("--sizes", type=int, multiple=True, default=(10_000, 100_000, 1_000_000), show_default=True)
@click.option("--real", default=10_000, show_default=True, help="Passages that are embedded.")
@click.option("--engines", default=",".join(ENGINES), show_default=True)
@click.option("--work", type=click.Path(path_type=Path), default=Path("runs/indexes-benchmark"), show_default=True)
def main(passages: Path, sizes: tuple[int, ...], real: int, engines: str, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    texts = read_texts(passages, real)
    vectors = embed(texts, work / f"real-{len(texts)}.npy")
    threads = os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0)))
    print(f"{platform.machine()}, threads: {threads}, load {os.getloadavg()[0]:.1f}, {len(texts):,} real vectors")
    heads = f"{'build s':>9}{'disk MB':>9}{'MB':>8}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms':>8}{'recall':>8}"
    print(f"{'engine':8}{'passages':>12}{heads}")
    rows: list[Row] = []
    for row in measure_all(work, sizes, engines.split(","), vectors, texts):
        rows.append(row)
        told = f"{row.engine:8}{row.passages:12,}{row.build_s:9.1f}{row.disk_mb:9.0f}{row.memory_mb:8.0f}"
        print(f"{told}{row.p50_ms:9.2f}{row.p99_ms:9.2f}{row.cpu_ms:8.2f}{row.recall:8.4f}", flush=True)
    print("\ncalculated by the lines")
    ends = "".join(f"{f'GiB, 10^{round(math.log10(n))}':>12}{'p50 ms':>12}" for n in FAR)
    print(f"{'engine':8}{'bytes/passage':>14}{'+ MB':>10}{'e':>8}{'off':>10}{ends}")
    for name in engines.split(","):
        if len(own := [row for row in rows if row.engine == name]) > 1:
            print_lines(name, own)


if __name__ == "__main__":
    main()
