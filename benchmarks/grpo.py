"""What GRPO adds to supervised fine-tuning on the world's hard plans: groups, fan-out, five leaves and more.

    revelator data world --size 40000 --seed 101 --out runs/grpo/world
    REVELATOR_WORLD=runs/grpo/world revelator data build data_gen/configs/world.yaml --out runs/grpo/set
    revelator train demo --steps 100 --set runs/grpo/set --home runs/grpo --out runs/grpo/sft
    python benchmarks/grpo.py --set runs/grpo/set --world runs/grpo/world --adapter runs/grpo/sft --rows 800

The gain in docs/grpo.md is of the base of the fourth run: a copy of training/bases/tiny with the model.safetensors of
`git show 71b681f:training/bases/tiny/model.safetensors`, given to the fine-tuning as `--base`. Later bases have none.

For each seed it runs `revelator train grpo-tiny` from the adapter (an unfinished one goes on, a finished one is kept),
then lets the adapter before and those after write plans greedily for the same rows, and prints the shares that are
right with the paired bootstrap interval of what changed. The rewards' curves are in the runs of MLflow that it names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from evaluation.measures.bootstrap import bootstrap
from revelator.artifact import read_manifest
from revelator.errors import ExpressionError
from revelator.plans import parse
from serving.models.engine import Engine
from training.answers import is_hard, read_answers
from training.instructions import Instruction, pinned, read_split, verify_set
from training.rewards import TRANSLATE, Answers, executed

FOLDER = click.Path(path_type=Path, exists=True)
BATCH = 64
MAX_NEW_TOKENS = 160


@click.command()
@click.option("--set", "set_folder", type=FOLDER, required=True)
@click.option("--world", type=FOLDER, required=True)
@click.option("--adapter", type=FOLDER, required=True, help="Where GRPO begins.")
@click.option("--config", default="grpo-tiny", show_default=True)
@click.option("--seeds", default="1,2,3", show_default=True)
@click.option("--split", default="test", show_default=True)
@click.option("--rows", default=400, show_default=True)
@click.option("--home", type=click.Path(path_type=Path), default=Path("runs"), show_default=True)
def main(
    set_folder: Path, world: Path, adapter: Path, config: str, seeds: str, split: str, rows: int, home: Path
) -> None:
    trained = {seed: train(set_folder, world, adapter, config, seed, home) for seed in seeds.split(",")}
    answers = read_answers(world)
    verify_set(set_folder)
    plans = [row for row in read_split(set_folder, split) if row.task == TRANSLATE]
    hard = [row for row in plans if is_hard(parse(json.loads(row.gold)), answers)]
    chosen = sorted(pinned(hard, rows), key=lambda row: len(row.prompt))
    before = right(adapter, chosen, answers)
    table = Table("seed", "", "before", "after", "change", "MLflow run", title=f"{len(chosen)} hard rows of {split}")
    changes: dict[str, list[np.ndarray]] = {name: [] for name in before}
    for seed, folder in trained.items():
        after = right(folder, chosen, answers)
        for name, values in before.items():
            changes[name].append(after[name] - values)
            change = bootstrap(changes[name][-1])
            means = f"{values.mean():.3f}", f"{after[name].mean():.3f}"
            table.add_row(seed, name, *means, str(change), read_manifest(folder).run_id[:8])
    for name, values in before.items():
        mean = bootstrap(np.mean(changes[name], axis=0))
        table.add_row("all", name, f"{values.mean():.3f}", f"{values.mean() + mean.mean:.3f}", str(mean), "")
    Console(width=110).print(table)


def train(set_folder: Path, world: Path, adapter: Path, config: str, seed: str, home: Path) -> Path:
    out = home / "adapters" / f"grpo-{seed}"
    command = [str(Path(sys.executable).with_name("revelator")), "train", config, "--seed", seed, "--out", str(out)]
    command += ["--base", read_manifest(adapter).base_name, "--set", str(set_folder), "--world", str(world)]
    command += ["--adapter", str(adapter), "--home", str(home)]
    subprocess.run([*command, "--resume"], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return out


def right(adapter: Path, rows: list[Instruction], answers: Answers) -> dict[str, np.ndarray]:
    """For each row whether its greedy plan is `exact`, gold's tree word for word, and `executed`, to gold's values."""
    engine = Engine(read_manifest(adapter).base_name, adapter, threads=1)
    written: list[str] = []
    for start in range(0, len(rows), BATCH):
        prompts = [row.prompt for row in rows[start : start + BATCH]]
        written += [one.text for one in engine.generate(prompts, max_new_tokens=MAX_NEW_TOKENS)]
    ran = [executed(answers, r.task, r.prompt, r.gold, text) for r, text in zip(rows, written, strict=True)]
    exact = [_equal(text, json.loads(row.gold)) for row, text in zip(rows, written, strict=True)]
    return {"exact": np.array(exact, float), "executed": np.array(ran, float)}


def _equal(text: str, gold: str) -> bool:
    try:
        return parse(text) == parse(gold)
    except ExpressionError:
        return False


if __name__ == "__main__":
    main()
