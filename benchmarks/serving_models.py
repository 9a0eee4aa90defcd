"""What runs the model, on a CPU: our engine on ONNX Runtime, transformers, and vLLM, side by side over `tests/tiny`.

    make vllm && python benchmarks/serving_models.py [--questions 64] [--vllm .venv/vllm] [--threads 2]

`plans`: so many plans are asked for together, as one batch of an engine and as requests at the same time to vLLM. A
plan is written greedily and held to its grammar; by `4 beams`, as our engine serves it; and by vLLM also `free`. The
ways take turns with the same questions, MuSiQue's below REVELATOR_DATA. `agree`: vLLM's plans against our engine's,
word for word. `labels`: ten documents of one question beside two; each round asks about a new question, so nothing is
cached but the prompts' shared beginning. `adapters`: 32 plans together, all by one of 8 adapters or 4 by each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, product
from pathlib import Path

import httpx
import torch
from decoding import DOCUMENTS, read_real_questions
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from revelator.artifact import digest_base, write_manifest
from revelator.tasks import TASKS, QuestionInput, RelevanceInput
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.engine import Engine
from serving.models.local import complete
from serving.models.vllm_server import VllmServer
from serving.protocols import Completion, Decoding
from tests.causal import TINY

TOGETHER = (1, 8, 32)
ADAPTERS, ROUNDS, COMPARED, SHOWN = 8, 9, 200, 5
START_SECONDS = 900
Timed = tuple[Completion, float]  # and its seconds
Way = Callable[[str, Sequence[str]], Awaitable[list[Timed]]]


@contextmanager
def start_vllm(environment: Path, threads: int) -> Iterator[str]:
    """The address of vLLM over the base, once it answers. Blocks are of 32 tokens: a CPU's own 128 are more than the
    beginning that documents' prompts share."""
    port = "8177"
    url, program = f"http://127.0.0.1:{port}", environment / "bin"
    command = [f"{program}/vllm", "serve", f"{TINY}", "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", port, "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", "1024"]
    command += ["--logprobs-mode", "processed_logprobs", "--block-size", "32"]
    command += ["--enable-lora", "--max-loras", str(ADAPTERS), "--max-lora-rank", "16"]
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    own |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads), "PATH": f"{program}:{os.environ['PATH']}"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log, process_group=0)
        try:
            until = time.monotonic() + START_SECONDS
            while not _is_healthy(url):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise SystemExit(f"vLLM does not start:\n{log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.5)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


def ask_engine(engine: Engine, decoding: Decoding) -> Way:
    async def ask(task: str, prompts: Sequence[str]) -> list[Timed]:
        start = time.perf_counter()
        done = complete(engine, task, prompts, decoding=decoding)
        seconds = time.perf_counter() - start
        return [(completion, seconds) for completion in done]

    return ask


def ask_vllm(url: str, *models: str, structure: str = "vllm") -> Way:
    """The prompts in turn by each of the models."""
    settings = {"url": f"{url}/v1", "prompt": "trained", "structure": structure}
    planners = [PlannerConfig.model_validate(settings | {"model": model}) for model in models]
    clients = [EndpointRevelator(planner, timeout=600) for planner in planners]

    async def ask(task: str, prompts: Sequence[str]) -> list[Timed]:
        async def ask_one(client: EndpointRevelator, prompt: str) -> Timed:
            start = time.perf_counter()
            [completion] = await client.complete(task, [prompt])
            return completion, time.perf_counter() - start

        return await asyncio.gather(*(ask_one(*pair) for pair in zip(cycle(clients), prompts, strict=False)))

    return ask


async def measure_plans(ways: dict[str, Way], prompts: Sequence[str]) -> None:
    print(f"plans, n = {len(prompts)} of each way\n{'':26}{'together':>9}{'plans/s':>9}{'p50 ms':>9}{'p99 ms':>9}")
    for together in TOGETHER:
        spent: dict[str, float] = defaultdict(float)
        each: dict[str, list[float]] = defaultdict(list)
        for at in range(0, len(prompts), together):
            for name, ask in ways.items():
                start = time.perf_counter()
                done = await ask("translate_bnf", prompts[at : at + together])
                spent[name] += time.perf_counter() - start
                each[name] += [seconds * 1e3 for _, seconds in done]
        for name in ways:
            p50, p99 = (statistics.quantiles(each[name], n=100, method="inclusive")[at] for at in (49, 98))
            print(f"{name:26}{together:9}{len(prompts) / spent[name]:9.1f}{p50:9.0f}{p99:9.0f}", flush=True)


async def compare_plans(ours: Way, theirs: Way, prompts: Sequence[str]) -> None:
    pairs = []
    for at in range(0, len(prompts), 20):
        own = prompts[at : at + 20]
        written = [await ask("translate_bnf", own) for ask in (ours, theirs)]
        pairs += [(a.text, b.text) for (a, _), (b, _) in zip(*written, strict=True)]
    unequal = [(a, b) for a, b in pairs if a != b]
    print(f"agree: {len(pairs) - len(unequal)} of {len(pairs)} plans are the same, word for word")
    for a, b in unequal[:SHOWN]:
        print(f"  ours  {a}\n  vLLM  {b}")


async def measure_labels(ours: Way, theirs: Way, questions: Sequence[str]) -> None:
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    widest, asked = 0.0, iter(questions)
    for _ in range(ROUNDS):
        for count in (2, 10):
            question, found = next(asked), []
            prompts = [TASKS["relevance"].render(RelevanceInput(question, *document)) for document in DOCUMENTS[:count]]
            for name, ask in (("ours", ours), ("vLLM", theirs)):
                start = time.perf_counter()
                found.append(await ask("relevance", prompts))
                times[name, count].append((time.perf_counter() - start) * 1e3)
            for (a, _), (b, _) in zip(*found, strict=True):
                widest = max(
                    widest, *(abs(a.probabilities[label] - b.probabilities[label]) for label in a.probabilities)
                )
    for name in ("ours", "vLLM"):
        two, ten = (statistics.median(times[name, count]) for count in (2, 10))
        print(
            f"labels, {name}: 2 documents {two:.0f} ms, 10 documents {ten:.0f} ms, ratio {ten / two:.2f}; n = {ROUNDS}"
        )
    print(f"labels: probabilities differ by at most {widest:.1e}", flush=True)


async def measure_adapters(url: str, folder: Path, prompts: Sequence[str]) -> None:
    server = VllmServer(url)
    base = TINY
    for number in range(1, ADAPTERS + 1):
        torch.manual_seed(number)
        lora = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")  # which leaves the base as it is
        adapter = folder / str(number)
        get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(adapter)
        write_manifest(adapter, base_name=str(TINY), base_digest=digest_base(base), data_digest="", run_id="")
        server.load(number, adapter)
    names = [f"revelator-{number}" for number in range(1, ADAPTERS + 1)]
    ways = {"the base": ask_vllm(url, "tiny"), "one adapter": ask_vllm(url, names[0])}
    ways |= {f"{ADAPTERS} adapters": ask_vllm(url, *names)}
    times: dict[str, list[float]] = defaultdict(list)
    for turn, (name, ask) in product(range(ROUNDS + 1), ways.items()):
        start = time.perf_counter()
        await ask("translate_bnf", prompts[:32])
        if turn:  # the first round warms up
            times[name].append(32 / (time.perf_counter() - start))
    rates = ", ".join(f"{name} {statistics.median(own):.1f}" for name, own in times.items())
    print(f"adapters: 32 plans together, plans/s: {rates}; n = {ROUNDS}, median", flush=True)


async def measure(url: str, questions: int, threads: int) -> None:
    real = list(islice(read_real_questions(), 1000))
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in real]
    ours, plain = Engine(TINY, threads=threads), Engine(TINY, threads=threads, runtime="transformers")
    ways = {
        "ONNX Runtime": ask_engine(ours, "grammar"),
        "ONNX Runtime, 4 beams": ask_engine(ours, "beams"),
        "transformers": ask_engine(plain, "grammar"),
        "vLLM": ask_vllm(url, "tiny"),
        "vLLM, free": ask_vllm(url, "tiny", structure="none"),
    }
    for ask in ways.values():  # warms up, and compiles the grammar
        await ask("translate_bnf", prompts[-2:])
    await compare_plans(ways["ONNX Runtime"], ways["vLLM"], prompts[:COMPARED])
    await measure_labels(ways["ONNX Runtime"], ways["vLLM"], real[COMPARED:])
    with tempfile.TemporaryDirectory() as folder:
        await measure_adapters(url, Path(folder), prompts[COMPARED:])
    await measure_plans(ways, prompts[COMPARED + 32 :][:questions])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--questions", type=int, default=64)
    options.add_argument("--vllm", type=Path, default=Path(".venv/vllm"), help="the environment of vLLM")
    options.add_argument("--threads", type=int, default=2)
    chosen = options.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {chosen.threads} threads")
    with start_vllm(chosen.vllm.resolve(), chosen.threads) as url:
        asyncio.run(measure(url, chosen.questions, chosen.threads))


if __name__ == "__main__":
    main()
