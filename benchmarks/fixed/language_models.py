"""Engines that run a small language model on a CPU, behind three methods: `write`, `search` by beams, and `judge`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import psutil

from revelator.plans.decoding import make_plan_grammar

BEAMS = 4
Labels = tuple[str, ...]


class Ours:
    def __init__(self, base: str, adapter: Path | None, threads: int) -> None:
        from serving.models.engine import Engine

        self._engine = Engine(base, adapter, threads=threads)

    def write(self, prompt: str, tokens: int, held: bool = False) -> list[str]:
        grammars = [make_plan_grammar()] if held else None
        [found] = self._engine.generate([prompt], max_new_tokens=tokens, grammars=grammars)
        return [found.text]

    def search(self, prompt: str, tokens: int) -> list[str]:
        [found] = self._engine.search_beams([prompt], BEAMS, tokens)
        return [found[0].text if found else ""]

    def judge(self, prompts: Sequence[str], labels: Labels) -> list[str]:
        return [max(row, key=row.__getitem__) for row in self._engine.judge_labels(prompts, labels)]


class Genai:
    """ONNX Runtime's generative extension. The prompts of one judgement share a sequence, which is cut back to what
    they begin with."""

    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime_genai

        self._library = onnxruntime_genai
        config = onnxruntime_genai.Config(str(folder))
        options = {"session_options": {"intra_op_num_threads": threads}}
        config.overlay(json.dumps({"model": {"decoder": options}}))
        self._model = onnxruntime_genai.Model(config)
        self._tokenizer = onnxruntime_genai.Tokenizer(self._model)

    def write(self, prompt: str, tokens: int, held: bool = False, **options: Any) -> list[str]:
        ids = self._tokenizer.encode(prompt)
        parameters = self._library.GeneratorParams(self._model)
        parameters.set_search_options(max_length=len(ids) + tokens, **options)
        if held:
            parameters.set_guidance("lark_grammar", make_plan_grammar().text)
        generator = self._library.Generator(self._model, parameters)
        generator.append_tokens(ids)
        while not generator.is_done():
            generator.generate_next_token()
        return [self._tokenizer.decode(generator.get_sequence(0)[len(ids) :]).strip()]

    def search(self, prompt: str, tokens: int) -> list[str]:
        return self.write(prompt, tokens, num_beams=BEAMS, past_present_share_buffer=False)

    def judge(self, prompts: Sequence[str], labels: Labels) -> list[str]:
        rows = [self._tokenizer.encode(prompt) for prompt in prompts]
        first = [int(self._tokenizer.encode(f" {label}")[0]) for label in labels]
        shared = len(os.path.commonprefix([row.tolist() for row in rows])) if len(rows) > 1 else 0
        parameters = self._library.GeneratorParams(self._model)
        parameters.set_search_options(max_length=max(map(len, rows)) + 1)
        generator = self._library.Generator(self._model, parameters)
        judged = []
        for number, row in enumerate(rows):
            if number:
                generator.rewind_to(shared)
            generator.append_tokens(row[shared if number else 0 :])
            judged.append(labels[generator.get_logits()[0, -1, first].argmax()])
        return judged


class Engine:
    """An engine of whose processes, on this machine, the costs are measured; `files` are those of its model."""

    can_search = False

    def watch(self, pid: int, *files: Path) -> None:
        first = psutil.Process(pid)
        self._processes = [first, *first.children(recursive=True)]
        self._files = [file for path in files for file in (path.rglob("*") if path.is_dir() else [path])]
        self.start = self.measure_work() / 1000

    def measure_work(self) -> float:
        """Milliseconds of a processor so far; the system counts in hundredths of a second."""
        times = [process.cpu_times() for process in self._processes]
        return 1000 * sum(taken.user + taken.system for taken in times)

    def measure_memory(self) -> float:
        """MB."""
        return sum(process.memory_info().rss for process in self._processes) / 2**20

    def measure_disk(self) -> float:
        """MB."""
        return sum(file.stat().st_size for file in self._files if file.is_file()) / 2**20

    def call(self, method: str, *arguments: Any) -> list[str]:
        return getattr(self, method)(*arguments)


class Child(Engine):
    """An engine in a process of its own."""

    can_search = True

    def __init__(self, make: Callable[..., Any], *given: Any, files: Sequence[Path]) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(make, given, theirs), daemon=True)
        process.start()
        self._connection.recv()
        assert process.pid
        self.watch(process.pid, *files)

    def call(self, method: str, *arguments: Any) -> list[str]:
        self._connection.send((method, *arguments))
        return self._connection.recv()


def _serve(make: Callable[..., Any], given: Sequence[Any], asked: Connection) -> None:
    """Makes the engine and says so; then does what it is asked."""
    engine = make(*given)
    asked.send(None)
    with suppress(EOFError):  # once nobody asks any more
        while True:
            method, *arguments = asked.recv()
            asked.send(getattr(engine, method)(*arguments))


class Server(Engine):
    def __init__(self, url: str, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._http = httpx.Client(base_url=url, timeout=600, trust_env=False)
        port, open_ports = httpx.URL(url).port, psutil.net_connections("tcp")
        [pid] = {one.pid for one in open_ports if one.status == "LISTEN" and one.laddr.port == port}
        self.watch(pid, self.find_model())

    def find_first_tokens(self, labels: Labels) -> list[int]:
        return [self._tokenizer(f" {label}", add_special_tokens=False)["input_ids"][0] for label in labels]

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        return self._http.post(path, json=body).raise_for_status().json()


class LlamaCpp(Server):
    """llama.cpp's server. Its names of rules have no underscore, and a label is what a bias leaves of the tokens."""

    def find_model(self) -> Path:
        return Path(self._http.get("/props").json()["model_path"])

    def write(self, prompt: str, tokens: int, held: bool = False) -> list[str]:
        options = {"grammar": _write_gbnf()} if held else {}
        reply = self.post("/completion", prompt=prompt, n_predict=tokens, temperature=0, **options)
        return [reply["content"].strip()]

    def judge(self, prompts: Sequence[str], labels: Labels) -> list[str]:
        first = self.find_first_tokens(labels)
        chosen = {"logit_bias": [[token, 100] for token in first], "top_k": len(labels), "top_p": 1, "min_p": 0}
        chosen |= {"n_predict": 1, "n_probs": len(labels), "post_sampling_probs": True}
        replies = [self.post("/completion", prompt=prompt, **chosen) for prompt in prompts]
        rows = [reply["completion_probabilities"][0]["top_probs"] for reply in replies]
        return [labels[first.index(max(row, key=lambda one: one["prob"])["id"])] for row in rows]


