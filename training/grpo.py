"""GRPO on top of a LoRA adapter (Shao et al. 2024, section 4.1), by TRL: `stage: grpo` of `revelator train`.

The policy is the base with the adapter, which stays LoRA and is all that learns: what comes out is an adapter folder of
the same form. It writes plans whose leaves can be looked up; rollouts are sampled without a grammar, and what each is
worth is in training.rewards.
Design notes:
* The order of prompts is computed before the first step and TRL shuffles nothing, so that a resumed run draws what the
  killed one would have drawn: same adapter, byte for byte, on the same machine and thread count.
* Rows are tokenised in training.tokens, and generation ends at the tokenizer's end token.
* A group whose rollouts all earn the same gives no gradient: `rollouts/silent_groups` in MLflow says how many do.
* Plans that the policy writes greedily for dev rows say whether rewards were earned for what is wanted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import mlflow
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from revelator.artifact import find_base, verify_adapter
from revelator.errors import ConfigError, DataError
from revelator.plans import parse
from revelator.rows import Row, read_split, sample_rows, verify_set
from training.base_model import check_base, choose_precision, load_base, load_tokenizer
from training.config import GrpoConfig
from training.export import use_lasting_names
from training.rewards import TASK, Answers, execute, make_reward_functions, read_answers
from training.stage import Inputs, MarkWholeCheckpoints, Stage, make_common_settings, train_adapter
from training.tokens import repeat_shuffled, tokenise
from training.tracking import ProgressCallback

ROWS_LOOKED_AT = 100  # by which it is decided whether a world fits the set


@dataclass(frozen=True, kw_only=True)
class GrpoInputs(Inputs):
    """Adds adapter, answers and rows; `order` indexes `rows`, one prompt a group of rollouts."""

    adapter: Path
    answers: Answers
    rows: list[Row]
    order: list[int]
    dev: list[Row]

    @property
    def counts(self) -> dict[str, int]:
        return {"train": len(self.rows), "dev": len(self.dev), "answers": len(self.answers)}

    def describe(self, config: GrpoConfig) -> str:
        return (
            f"{len(self.rows):,} training rows fit, {len(self.dev):,} dev rows, {len(self.answers):,} answers; "
            f"{config.steps} steps of {config.global_batch // config.completions} prompts "
            f"with {config.completions} rollouts each"
        )


def read_inputs(config: GrpoConfig) -> GrpoInputs:
    """Reads base, adapter, set and world. Raises an error of revelator.errors for whatever does not fit."""
    [folder] = config.sets
    if config.adapter is None:
        raise ConfigError("--adapter must be given", hint="there, or in the configuration")
    base = find_base(config.base)
    before = verify_adapter(config.adapter, base)
    manifest = verify_set(folder)
    answers = read_answers(config.world) if config.world else {}
    if config.rewards.get("executed") and not answers:
        hint = "give --world, the world whose questions the set has; or weigh executed 0"
        raise ConfigError("the reward `executed` needs a world to run plans over", where="rewards", hint=hint)
    tokenizer = load_tokenizer(base)
    rows, longest = select_short_prompts(read_split(folder, "train", {TASK.name}), tokenizer, config.max_prompt)
    if not rows:
        hint = "build the set from more questions, or set a longer max_prompt"
        raise DataError(f"no training row of {TASK.name} fits", where=str(folder), hint=hint)
    alone = {name for name, weight in config.rewards.items() if weight} == {"executed"}
    if alone and all(execute(parse(json.loads(row.gold)), answers) is None for row in rows[:ROWS_LOOKED_AT]):
        hint = "give the world whose questions the set has, or weigh another reward, too"
        raise ConfigError("the world has none of the set's questions", where=str(config.world), hint=hint)
    dev = sample_rows(read_split(folder, "dev", {TASK.name}), config.evaluation.rows_per_task)
    dev, _ = select_short_prompts(dev, tokenizer, config.max_prompt)
    check_base(base, tokenizer, longest=longest + config.max_new_tokens, largest_id=0)
    prompts = config.steps * config.global_batch // config.completions
    return GrpoInputs(
        base=base,
        base_digest=before.base_digest,
        sets=config.sets,
        manifests={folder: manifest},
        tasks={TASK.name},
        tokenizer=tokenizer,
        adapter=config.adapter,
        answers=answers,
        rows=rows,
        order=list(islice(repeat_shuffled(range(len(rows)), Random(config.seed)), prompts)),
        dev=dev,
    )


def select_short_prompts(rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase, limit: int) -> tuple[list[Row], int]:
    """Selects the rows whose prompt has at most `limit` tokens, and returns the length of the longest one."""
    lengths = [tokens.prompt_length for tokens in tokenise(rows, tokenizer)]
    short = [row for row, length in zip(rows, lengths, strict=True) if length <= limit]
    return short, max((length for length in lengths if length <= limit), default=0)


def make_trainer(config: GrpoConfig, inputs: GrpoInputs, report: ProgressCallback) -> GRPOTrainer:
    dtype = choose_precision(config)
    base = load_base(config, inputs.base, dtype)
    chosen = [inputs.rows[i] for i in inputs.order]
    columns = {"prompt": [r.prompt for r in chosen], "gold": [r.gold for r in chosen]}
    rewards: list[Any] = list(make_reward_functions(config.rewards, inputs.answers))
    trainer = GRPOTrainer(
        model=PeftModel.from_pretrained(base, inputs.adapter, is_trainable=True),
        reward_funcs=rewards,
        args=make_settings(config, dtype),
        train_dataset=Dataset.from_dict(columns),
        processing_class=inputs.tokenizer,
        callbacks=[
            MarkWholeCheckpoints(),
            report,
            PlanScores(inputs.dev, inputs.tokenizer, inputs.answers, config, report),
        ],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def make_settings(config: GrpoConfig, dtype: torch.dtype) -> GRPOConfig:
    return GRPOConfig(
        **make_common_settings(config, config.steps, dtype),
        num_generations=config.completions,
        max_completion_length=config.max_new_tokens,
        temperature=config.temperature,
        top_k=0,
        beta=config.kl,
        reward_weights=list(config.rewards.values()),
        shuffle_dataset=False,  # the order is decided already
        mask_truncated_completions=False,  # a plan that never ends must lose
    )


def save_policy(trainer: GRPOTrainer, config: GrpoConfig, folder: Path) -> dict[str, float]:
    """Writes the policy's weights into `folder`, without the reference that a `kl` above 0 measures from."""
    model: Any = trainer.model
    use_lasting_names(model.peft_config["default"], config.base)
    model.save_pretrained(folder, safe_serialization=True, selected_adapters=["default"])
    (folder / "README.md").unlink()  # PEFT's empty model card
    return {}


