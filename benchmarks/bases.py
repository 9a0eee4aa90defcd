"""What the embedded base costs on a CPU beside `tests/tiny`: start, memory, a plan, a route, ten documents judged.

    python benchmarks/bases.py [--bases tests/tiny mini] [--threads 2] [--repeats 10]

Each base runs in a process of its own; they take turns, question by question. A plan is written by beams and held to
the grammar, as it is served. Times are medians, in milliseconds; memory is what the process holds at the end, in MB.
"""

from __future__ import annotations

import argparse
import statistics
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection

import psutil
from rich.console import Console
from rich.table import Table

from revelator.tasks import TASKS, QuestionInput, RelevanceInput
from tests.causal import TINY

QUESTIONS = (
    "Who founded the company that distributed UHF?",
    "Do the Lucero River and the River Lunsurova rise in the same country?",
    "When was the director of the film that Harrow Pictures produced in 1987 born?",
    "Which of the two bridges, Dunmere or Port Velm, was opened earlier?",
    "What is the population of the town where the author of The Quiet Harbour died?",
)
SENTENCE = "Port Velm was founded in 1921 by Ama Oyelaran, who ruled the town until Rosa Quispe came to it. "
DOCUMENTS = 10
SENTENCES = 4  # of a document: about 100 tokens


def serve(base: str, threads: int, asked: Connection) -> None:
    """Loads the base and says how long it took; then runs the jobs that are named, and says how long each took."""
    began = time.perf_counter()
    from serving.models.engine import Engine
    from serving.models.local import complete

    engine = Engine(base, threads=threads)
    asked.send(1000 * (time.perf_counter() - began))
    while job := asked.recv():
        task, prompts = job
        began = time.perf_counter()
        complete(engine, task, prompts)
        asked.send(1000 * (time.perf_counter() - began))
    asked.send(psutil.Process().memory_info().rss / 2**20)


def make_jobs(question: str) -> dict[str, tuple[str, list[str]]]:
    """The jobs of a question, by what the table calls them: the task and its prompts."""
    documents = [(f"Town {number}", SENTENCE * SENTENCES) for number in range(DOCUMENTS)]
    return {
        "a plan": ("translate_bnf", [TASKS["translate_bnf"].render(QuestionInput(question))]),
        "a route": ("route", [TASKS["route"].render(QuestionInput(question))]),
        "ten documents": (
            "relevance",
            [TASKS["relevance"].render(RelevanceInput(question, *one)) for one in documents],
        ),
    }


class Base:
    """A base in a process of its own."""

    def __init__(self, name: str, threads: int) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(name, threads, theirs), daemon=True)
        self.process.start()
        self.start: float = self.connection.recv()

    def run(self, task: str, prompts: list[str]) -> float:
        self.connection.send((task, prompts))
        return self.connection.recv()

    def close(self) -> float:
        """Ends the process; the memory that it held."""
        self.connection.send(None)
        memory = self.connection.recv()
        self.process.join()
        return memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bases", nargs=2, default=[str(TINY), "mini"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10)
    asked = parser.parse_args()
    bases = [Base(name, asked.threads) for name in asked.bases]
    times: dict[str, list[list[float]]] = {"start": [[base.start] for base in bases]}
    for turn in range(asked.repeats + 1):
        for question in QUESTIONS:
            for job, (task, prompts) in make_jobs(question).items():
                for place, base in enumerate(bases):
                    taken = base.run(task, prompts)
                    if turn:  # the first turn warms up
                        times.setdefault(job, [[], []])[place].append(taken)
    times["memory"] = [[base.close()] for base in bases]
    table = Table("", *asked.bases, f"{asked.bases[1]} / {asked.bases[0]}")
    for job, both in times.items():
        first, second = map(statistics.median, both)
        table.add_row(job, f"{first:.0f}", f"{second:.0f}", f"{second / first:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