@cache
def _write_gbnf() -> str:
    return re.sub(
        r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|\w+',
        lambda part: part[0] if part[0][0] in '"[' else part[0].replace("_", "-"),
        f'root ::= " " output\n{make_plan_grammar().ebnf}',
    )


class Vllm(Server):
    """vLLM's server, which judges all documents in one request."""

    def find_model(self) -> Path:
        [model, *_] = self._http.get("/v1/models").json()["data"]
        self._model = {"model": model["id"], "temperature": 0}
        return Path(model["root"])

    def write(self, prompt: str, tokens: int, held: bool = False) -> list[str]:
        options = {"structured_outputs": {"grammar": make_plan_grammar().text}} if held else {}
        reply = self.post("/v1/completions", prompt=prompt, max_tokens=tokens, **self._model, **options)
        return [reply["choices"][0]["text"].strip()]

    def judge(self, prompts: Sequence[str], labels: Labels) -> list[str]:
        first = self.find_first_tokens(labels)
        options = {"allowed_token_ids": first, "logprobs": len(labels), "return_tokens_as_token_ids": True}
        reply = self.post("/v1/completions", prompt=list(prompts), max_tokens=1, **self._model, **options)
        choices = sorted(reply["choices"], key=lambda one: one["index"])
        rows = [choice["logprobs"]["top_logprobs"][0] for choice in choices]
        return [labels[first.index(int(max(row, key=row.__getitem__).partition(":")[2]))] for row in rows]
