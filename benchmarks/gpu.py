"""A base's shape with random weights on a GPU: plans and tokens a second by batch, and how near to the memory's limit.

    python benchmarks/gpu.py [--shape 0.6B|4B|tiny] [--batches 1,4,16,64,256] [--modes dynamic,static,nf4,vllm]
    python benchmarks/gpu.py --device cpu --shape tiny --batches 1,4          shows that it runs; says nothing of a GPU

A plan is 32 tokens after a prompt of 64, whatever the tokens are. `dynamic` and `static` are transformers in bf16 with
that cache: on a GPU transformers compiles the static one's step into a CUDA graph. `nf4` is the base in 4 bits by
bitsandbytes, its products in bf16. `vllm` is measured where it is installed. At batch 1 each token reads every weight
once: the share of the limit is weights read a second over the bandwidth that a copy on this device reaches.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fixed.shapes import QWEN3_0_6B, QWEN3_4B
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, GenerationConfig
from transformers.utils import logging

PROMPT, PLAN = 64, 32  # tokens
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {
        "model_type": "llama",
        "vocab_size": 1024,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "0.6B": QWEN3_0_6B,
    "4B": QWEN3_4B,
}


def measure_bandwidth(device: torch.device) -> float:
    """Bytes a second that a copy reads and writes."""
    block = torch.empty(2**30 if device.type == "cuda" else 2**26, dtype=torch.uint8, device=device)
    return 2 * block.numel() / time_median(block.clone, device, 5)


def time_median(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Seconds; the first run warms up, compiles and captures."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def prepare_transformers(folder: Path, device: torch.device, mode: str) -> tuple[Callable[[int], Any], int]:
    """Writes a plan for each of so many prompts, and the bytes of weights that a token reads."""
    quantised = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype="bfloat16"
    )
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, device_map=device, quantization_config=quantised if mode == "nf4" else None
    ).eval()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    settings = GenerationConfig(
        min_new_tokens=PLAN,
        max_new_tokens=PLAN,
        do_sample=False,
        pad_token_id=0,
        cache_implementation="static" if mode == "static" else None,
    )

    def write(batch: int) -> None:
        ids = torch.randint(1, model.config.vocab_size, (batch, PROMPT), device=device)
        with torch.inference_mode():
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings)

    return write, weights


def prepare_vllm(folder: Path, batches: list[int]) -> Callable[[int], Any]:
    from vllm import LLM, SamplingParams

    engine = LLM(str(folder), dtype="bfloat16", skip_tokenizer_init=True, max_model_len=1024, max_num_seqs=max(batches))
    settings = SamplingParams(temperature=0, max_tokens=PLAN, ignore_eos=True, detokenize=False)

    def write(batch: int) -> None:
        rows = torch.randint(1, 1000, (batch, PROMPT)).tolist()
        engine.generate([{"prompt_token_ids": row} for row in rows], settings, use_tqdm=False)

    return write


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shape", choices=SHAPES, default="0.6B")
    options.add_argument("--device", default="cuda")
    options.add_argument("--batches", default="1,4,16,64,256")
    options.add_argument("--modes", default="dynamic,static,nf4,vllm")
    options.add_argument("--repeats", type=int, default=5)
    chosen = options.parse_args()
    device, batches = torch.device(chosen.device), [int(batch) for batch in chosen.batches.split(",")]
    if device.type == "cuda" and not torch.cuda.is_available():
        print("there is no GPU here; --device cpu --shape tiny shows that this runs")
        return
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    reached = measure_bandwidth(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU: these are no figures of a GPU"
    print(f"{name}; shape {chosen.shape}; a copy moves {reached / 1e9:.1f} GB/s; n = {chosen.repeats}, median")
    print(f"{'mode':10}{'batch':>6}{'ms a batch':>12}{'plans/s':>10}{'tokens/s':>10}  share of the memory's limit")
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where) / "base"
        torch.manual_seed(0)
        settings = AutoConfig.for_model(**SHAPES[chosen.shape], max_position_embeddings=4096)
        AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16).save_pretrained(folder)
        for mode in chosen.modes.split(","):
            if mode == "vllm" and importlib.util.find_spec("vllm") is None:
                print("vllm       is not installed")
                continue
            write, weights = (
                (prepare_vllm(folder, batches), 0) if mode == "vllm" else prepare_transformers(folder, device, mode)
            )
            for batch in batches:
                seconds = time_median(lambda write=write, batch=batch: write(batch), device, chosen.repeats)
                share = f"{weights * PLAN / seconds / reached:.0%}" if batch == 1 and weights else ""
                rates = f"{batch / seconds:10.1f}{batch * PLAN / seconds:10.0f}"
                print(f"{mode:10}{batch:6}{seconds * 1e3:12.1f}{rates}  {share}", flush=True)
            del write
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
