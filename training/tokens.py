"""Rows as tokens, tokenised as serving does: of a whole split in a memory-mapped file, and the order they are shown in.

Every run's data order is decided before its first step, from the seed alone. That makes a resumed run see the rows that
the killed one would have seen, lets tasks be mixed by share, and groups rows of like length so that little is padding.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from revelator.artifact import explain_full_disk
from revelator.errors import ArtifactError, DataError
from revelator.files import replace_file
from revelator.rows import Row, check_filled, read_batches
from revelator.tasks import TASKS

MOST_LOST = 0.01  # of a task's rows, because they are too long
IGNORED = -100  # the label of tokens that the loss leaves out
BATCHES_SORTED_TOGETHER = 64  # by length; real.yaml's padding is 4 % then, 12 % at 16, 68 % unsorted
SCHEMA = pa.schema({"task": pa.string(), "input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32())})


@dataclass(frozen=True)
class TokenRow:
    """A row's prompt, completion and end token; the first `prompt_length` tokens are the prompt's."""

    task: str
    input_ids: list[int]
    prompt_length: int

    @property
    def labels(self) -> list[int]:
        """The label of each token: the token itself, or IGNORED for those of the prompt."""
        return [IGNORED] * self.prompt_length + self.input_ids[self.prompt_length :]


@dataclass(frozen=True)
class TokenTable:
    """A split as tokens. `rows` has `input_ids` and `labels` and lies on disk; `largest_id` is the greatest token."""

    rows: Dataset
    tasks: list[str]
    lengths: list[int]
    largest_id: int

    def __len__(self) -> int:
        return len(self.tasks)

    def select(self, indices: Sequence[int]) -> TokenTable:
        tasks, lengths = [self.tasks[i] for i in indices], [self.lengths[i] for i in indices]
        return TokenTable(self.rows.select(indices), tasks, lengths, self.largest_id)


def tokenise(rows: Sequence[Row], tokenizer: PreTrainedTokenizerBase) -> list[TokenRow]:
    """Tokenises prompt (as serving does), completion and end token; only the completion and the end count for the loss.

    Every stage of training tokenises rows here. Raises ArtifactError when the tokenizer has no end token or joins the
    end of a prompt with the start of its completion: the model would then be asked in another form than it was trained
    in. Nothing joins across a boundary token.
    """
    if tokenizer.eos_token_id is None:
        raise ArtifactError("this base's tokenizer has no end token", hint="choose another base")
    if not rows:
        return []
    prompts = tokenizer([r.prompt for r in rows])["input_ids"]
    completions = tokenizer([r.completion for r in rows], add_special_tokens=False)["input_ids"]
    together = [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)]
    if not ends_prompts(tokenizer):
        together = tokenizer([r.prompt + r.completion for r in rows])["input_ids"]
    tokens = []
    for row, prompt, completion, whole in zip(rows, prompts, completions, together, strict=True):
        if prompt + completion != whole:
            raise ArtifactError(
                f"this base's tokenizer joins prompt and completion of row {row.id} ({row.task}) across their boundary",
                hint="choose a base with a byte-level tokenizer",
            )
        tokens.append(TokenRow(row.task, [*whole, tokenizer.eos_token_id], len(prompt)))
    return tokens


def ends_prompts(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Does the tokenizer end a prompt with a boundary token, as those of prefix language models do?"""
    boundary = tokenizer.sep_token_id
    return boundary is not None and tokenizer("")["input_ids"][-1:] == [boundary]


def find_first_token(tokenizer: PreTrainedTokenizerBase, label: str) -> int:
    """Finds the token that stands for `label` in training, evaluation and serving: the first of " label"."""
    return tokenizer(" " + label, add_special_tokens=False)["input_ids"][0]