def train(config: GrpoConfig, *, resume: bool) -> dict | None:
    """The whole stage: `training.stage.train_adapter`."""
    return train_adapter(Stage(read_inputs, make_trainer, save_policy), config, resume=resume)


class PlanScores(TrainerCallback):
    """Before the first step, every `evaluation.every` steps and after the last: shares of the dev rows' greedy plans
    that are `exact` (the gold tree, word for word), `valid`, and `executed` as gold is, to MLflow below `dev/`."""

    def __init__(
        self,
        rows: Sequence[Row],
        tokenizer: PreTrainedTokenizerBase,
        answers: Answers,
        config: GrpoConfig,
        report: ProgressCallback,
    ) -> None:
        self.rows = sorted(rows, key=lambda row: len(row.prompt))
        self.tokenizer = tokenizer
        self.answers = answers
        self.config = config
        self.report = report

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step == 0:
            self._evaluate(state, kwargs["model"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self.config.evaluation.every == 0 or state.global_step == state.max_steps:
            self._evaluate(state, kwargs["model"])

    def _evaluate(self, state: TrainerState, model: Any) -> None:
        if not (state.is_world_process_zero and self.rows):
            return
        scores: dict[str, list[float]] = {name: [] for name in ("exact", "valid", "executed")}
        rewards = make_reward_functions(dict.fromkeys(scores, 1.0), self.answers)
        for start in range(0, len(self.rows), self.config.evaluation.batch_size):
            part = self.rows[start : start + self.config.evaluation.batch_size]
            prompts = [row.prompt for row in part]
            columns = prompts, self._write(model, prompts), [row.gold for row in part]
            for own, reward in zip(scores.values(), rewards, strict=True):
                own += [value for value in reward(*columns) if value is not None]
        figures = {f"dev/{name}": sum(own) / len(own) for name, own in scores.items() if own}
        self.report.figures |= figures
        mlflow.log_metrics(figures, step=state.global_step)
        text = "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
        self.report.console.print(f"step {state.global_step}  {text}", highlight=False, soft_wrap=True)

    @torch.no_grad()
    def _write(self, model: Any, prompts: list[str]) -> list[str]:
        inputs = self.tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left").to(model.device)
        settings = GenerationConfig(
            max_new_tokens=self.config.max_new_tokens,
            do_sample=False,
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
        )
        training = model.training
        model.eval()
        ids = model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], generation_config=settings
        )
        model.train(training)
        texts = self.tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        return [text.strip() for text in texts]
