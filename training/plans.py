"""Plans that the policy writes greedily for dev rows, while GRPO runs: the curve that says whether rewards were earned
for what is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlflow
import torch
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from revelator.rows import Row
from training.callbacks import Report
from training.config import GrpoConfig
from training.rewards import Answers, exact, executed, valid


class PlanScores(TrainerCallback):
    """Before the first step, every `evaluation.every` steps and after the last: shares of the dev rows' greedy plans
    that are `exact` (the gold tree, word for word), `valid`, and `executed` as gold is, to MLflow below `dev/`."""

    def __init__(
        self,
        rows: Sequence[Row],
        tokenizer: PreTrainedTokenizerBase,
        answers: Answers,
        config: GrpoConfig,
        report: Report,
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
        scores: dict[str, list[float]] = {}
        for start in range(0, len(self.rows), self.config.evaluation.batch_size):
            part = self.rows[start : start + self.config.evaluation.batch_size]
            for row, output in zip(part, self._written(model, [r.prompt for r in part]), strict=True):
                given = (row.task, row.prompt, row.gold, output)
                values = {"exact": exact(*given), "valid": valid(*given)}
                for name, value in (values | {"executed": executed(self.answers, *given)}).items():
                    if value is not None:
                        scores.setdefault(name, []).append(value)
        figures = {f"dev/{name}": sum(own) / len(own) for name, own in scores.items()}
        self.report.figures |= figures
        mlflow.log_metrics(figures, step=state.global_step)
        said = "  ".join(f"{name} {value:.3f}" for name, value in figures.items())
        self.report.console.print(f"step {state.global_step}  {said}", highlight=False, soft_wrap=True)

    @torch.no_grad()
    def _written(self, model: Any, prompts: list[str]) -> list[str]:
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
