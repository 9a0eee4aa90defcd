"""What GRPO reads, checked: base, adapter, the world's answers, and the prompts of all steps in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from transformers import PreTrainedTokenizerBase

from revelator.artifact import MANIFEST, base_folder, verify_adapter
from revelator.errors import ConfigError, DataError
from revelator.files import sha256_file
from revelator.plans import parse
from revelator.rows import Row, read_split, sample_rows, verify_set
from training.answers import is_hard, read_answers
from training.base_model import check_base, load_tokenizer
from training.checkpoints import identity
from training.config import GrpoConfig
from training.rewards import TRANSLATE, Answers, reward_functions
from training.tokens import tokenise

LOOKED_AT = 100  # rows of a task by which it is decided whether a reward fits it


@dataclass(frozen=True)
class Inputs:
    """Everything that a training reads, checked; `order` indexes `rows`, one prompt a group of rollouts."""

    base: Path
    adapter: Path
    base_digest: str
    adapter_digest: str
    manifest: dict
    tokenizer: PreTrainedTokenizerBase
    answers: Answers
    rows: list[Row]
    order: list[int]
    dev: list[Row]


def fitting(rows: Sequence[Row], config: GrpoConfig, answers: Answers) -> list[Row]:
    """The rows; of plans, with `hard`, those that are."""
    if not config.hard:
        return list(rows)
    return [row for row in rows if row.task != TRANSLATE or is_hard(parse(json.loads(row.gold)), answers)]


def read_inputs(config: GrpoConfig) -> Inputs:
    """Base, adapter, set and world. Raises an error of revelator.errors for whatever does not fit."""
    needed = {"--set": config.set_folder, "--out": config.out, "--adapter": config.adapter}
    if missing := [option for option, value in needed.items() if value is None]:
        raise ConfigError(f"{', '.join(missing)} must be given", hint="there, or in the configuration")
    assert config.set_folder and config.adapter
    base = base_folder(config.base)
    before = verify_adapter(config.adapter, base)
    manifest = verify_set(config.set_folder)
    answers = read_answers(config.world) if config.world else {}
    tokenizer = load_tokenizer(base)
    tasks = {task for task, weight in config.tasks.items() if weight > 0}
    rows = fitting(read_split(config.set_folder, "train", tasks), config, answers)
    rows = within(rows, tokenizer, config.max_prompt)
    if not rows:
        hint = "build the set from more questions, or set hard: false, another `tasks`, a longer max_prompt"
        raise DataError("no training row fits", where=str(config.set_folder), hint=hint)
    check_rewards(rows, config, answers)
    dev = fitting(read_split(config.set_folder, "dev", tasks & {TRANSLATE}), config, answers)
    dev = within(sample_rows(dev, config.evaluation.rows_per_task), tokenizer, config.max_prompt)
    longest = max(tokens.prompt_length for tokens in tokenise(rows, tokenizer))
    check_base(base, tokenizer, longest=longest + config.max_new_tokens, highest=0)
    return Inputs(
        base,
        config.adapter,
        before.base_digest,
        sha256_file(config.adapter / MANIFEST),
        manifest,
        tokenizer,
        answers,
        rows,
        prompt_order(rows, config),
        dev,
    )


def check_rewards(rows: Sequence[Row], config: GrpoConfig, answers: Answers) -> None:
    """Raises ConfigError for a run in which nothing could be learnt of a task, or a reward never be earned."""
    if config.rewards.get("executed") and not answers:
        hint = "give --world, the world whose questions the set has; or weigh executed 0"
        raise ConfigError("the reward `executed` needs a world to run plans over", where="rewards", hint=hint)
    weighed = [name for name, weight in config.rewards.items() if weight]
    for task in dict.fromkeys(row.task for row in rows):
        some = [row for row in rows if row.task == task][:LOOKED_AT]
        columns = [row.prompt for row in some], [""] * len(some), [task] * len(some), [row.gold for row in some]
        earned = [reward(*columns) for reward in reward_functions(dict.fromkeys(weighed, 1.0), answers)]
        if all(value is None for values in earned for value in values):
            hint = "which reward fits which task: docs/grpo.md"
            raise ConfigError(f"no reward of {', '.join(weighed)} fits {task}", where="rewards", hint=hint)


def within(rows: list[Row], tokenizer: PreTrainedTokenizerBase, most: int) -> list[Row]:
    return [row for row, tokens in zip(rows, tokenise(rows, tokenizer), strict=True) if tokens.prompt_length <= most]


def prompt_order(rows: Sequence[Row], config: GrpoConfig) -> list[int]:
    """Indices of the prompts of all steps: tasks by their share, every row of a task once before any again."""
    random = Random(config.seed)
    by_task: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        by_task.setdefault(row.task, []).append(index)
    total = config.steps * config.global_batch // config.completions
    drawn = random.choices(list(by_task), [config.tasks[task] for task in by_task], k=total)
    rounds: dict[str, list[int]] = {task: [] for task in by_task}
    order = []
    for task in drawn:
        if not rounds[task]:
            rounds[task] = random.sample(by_task[task], len(by_task[task]))
        order.append(rounds[task].pop())
    return order


def wanted_identity(config: GrpoConfig, base_digest: str, adapter_digest: str, data_digest: str) -> dict:
    world = config.world / "questions.jsonl" if config.world and config.world.is_dir() else config.world
    return identity(config, base_digest, data_digest) | {
        "adapter_digest": adapter_digest,
        "world_digest": sha256_file(world) if world else "",
    }
