"""LoRA fine-tuning of a base on an instruction set: all tasks by TRL, on completion tokens only (`stage: sft`).

Design notes:
* Rows are tokenised in training.tokens and not by TRL, so that training and serving tokenise a prompt alike.
* The order of rows is computed before the first step (training.tokens), so a resumed run ends where the killed one
  would have: same adapter, byte for byte, on the same machine and thread count. With `minutes` the clock decides.
* The base stays in fp32 on a CPU unless `precision: bf16` is asked for: without bf16 units, bf16 autocast is 2.5 times
  slower there, and with them 2.5 times faster (322 tokens/s against 131, SmolLM2-135M, one thread). On a GPU it is
  bf16.
* The loss is the token mean of the completions over the whole batch of a step, all processes and accumulated parts
  together, so their number changes nothing but rounding. A step is cut into batches before the first one, too, because
  with `batch_tokens` their numbers of rows differ.
* On a GPU TRL's fused output layer computes the loss. Elsewhere that layer projects every position of every row, prompt
  and padding included; here only those that a completion's token follows: 1,483 tokens/s against 1,045 (CPU time of
  one thread, embedded base, three batches of 32 rows; `benchmarks/throughput.py` measures both).
* Dev rows are read in one pass, no text is generated: a row is right when each token of its completion is the most
  probable one after the gold ones before it, which is exactly when greedy decoding writes that completion.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from datasets import Dataset
from peft import LoraConfig, PeftModel
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState, PrinterCallback
from trl import SFTConfig, SFTTrainer

from revelator.artifact import ADAPTER_CONFIG, ADAPTER_WEIGHTS, digest_base, find_base, verify_adapter
from revelator.errors import ConfigError, DataError
from revelator.files import sha256_text, stage_folder, write_json
from revelator.rows import read_split, sample_rows, verify_set
from revelator.tasks import TASKS
from training.base_model import check_base, choose_precision, load_base, load_tokenizer
from training.checkpoints import BEST
from training.config import FineTuneConfig, Lora
from training.export import use_lasting_names
from training.stage import Inputs, MarkWholeCheckpoints, Stage, make_common_settings, train_adapter
from training.tokens import (
    IGNORED,
    TokenRow,
    TokenTable,
    cut_step,
    find_first_token,
    join_tables,
    load_token_table,
    order_rows,
    order_rows_by_tokens,
    select_fitting,
    share_tasks,
    tokenise,
)
from training.tracking import ProgressCallback, find_last_count

SCORE = "score.json"


@dataclass(frozen=True, kw_only=True)
class SftInputs(Inputs):
    """Adds the tokens, the rows of each step in the order in which they are shown, and dev rows."""

    tokens: TokenTable
    steps: list[list[int]]
    dev: list[TokenRow]
    lost: dict[str, int]  # training rows over the length, by task
    lost_dev: int

    @property
    def counts(self) -> dict[str, int]:
        """Counts rows that train, that are too long (in all and by task), and of dev."""
        lost = {f"lost_{task}": count for task, count in self.lost.items()}
        totals = {"train": len(self.tokens), "lost": sum(self.lost.values()), "dev": len(self.dev)}
        return totals | lost | {"lost_dev": self.lost_dev}

    def describe(self, config: FineTuneConfig) -> str:
        lengths = [self.tokens.lengths[i] for step in self.steps for i in step]
        epochs = len(lengths) / len(self.tokens)
        text = (
            f"{len(self.tokens):,} training rows ({sum(self.lost.values())} too long), {len(self.dev):,} dev rows; "
            f"{config.model_copy(update={'steps': len(self.steps)}).length}; "
            f"rows of {sum(lengths) / len(lengths):.0f} tokens on average, {epochs:.2g} epochs"
        )
        if none := sorted({task for task, weight in config.tasks.items() if weight} - self.tasks):
            text += f"\nno rows of {', '.join(none)}: the steps go to the other tasks"
        return text


def read_inputs(config: FineTuneConfig) -> SftInputs:
    """Reads base, set and tokens. Raises an error of revelator.errors for whatever does not fit."""
    base = find_base(config.base)
    if config.adapter:
        verify_adapter(config.adapter, base)
        check_lora(config, config.adapter)
    manifests = {folder: verify_set(folder) for folder in config.sets}
    tokenizer = load_tokenizer(base)
    weighted = {task for task, weight in config.tasks.items() if weight > 0}
    digest = digest_base(base)
    tables = []
    for folder, manifest in manifests.items():
        key = sha256_text(f"{manifest['files']['train.parquet']} {digest} {sorted(weighted)}")[:16]
        tables.append(load_token_table(folder, "train", weighted, tokenizer, config.work / f"train-{key}.arrow"))
    read, where = join_tables(tables), ", ".join(map(str, manifests))
    whole, lost = select_fitting(read.tasks, read.lengths, config.max_length)
    tokens = read.select(whole)
    if not (taught := set(tokens.tasks)):
        raise DataError("no row belongs to a task with a weight above zero", where=where)
    tested = [folder for folder, manifest in manifests.items() if manifest["records"]["dev"]]
    rows = [row for folder in tested for row in read_split(folder, "dev", taught)]
    dev = sample_rows(rows, config.evaluation.rows_per_task)
    if not dev:
        raise DataError("the dev split has no row of the tasks that are trained", where=where)
    judged = [row for row in tokenise(dev, tokenizer) if len(row.input_ids) <= config.max_length]
    check_base(base, tokenizer, longest=max(tokens.lengths), largest_id=read.largest_id)
    return SftInputs(
        base=base,
        base_digest=digest,
        sets=config.sets,
        manifests=manifests,
        tasks=taught,
        tokenizer=tokenizer,
        adapter=config.adapter,
        tokens=tokens,
        steps=order_steps(config, tokens, [config.sets.count(folder) for folder in manifests]),
        dev=judged,
        lost=lost,
        lost_dev=len(dev) - len(judged),
    )


def order_steps(config: FineTuneConfig, tokens: TokenTable, counts: Sequence[int]) -> list[list[int]]:
    """Orders the rows of each step; `counts` is how often each set is named."""
    rows = math.ceil(config.epochs * len(tokens)) if config.epochs else None
    kinds, shares = list(zip(tokens.tasks, tokens.sets, strict=True)), share_tasks(tokens, config.tasks, counts)
    if config.batch_tokens:
        steps = order_rows_by_tokens(
            kinds, tokens.lengths, shares, tokens=config.batch_tokens, least=config.parts, rows=rows, seed=config.seed
        )
        return list(islice(steps, config.steps))
    limits = [config.steps, rows and math.ceil(rows / config.global_batch)]
    count = min(limit for limit in limits if limit)
    return order_rows(kinds, tokens.lengths, shares, batch_size=config.global_batch, steps=count, seed=config.seed)


def check_lora(config: FineTuneConfig, adapter: Path) -> None:
    """Raises ConfigError if the adapter that the training begins with has other settings than `lora`."""
    there = json.loads((adapter / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    found = Lora(rank=there["r"], alpha=there["lora_alpha"], dropout=there["lora_dropout"])
    if found != config.lora:
        values = ", ".join(f"{name}: {value}" for name, value in found.model_dump().items())
        hint = f"write them into the configuration: lora: {{{values}}}"
        raise ConfigError(f"lora = {config.lora}: the adapter has {found}", where=str(adapter), hint=hint)


def make_trainer(config: FineTuneConfig, inputs: SftInputs, report: ProgressCallback) -> TaskTrainer:
    dtype = choose_precision(config)
    base = load_base(config, inputs.base, dtype)
    begun = PeftModel.from_pretrained(base, config.adapter, is_trainable=True) if config.adapter else None
    trainer = TaskTrainer(
        dev=inputs.dev,
        work=config.work,
        batches=[part for step in inputs.steps for part in cut_step(step, config.parts)],
        minutes=config.minutes,
        model=begun or base,
        args=make_settings(config, len(inputs.steps), dtype),
        train_dataset=inputs.tokens.rows,
        eval_dataset=_to_dataset(inputs.dev),  # asked for because evaluation is on
        processing_class=inputs.tokenizer,
        peft_config=None if begun else make_lora(config),
        callbacks=[MarkWholeCheckpoints()],
    )
    trainer.add_callback(report)  # after that of the time, which may ask for a save
    trainer.remove_callback(PrinterCallback)
    use_lasting_names(trainer.model.peft_config["default"], config.base)
    return trainer


def make_settings(config: FineTuneConfig, steps: int, dtype: torch.dtype) -> SFTConfig:
    return SFTConfig(
        **make_common_settings(config, steps, dtype) | {"per_device_train_batch_size": 1},  # an item is a batch
        per_device_eval_batch_size=config.evaluation.batch_size,
        train_sampling_strategy="sequential",  # the order is decided already
        eval_strategy="steps",
        eval_steps=config.evaluation.every,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        packing=False,
    )


def make_lora(config: FineTuneConfig) -> LoraConfig:
    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules="all-linear",  # every linear layer but the output layer
        bias="none",
        task_type="CAUSAL_LM",
    )


def _to_dataset(rows: list[TokenRow]) -> Dataset:
    return Dataset.from_dict({"input_ids": [r.input_ids for r in rows], "labels": [r.labels for r in rows]})


def save_best(trainer: TaskTrainer, config: FineTuneConfig, folder: Path) -> dict[str, float]:
    """Writes the weights of the best step into `folder`; returns its score, loss and number."""
    for name in (ADAPTER_WEIGHTS, ADAPTER_CONFIG):
        shutil.copyfile(config.work / BEST / name, folder / name)
    return {f"best/{name}": value for name, value in trainer.best.items()}


def train(config: FineTuneConfig, *, resume: bool) -> dict | None:
    """The whole stage: `training.stage.train_adapter`."""
    return train_adapter(Stage(read_inputs, make_trainer, save_best), config, resume=resume)


class Batches(torch.utils.data.Dataset):
    """Each item is a batch: a list of rows."""

    def __init__(self, rows: Dataset, batches: Sequence[Sequence[int]]) -> None:
        self.rows = rows
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> list[dict[str, list[int]]]:
        return [self.rows[index] for index in self.batches[number]]


class TimeLimit(TrainerCallback, ExportableState):
    """Ends a training after `minutes`, in which it evaluates and saves as at its last step. `seconds` are those up to
    the last step, those before a resumption included; of several processes, the first one's."""

    def __init__(self, minutes: float) -> None:
        self.minutes = minutes
        self.seconds = 0.0

    def state(self) -> dict:
        return {"args": {"minutes": self.minutes}, "attributes": {"seconds": self.seconds}}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.began = time.monotonic() - self.seconds

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        [self.seconds] = broadcast_object_list([time.monotonic() - self.began])
        if self.share >= 1:
            control.should_training_stop = control.should_evaluate = control.should_save = True

    @property
    def share(self) -> float:
        return self.seconds / 60 / self.minutes


