"""What may run a small language model on a CPU: our graph beside other engines, in one run, with the same prompts.

    python benchmarks/engines.py --base FOLDER [--adapter FOLDER] [--genai FOLDER ...] [--llama-cpp URL] [--vllm URL]
        [--questions 20] [--seconds 300] [--threads 1] [--json FILE]

Each engine serves the same base, an adapter merged into it. FOLDER is what `python -m onnxruntime_genai.models.builder
-e cpu --extra_options prune_lm_head=true` writes (`pip install onnxruntime-genai`). llama.cpp's server runs with
`--parallel 1 --cache-ram 0`, vLLM's with `--logprobs-mode processed_logprobs --structured-outputs-config.backend
guidance`. Ours and genai run in processes of their own. For each question the engines take turns, after a plan and a
route that are not timed. No job has a question that another one had, so a cached prompt helps only where it helps a
service: in the beginning that ten documents share.

A plan is written greedily, held to the grammar by the engine's own means, and by four beams where the engine has them.
Labels are judged by the probabilities of their first tokens. Five passages are read in one prompt, and 16 tokens
written; the embedded reader is another model (`benchmarks/reading.py`).

Times are medians in milliseconds, with the ratio to ours: by the clock, and of the processor, which says more where
others use it too. `same` is the share of texts and of labels that equal ours. `start` is what the processes had used of
a processor before the first question, memory what they hold at the end, disk what the model's files take. No question
is begun that would not end within `--seconds` of the beginning if it took as long as the longest; n says how many were
asked.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from fixed.language_models import Child, Engine, Genai, LlamaCpp, Ours, Vllm
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from revelator.tasks import TASKS, QuestionInput, RelevanceInput

CONFIGS = Path(__file__).parents[1] / "data_gen" / "configs"
PLAN_TOKENS, READ_TOKENS, JUDGED, READ = 32, 16, 10, 5
WARM = ("a plan, grammar", "a route")  # jobs that are done once before any is timed
LABELS = {"route": TASKS["route"].labels, "ten documents": TASKS["relevance"].labels}
Figures = dict[str, dict[str, list[float]]]  # by row of the table and engine


def open_engines(asked: argparse.Namespace) -> dict[str, Engine]:
    files = [Path(asked.base), *([asked.adapter] if asked.adapter else [])]
    engines: dict[str, Engine] = {"ours": Child(Ours, asked.base, asked.adapter, asked.threads, files=files)}
    for folder in asked.genai:
        engines[f"genai {folder.name}"] = Child(Genai, folder, asked.threads, files=[folder])
    tokenizer = AutoTokenizer.from_pretrained(asked.base)
    if asked.llama_cpp:
        engines["llama.cpp"] = LlamaCpp(asked.llama_cpp, tokenizer)
    if asked.vllm:
        engines["vLLM"] = Vllm(asked.vllm, tokenizer)
    return engines


def list_jobs(number: int) -> dict[str, tuple[Any, ...]]:
    """The jobs of a round, by what the table calls them: a method of an engine and what it is given."""
    questions, documents = _read_questions(), _read_documents()
    question, *others = questions[3 * number : 3 * number + 3]
    plans = [TASKS["translate_bnf"].render(QuestionInput(one)) for one in (question, *others)]
    found = [documents[(number * (JUDGED + READ) + place) % len(documents)] for place in range(JUDGED + READ)]
    judged = [TASKS["relevance"].render(RelevanceInput(question, *one)) for one in found[:JUDGED]]
    read = "\n".join(f"{title}: {text}" for title, text in found[JUDGED:])
    return {
        "a plan, greedy": ("write", plans[0], PLAN_TOKENS),
        "a plan, grammar": ("write", plans[1], PLAN_TOKENS, True),
        "a plan, 4 beams": ("search", plans[2], PLAN_TOKENS),
        "a route": ("judge", [TASKS["route"].render(QuestionInput(question))], LABELS["route"]),
        "ten documents": ("judge", judged, LABELS["ten documents"]),
        "five passages": ("write", f"{read}\nQuestion: {question}\nAnswer:", READ_TOKENS),
    }


def _read_questions() -> list[str]:
    rows = map(json.loads, (CONFIGS / "people.jsonl").read_text(encoding="utf-8").splitlines())
    return [row["question"] for row in rows if row["route"] == "complex"]


def _read_documents() -> list[tuple[str, str]]:
    with gzip.open(CONFIGS / "people-documents.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line)["passages"][0] for line in lines]
    return list(dict.fromkeys((row["title"], row["text"]) for row in rows))


def run(engines: dict[str, Engine], questions: int, until: float) -> tuple[int, Figures]:
    """How many questions were asked, and what each engine took and answered."""
    for job in WARM:
        ask(engines, job, list_jobs(0)[job], make_figures())
    figures, longest = make_figures(), 0.0
    for number in range(1, questions + 1):
        began = time.monotonic()
        if began + longest > until:
            return number - 1, figures
        for job, call in list_jobs(number).items():
            ask(engines, job, call, figures)
        longest = max(longest, time.monotonic() - began)
    return questions, figures


def ask(engines: dict[str, Engine], job: str, call: tuple[Any, ...], figures: Figures) -> None:
    answers = {}
    for name, engine in engines.items():
        if call[0] == "search" and not engine.can_search:
            continue
        before, began = engine.measure_work(), time.perf_counter()
        answers[name] = engine.call(*call)
        figures[f"{job}, ms"][name].append(1000 * (time.perf_counter() - began))
        figures[f"{job}, ms of processor"][name].append(engine.measure_work() - before)
    for name, answer in answers.items():
        figures[f"{job}, same"][name] += [float(a == b) for a, b in zip(answer, answers["ours"], strict=True)]


def make_figures() -> Figures:
    return defaultdict(lambda: defaultdict(list))


def make_rows(engines: dict[str, Engine], figures: Figures) -> dict[str, dict[str, float]]:
    """The rows of the table: a figure for each engine that has one."""
    rows = {
        row: {name: (fmean if row.endswith("same") else median)(found) for name, found in by_engine.items()}
        for row, by_engine in figures.items()
    }
    rows["start, s of processor"] = {name: engine.start for name, engine in engines.items()}
    rows["memory, MB"] = {name: engine.measure_memory() for name, engine in engines.items()}
    rows["disk, MB"] = {name: engine.measure_disk() for name, engine in engines.items()}
    return rows


def print_table(title: str, names: Sequence[str], rows: dict[str, dict[str, float]]) -> None:
    table = Table("", *names, title=title)
    for row, figures in rows.items():
        table.add_row(row, *(_format_figure(row, figures, name) for name in names))
    Console(width=160).print(table)


def _format_figure(row: str, figures: dict[str, float], name: str) -> str:
    if name not in figures:
        return "–"
    if row.endswith("same"):
        return f"{figures[name]:.2f}"
    ratio = "" if name == "ours" else f" ({figures[name] / figures['ours']:.2f})"
    return f"{figures[name]:.{1 if figures[name] < 100 else 0}f}{ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--genai", type=Path, nargs="*", default=[])
    parser.add_argument("--llama-cpp")
    parser.add_argument("--vllm")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    engines = open_engines(asked)
    count, figures = run(engines, asked.questions, until)
    rows = make_rows(engines, figures)
    print_table(f"{asked.base}, n = {count}, {asked.threads} threads", [*engines], rows)
    if asked.json:
        asked.json.write_text(json.dumps({"base": asked.base, "n": count, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
