"""Tokens a second, memory and share of the matrix rate of `revelator train`'s trainer, beside a plain TRL script.

    python benchmarks/throughput.py [--shape tiny] [--device cpu] [--steps 6] [--batch 32] [--repeats 3]
    python benchmarks/throughput.py --base FOLDER --set SET --precision bf16 --batch-tokens 1024 --repeats 1
    python benchmarks/throughput.py --shape qwen3-0.6b --device cuda --steps 20
    python benchmarks/throughput.py --shape llama-3.2-3b --device cuda --steps 20 --batch 16

The plain script is TRL's SFTTrainer on the same rows as prompt and completion, once over them, with the same LoRA, and
its own defaults for all else (bf16 autocast unless `--precision` is given, gradient checkpointing, rows in an order of
its own, padded to the longest of a batch of `--batch` rows). `no checkpointing` is the same script without its gradient
checkpointing, which ours does not have either. Each measurement is a process of its own, all in turn. Rows are drawn
from `--set`, or from a world that the benchmark builds, by the weights of `real.yaml`; shapes other than `tiny` have
random weights and read the embedded base's tokens.

Tokens are those of rows, padding apart, after the first step; on a CPU they are counted by its processor time, too:
other work on the machine changes that little. The matrix rate is that of one product of a batch's tokens with a layer's
largest matrix, taken in the same process. What it is held against is the work that a token needs: 2 operations a weight
forward and 2 back, 4 back for an adapter's, nothing for what is computed again or for padding.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from fixed.shapes import LLAMA_3_2_3B, QWEN3_0_6B

from tests.causal import TINY

SHAPES: dict[str, dict[str, Any]] = {
    "toy": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
    "qwen3-0.6b": QWEN3_0_6B,
    "llama-3.2-3b": LLAMA_3_2_3B,
}

WAYS = ("plain", "no checkpointing", "ours")


def write_base(shape: str, folder: Path) -> None:
    """A base of that shape with random weights in bf16, and the embedded base's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TINY)
    values = {"model_type": "llama", "vocab_size": len(tokenizer), "max_position_embeddings": 2048} | SHAPES[shape]
    ends = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    settings = AutoConfig.for_model(**values, **ends)
    AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def build_set(folder: Path) -> Path:
    """An instruction set of a world of 400 questions."""
    from evaluation.demo import MIXED, WORLD_CONFIG

    program = [sys.executable, "-c", "from revelator.cli import main; main()", "data"]
    steps = (["build", str(MIXED), "--size", "400", "--seed", "7", "--out", str(folder / "world")],)
    steps += (["build", str(WORLD_CONFIG), "--out", str(folder / "set")],)
    for step in steps:
        environment = os.environ | {"REVELATOR_WORLD": str(folder / "world")}
        subprocess.run([*program, *step], check=True, env=environment, stdout=sys.stderr)
    return folder / "set"


def make_our_trainer(config: Any, folder: Path) -> Any:
    from rich.console import Console

    from training import sft
    from training.tracking import ProgressCallback

    trainer = sft.make_trainer(config, sft.read_inputs(config), ProgressCallback(Console(), active=False))
    trainer.args.eval_strategy = trainer.args.save_strategy = "no"
    return trainer


def make_plain_trainer(config: Any, folder: Path, **changes: Any) -> Any:
    """What TRL's documentation shows: a model by its name, a data set of prompts and completions, LoRA."""
    import torch
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from revelator.artifact import find_base
    from revelator.rows import read_split
    from training import sft

    inputs = sft.read_inputs(config)
    assert not sum(inputs.lost.values()), "the rows are counted differently"
    rows = read_split(config.sets[0], "train", {task for task, weight in config.tasks.items() if weight})
    order = [row for step in inputs.steps for row in step]
    changes |= {} if config.precision == "auto" else {"bf16": config.precision == "bf16"}
    columns = {name: [getattr(row, name) for row in rows] for name in ("prompt", "completion")}
    return SFTTrainer(
        model=str(find_base(config.base)),
        args=SFTConfig(
            output_dir=str(folder),
            max_steps=len(order) // config.batch_size,
            per_device_train_batch_size=config.batch_size,
            use_cpu=not torch.cuda.is_available(),
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            save_strategy="no",
            **changes,
        ),
        train_dataset=Dataset.from_dict(columns).select(order),
        peft_config=sft.make_lora(config),
    )


def measure(way: str, config: Any, folder: Path) -> dict[str, float]:
    """Trains and times; the first step is not counted."""
    import torch
    import transformers
    from transformers import TrainerCallback

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(config.threads)
    cuda = torch.cuda.is_available()
    clocks: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            if cuda:
                torch.cuda.synchronize()
            clocks.append((time.perf_counter(), time.process_time()))

    if way == "ours":
        trainer = make_our_trainer(config, folder)
    else:
        trainer = make_plain_trainer(config, folder, **({} if way == "plain" else {"gradient_checkpointing": False}))
    trainer.add_callback(Clock())
    trainer.train()
    read = [entry["num_tokens"] for entry in trainer.state.log_history if "num_tokens" in entry]
    tokens = read[-1] - read[0]
    wall, processor = (last - first for first, last in zip(clocks[0], clocks[-1], strict=True))
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    rate = measure_matrix_rate(trainer.model, int(tokens / (len(clocks) - 1)), cuda, trainer.args.bf16)
    seconds = wall if cuda else processor
    return {
        "tokens": tokens,
        "wall": tokens / wall,
        "processor": tokens / processor,
        "GiB": peak / 2**30,
        "rate": rate / 1e9,
        "share": count_operations(trainer.model) * tokens / seconds / rate,
    }