class TaskTrainer(SFTTrainer):
    """`dev` are the rows that scores are computed on; `work` is where the best adapter lies until the run is over.
    `batches` are numbers of rows of the training set, of which each process takes one in turn."""

    model: Any  # PEFT's, over the base
    processing_class: Any  # the tokenizer

    def __init__(
        self,
        *,
        dev: Sequence[TokenRow],
        work: Path,
        batches: Sequence[Sequence[int]],
        minutes: float | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.train_dataset = Batches(self.train_dataset, batches)
        self.collate_rows = self.data_collator
        self.data_collator = lambda items: self.collate_rows(items[0])
        self.limit = TimeLimit(minutes) if minutes else None
        if self.limit:
            self.add_callback(self.limit)
        self.dev = sorted(dev, key=lambda row: len(row.input_ids))
        self.work = work
        self.best: dict[str, float] = {}
        self.labels = {
            name: torch.tensor([find_first_token(self.processing_class, label) for label in task.labels])
            for name, task in TASKS.items()
            if task.labels
        }

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **options: Any) -> Any:
        """As the library's.

        An adapter that a killed run saved as the best after its last whole checkpoint stays the best one to beat: that
        step comes again with the same score, so the adapter that is left in the end is the same.
        """
        self.best = read_best(self.work) if resume_from_checkpoint else {}
        if resume_from_checkpoint:
            state = TrainerState.load_from_json(str(Path(str(resume_from_checkpoint)) / TRAINER_STATE_NAME))
            self._total_train_tokens = find_last_count(state)
            if self.limit:
                self.limit.seconds = state.stateful_callbacks[TimeLimit.__name__]["attributes"]["seconds"]
        return super().train(resume_from_checkpoint, *arguments, **options)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """As the library's, but steps that a run's `minutes` leave no time for count as taken."""
        scheduler: Any = super().create_scheduler(num_training_steps, optimizer)
        if limit := self.limit:
            scale, *others = scheduler.lr_lambdas  # one for each group of weights, all alike
            scheduler.lr_lambdas = [lambda step: scale(max(step, limit.share * num_training_steps))] * (1 + len(others))
        return scheduler

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if self.args.device.type != "cpu":
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        labels = inputs["labels"][:, 1:]
        learnt = labels != IGNORED
        rest = {name: value for name, value in inputs.items() if name != "labels"}
        with project_only(self.model, learnt):
            logits = model(**rest, use_cache=False).logits.float()
        gold = labels[learnt]
        tokens = learnt.sum() if num_items_in_batch is None else num_items_in_batch
        loss = cross_entropy(logits, gold, reduction="sum") / tokens * self.accelerator.num_processes
        figures = self._metrics["train"]
        right = torch.stack([(logits.argmax(-1) == gold).sum(), learnt.sum(), inputs["attention_mask"].sum()])
        right, learnable, read = self.accelerator.reduce(right).tolist()
        figures["mean_token_accuracy"].append(right / max(1, learnable))
        self._total_train_tokens += read
        figures["num_tokens"] = [self._total_train_tokens]
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Loss and score of each task of `dev`, the mean of the scores; keeps the adapter if none before was better.

        Every process takes part, in as many passes as the others: a sharded model is gathered layer by layer.
        """
        training, self.model.training = self.model.training, False
        self.model.eval()
        size = self.args.per_device_eval_batch_size
        with self.accelerator.split_between_processes(
            list(range(0, len(self.dev), size)), apply_padding=True
        ) as starts:
            judged = [row for start in starts for row in self._judge(start, self.dev[start : start + size])]
        rows = dict(gather_object(judged))
        figures = summarise([(self.dev[index].task, *row) for index, row in sorted(rows.items())])
        self._save_if_best(figures)
        self.log(dict(figures))
        self.model.train(training)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        return figures

    @torch.no_grad()
    def _judge(self, start: int, rows: Sequence[TokenRow]) -> Iterator[tuple[int, tuple[float, int, bool]]]:
        """Returns index, summed loss, number of completion tokens and correctness of each of `rows`."""
        batch = self.collate_rows([{"input_ids": row.input_ids, "labels": row.labels} for row in rows])
        batch = self._prepare_inputs(batch)
        labels = batch.pop("labels")[:, 1:]
        learnt = labels != IGNORED
        with self.autocast_smart_context_manager(), project_only(self.model, learnt):
            logits = self.model_wrapped(**batch, use_cache=False).logits.float()
        gold = labels[learnt]
        losses = cross_entropy(logits, gold, reduction="none").tolist()
        right = (logits.argmax(-1) == gold).tolist()
        at = 0
        for offset, (row, length) in enumerate(zip(rows, learnt.sum(1).tolist(), strict=True)):
            if row.task in self.labels:
                first = self.labels[row.task].to(logits.device)
                hit = bool(first[logits[at, first].argmax()] == gold[at])
            else:
                hit = all(right[at : at + length])
            yield start + offset, (sum(losses[at : at + length]), length, hit)
            at += length

    def _save_if_best(self, figures: dict[str, float]) -> None:
        """Saves the adapter if its mean score is the best so far; of equal scores, the lower loss is better."""
        now = {"score": figures["eval_score"], "loss": figures["eval_loss"], "step": self.state.global_step}
        if self.best and (now["score"], -now["loss"]) <= (self.best["score"], -self.best["loss"]):
            return
        self.best = now
        weights = gather_adapter_weights(self.model)
        if self.accelerator.is_main_process:
            with stage_folder(self.work / BEST) as stage:
                self.model.save_pretrained(stage, state_dict=weights)
                write_json(stage / SCORE, now)


def gather_adapter_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Gathers the trained weights by name. Every process must call it, because shards are gathered."""
    trained = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in trained.items()}


