"""Records a second of one process beside a Ray cluster of 1, 2 and 3 nodes with one CPU each, in one run.

    python benchmarks/cluster.py [--size 2000] [--nodes 3] [--model minilm] [--job index --job set --job questions]

From one synthetic world of `--size` questions: its documents become a dense index, its questions an instruction set,
and `--asked` of them are asked by plain retrieval with the embedded reader. Each job is done by one process first, then
by each cluster, on this machine; what is made must be the same. The times are those of whole jobs, in which workers
start and open their models: small jobs show the price of a cluster, large ones its gain. More nodes than free cores
cannot be faster; the first line says how many cores there are.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import Progress

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.world.generate import generate
from evaluation.harness.config import RunConfig
from evaluation.harness.folder import read_questions
from evaluation.harness.run import prepare_run, run_questions
from revelator.cluster import Engine, open_engine, work_here
from revelator.config import check_config
from revelator.files import sha256_folder
from serving.retrieval import IndexSettings, build_index

STORE = 200_000_000  # bytes of a node's object store
Job = Callable[[Path, Engine], tuple[int, object]]  # what it made: how many records, and what must be the same


@contextmanager
def start_cluster(nodes: int) -> Iterator[Engine]:
    import ray
    from ray.cluster_utils import Cluster

    own = {"object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **own})
    try:
        for _ in range(nodes):
            cluster.add_node(num_cpus=1, **own)
        ray.init(address=cluster.address, log_to_driver=False)
        with open_engine("ray", "revelator", "data_gen", "serving", "evaluation") as engine:
            yield engine
    finally:
        ray.shutdown()
        cluster.shutdown()


def make_jobs(world: Path, index: Path, model: str, asked: int) -> dict[str, Job]:
    def build_vectors(out: Path, engine: Engine) -> tuple[int, object]:
        settings = IndexSettings(kind="dense", model=model)
        made = build_index([world / "passages.jsonl"], out, settings, engine=engine)
        return made["count"], sha256_folder(out)

    def build_set(out: Path, engine: Engine) -> tuple[int, object]:
        config = SetConfig.model_validate({"name": "b", "sources": [{"format": "world", "path": str(world)}]})
        made = build(config, out, engine=engine)
        return sum(made["records"].values()), made["digest"]

    def ask(out: Path, engine: Engine) -> tuple[int, object]:
        benchmark = {"format": "world", "path": str(world / "questions.jsonl"), "sample": asked}
        given = {"benchmark": benchmark, "system": {"baseline": "naive-5"}, "index": str(index), "concurrency": 1}
        config, run, questions = prepare_run(check_config(given, RunConfig, "benchmark"), "benchmark")
        run_questions(config, run, questions, out, Progress(disable=True), engine=engine)
        rows = read_questions(out)
        return len(rows), [(row.id, row.predictions, row.retrieved, row.probability) for row in rows]

    return {"index": build_vectors, "set": build_set, "questions": ask}


@click.command()
@click.option("--size", default=2000, show_default=True, help="Questions of the world.")
@click.option("--asked", default=200, show_default=True, help="Questions that are asked.")
@click.option("--nodes", default=3, show_default=True, help="Nodes of the largest cluster.")
@click.option("--model", default="minilm", show_default=True, help="Embedding model of the index.")
@click.option("--job", "names", multiple=True, type=click.Choice(["index", "set", "questions"]), help="Only these.")
def main(size: int, asked: int, nodes: int, model: str, names: tuple[str, ...]) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    print(f"{len(os.sched_getaffinity(0))} cores, a world of {size:,} questions")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        generate(size, 1, home / "world")
        build_index([home / "world" / "passages.jsonl"], home / "words")
        jobs = make_jobs(home / "world", home / "words", model, asked)
        chosen = {name: job for name, job in jobs.items() if not names or name in names}
        alone = {name: measure(job, home / f"{name}-alone", work_here) for name, job in chosen.items()}
        for name, (rate, _) in alone.items():
            print(f"{name:10} one process {rate:8.1f} records/s", flush=True)
        for count in range(1, nodes + 1):
            with start_cluster(count) as engine:
                for name, job in chosen.items():
                    rate, made = measure(job, home / f"{name}-{count}", engine)
                    same = "same" if made == alone[name][1] else "DIFFERENT"
                    ratio = rate / alone[name][0]
                    print(f"{name:10} {count} node(s)   {rate:8.1f} records/s  x{ratio:.2f}  {same}", flush=True)


def measure(job: Job, out: Path, engine: Engine) -> tuple[float, object]:
    """Records a second, and what must be the same."""
    started = time.perf_counter()
    records, made = job(out, engine)
    return records / (time.perf_counter() - started), made


if __name__ == "__main__":
    main()