def count_operations(model: Any) -> float:
    """Floating point operations for a token that is read, the output layer apart."""
    matrices = [(name, p) for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    return sum(p.numel() * (6 if "lora_" in name else 4) for name, p in matrices if "lm_head" not in name)


def measure_matrix_rate(model: Any, tokens: int, cuda: bool, half: bool) -> float:
    """Operations a second of (tokens, width) times (width, inner), in bf16 if `half`; by processor time on a CPU."""
    import torch

    width, inner = model.config.hidden_size, model.config.intermediate_size
    device, dtype = "cuda" if cuda else "cpu", torch.bfloat16 if half else torch.float32
    a, b = (torch.randn(shape, device=device, dtype=dtype) for shape in ((tokens, width), (width, inner)))
    clock = time.perf_counter if cuda else time.process_time
    times = []
    for _ in range(20):
        if cuda:
            torch.cuda.synchronize()
        began = clock()
        a @ b
        if cuda:
            torch.cuda.synchronize()
        times.append(clock() - began)
    return 2 * tokens * width * inner / statistics.median(times)


@click.command()
@click.option("--shape", default="tiny", show_default=True, type=click.Choice(["tiny", *SHAPES]))
@click.option("--device", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda"]))
@click.option(
    "--set", "set_folder", type=click.Path(path_type=Path), help="Instruction set.  [default: of a new world]"
)
@click.option("--steps", default=6, show_default=True, type=click.IntRange(2))
@click.option("--batch", default=32, show_default=True, type=click.IntRange(1), help="Rows of a step.")
@click.option("--batch-tokens", type=click.IntRange(1), help="Ours: tokens of a step, instead of rows.")
@click.option(
    "--precision",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "fp32", "bf16"]),
    help="auto: ours alone.",
)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1))
@click.option("--repeats", default=3, show_default=True, help="Rounds; medians are printed.")
@click.option("--base", help="A base's folder, instead of a shape.")
@click.option("--one", type=click.Choice(WAYS), hidden=True)
@click.option("--shared", type=click.Path(path_type=Path), hidden=True, help="Where rows are tokenised once for all.")
def main(
    shape: str,
    device: str,
    set_folder: Path | None,
    steps: int,
    batch: int,
    batch_tokens: int | None,
    precision: str,
    threads: int,
    repeats: int,
    base: str | None,
    one: str | None,
    shared: Path | None,
) -> None:
    """Ours and a plain TRL script in turn: tokens/s, peak memory, share of the matrix rate."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if one:
            assert shared
            from training.config import CONFIGS, load_config

            changes = {"base": base, "sets": [set_folder], "out": shared / "out", "steps": steps}
            changes |= {"batch_size": batch, "precision": precision, "threads": threads, "log_every": 1}
            changes |= {"batch_tokens": batch_tokens, "gradient_accumulation": 1}
            print(json.dumps(measure(one, load_config(CONFIGS / "real.yaml", **changes), folder)))
            return
        built = set_folder or build_set(folder)
        name = base or shape
        base = base or str(TINY)
        if name in SHAPES:
            base = str(folder / "base")
            write_base(shape, folder / "base")
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {device}; {name}, ", end=""
        )
        size = f"{batch_tokens} tokens" if batch_tokens else f"{batch} rows"
        print(f"{steps} steps of {size}, {precision}, {threads} threads, n = {repeats}\n", flush=True)
        command = [sys.executable, __file__, "--set", str(built), "--base", base, "--steps", str(steps)]
        command += ["--shared", temporary, "--batch", str(batch), "--precision", precision, "--threads", str(threads)]
        command += ["--batch-tokens", str(batch_tokens)] if batch_tokens else []
        hidden = {} if device == "cuda" else {"CUDA_VISIBLE_DEVICES": ""}
        found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for _ in range(repeats):
            for way, figures in found.items():
                done = subprocess.run([*command, "--one", way], env=os.environ | hidden, capture_output=True, text=True)
                if done.returncode:
                    raise click.ClickException(done.stderr)
                figures.append(json.loads(done.stdout.splitlines()[-1]))
    print_report(found)


def print_report(found: dict[str, list[dict[str, float]]]) -> None:
    names = {"wall": "tokens/s", "processor": "by processor time", "GiB": "peak GiB", "rate": "matrix Gop/s"}
    names |= {"share": "share of it"}
    middle = {way: {n: statistics.median(f[n] for f in figures) for n in names} for way, figures in found.items()}
    print(f"{'':>20}{'plain TRL':>12}{'no checkpointing':>20}{'ours':>12}{'ours / plain':>16}")
    for name, title in names.items():
        plain, quick, own = (middle[way][name] for way in WAYS)
        print(f"{title:>20}{plain:12.4g}{quick:20.4g}{own:12.4g}{own / plain:16.2f}")


if __name__ == "__main__":
    main()