def check_labels(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ArtifactError unless the labels of each task differ in their first token."""
    for task in TASKS.values():
        first = {label: find_first_token(tokenizer, label) for label in task.labels or ()}
        for one, other in itertools.combinations(first, 2):
            if first[one] == first[other]:
                token = tokenizer.convert_ids_to_tokens(first[one])
                raise ArtifactError(
                    f"the tokenizer gives the {task.name} labels {one!r} and {other!r} the same first token {token!r}",
                    hint="labels are answered by one forward pass over their first tokens: choose another base",
                )


def load_token_table(
    folder: Path, split: str, tasks: Container[str], tokenizer: PreTrainedTokenizerBase, cache: Path
) -> TokenTable:
    """Loads the tokens of a split's rows of `tasks` from `cache`, which is written first if it is missing.

    Raises DataError for a split without rows.
    """
    if not cache.is_file():
        with explain_full_disk(cache.parent), replace_file(cache) as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
            check_filled(folder, split)
            for rows in read_batches(folder, split, tasks):
                if rows:
                    made = [asdict(row) | {"labels": row.labels} for row in tokenise(rows, tokenizer)]
                    writer.write_batch(pa.RecordBatch.from_pylist(made, schema=SCHEMA))
    table = Dataset.from_file(str(cache))
    ids = table.data.column("input_ids")
    lengths, largest_id = pc.list_value_length(ids).to_pylist(), pc.max(pc.list_flatten(ids)).as_py()
    rows = table.select_columns(["input_ids", "labels"])
    return TokenTable(rows, table.data.column("task").to_pylist(), lengths, largest_id or 0)


def select_fitting(tasks: Sequence[str], lengths: Sequence[int], max_length: int) -> tuple[list[int], dict[str, int]]:
    """Selects the rows of at most `max_length` tokens, and counts the longer ones of each task.

    No row is cut: a plan without its end teaches plans without one. Raises DataError naming the task of which a share
    above `MOST_LOST` would be lost: a small task may vanish while the whole loses little.
    """
    kept = [index for index, length in enumerate(lengths) if length <= max_length]
    lost = Counter(task for task, length in zip(tasks, lengths, strict=True) if length > max_length)
    of = Counter(tasks)
    for task, count in lost.most_common():
        if count > MOST_LOST * of[task]:
            longest = max(length for own, length in zip(tasks, lengths, strict=True) if own == task)
            raise DataError(
                f"{count} of {of[task]} {task} rows are longer than {max_length} tokens; the limit is {MOST_LOST:.0%}",
                hint=f"raise max_length (the longest has {longest} tokens) or weigh the task 0",
            )
    return kept, dict(lost)


def order_rows(
    tasks: Sequence[str],
    lengths: Sequence[int],
    weights: Mapping[str, float],
    *,
    batch_size: int,
    steps: int,
    seed: int,
) -> list[int]:
    """Orders `batch_size * steps` rows: tasks by their weights, rows of similar length in a batch."""
    random = Random(seed)
    order = draw_indices(tasks, weights, batch_size * steps, random)
    return list(_group_by_length(order, lengths, batch_size, random))


def draw_indices(tasks: Sequence[str], weights: Mapping[str, float], count: int, random: Random) -> list[int]:
    """Draws `count` rows: tasks that have rows by `weights`, every row of a task once before any repeats."""
    by_task: dict[str, list[int]] = {task: [] for task in weights}
    for index, task in enumerate(tasks):
        if task in by_task:
            by_task[task].append(index)
    shares = {task: weight for task, weight in weights.items() if by_task[task]}
    drawn = random.choices(list(shares), list(shares.values()), k=count)
    streams = {task: repeat_shuffled(indices, random) for task, indices in by_task.items()}
    return [next(streams[task]) for task in drawn]


def repeat_shuffled(indices: Sequence[int], random: Random) -> Iterator[int]:
    """Yields all indices in a random order, then in another one, without end."""
    while True:
        yield from random.sample(indices, len(indices))


def _group_by_length(order: list[int], lengths: Sequence[int], batch_size: int, random: Random) -> Iterator[int]:
    for start in range(0, len(order), batch_size * BATCHES_SORTED_TOGETHER):
        window = sorted(order[start : start + batch_size * BATCHES_SORTED_TOGETHER], key=lambda i: lengths[i])
        batches = [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
        random.shuffle(batches)
        yield from itertools.chain.from_iterable(batches)