def read_best(work: Path) -> dict[str, float]:
    path = work / BEST / SCORE
    return json.loads(path.read_text()) if path.is_file() else {}


def summarise(rows: Sequence[tuple[str, float, int, bool]]) -> dict[str, float]:
    """Summarises rows (task, summed loss, tokens, right): loss by token, score of each task, mean of the scores."""
    figures = {"eval_loss": sum(r[1] for r in rows) / sum(r[2] for r in rows)}
    scores = []
    for task in sorted({row[0] for row in rows}):
        mine = [row for row in rows if row[0] == task]
        scores.append(sum(row[3] for row in mine) / len(mine))
        figures[f"eval_loss_{task}"] = sum(row[1] for row in mine) / sum(row[2] for row in mine)
        figures[f"eval_score_{task}"] = scores[-1]
    return figures | {"eval_score": sum(scores) / len(scores)}


@contextmanager
def project_only(model: Any, learnt: torch.Tensor) -> Iterator[None]:
    """Within it the output layer sees the positions of `learnt` (rows, length - 1) alone: logits (tokens, vocabulary).

    What a model does to logits after that layer (a scale, a soft cap) is done to each by itself, so it still holds.
    """

    def pick(_: torch.nn.Module, hidden: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return hidden[0][:, :-1][learnt]

    handle = model.get_output_embeddings().register_forward_pre_hook(pick)
    try:
        yield
    finally:
        handle.remove()
