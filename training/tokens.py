"""Rows as tokens, tokenised as serving does: of a whole split in a memory-mapped file, and the order they are shown in.

Every run's data order is decided before its first step, from the seed alone. That makes a resumed run see the rows that
the killed one would have seen, lets tasks be mixed by share, and groups rows of like length so that little is padding.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, concatenate_datasets
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
    """A split as tokens. `rows` has `input_ids` and `labels` and lies on disk; `sets` has the number of the set that
    each row is of; `largest_id` is the greatest token."""

    rows: Dataset
    tasks: list[str]
    sets: list[int]
    lengths: list[int]
    largest_id: int

    def __len__(self) -> int:
        return len(self.tasks)

    def select(self, indices: Sequence[int]) -> TokenTable:
        return TokenTable(
            self.rows.select(indices),
            [self.tasks[i] for i in indices],
            [self.sets[i] for i in indices],
            [self.lengths[i] for i in indices],
            self.largest_id,
        )


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
    return TokenTable(rows, table.data.column("task").to_pylist(), [0] * len(lengths), lengths, largest_id or 0)


def join_tables(tables: Sequence[TokenTable]) -> TokenTable:
    """Joins the tables of several sets, which are numbered as they come."""
    return TokenTable(
        concatenate_datasets([table.rows for table in tables]),
        [task for table in tables for task in table.tasks],
        [number for number, table in enumerate(tables) for _ in table.tasks],
        [length for table in tables for length in table.lengths],
        max(table.largest_id for table in tables),
    )


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


def share_tasks(tokens: TokenTable, weights: Mapping[str, float], counts: Sequence[int]) -> dict[Hashable, float]:
    """Shares out the weight of each task among the sets that have rows of it, by how often each set is named."""
    present = set(zip(tokens.tasks, tokens.sets, strict=True))
    shares: dict[Hashable, float] = {}
    for task, weight in weights.items():
        having = [number for number in range(len(counts)) if (task, number) in present]
        for number in having:
            shares[task, number] = weight * counts[number] / sum(counts[each] for each in having)
    return shares


def order_rows(
    kinds: Sequence[Hashable],
    lengths: Sequence[int],
    shares: Mapping[Hashable, float],
    *,
    batch_size: int,
    steps: int,
    seed: int,
) -> list[list[int]]:
    """Orders `steps` steps of `batch_size` rows: kinds by their shares, rows of similar length in a step."""
    random = Random(seed)
    count = batch_size * steps
    order = list(itertools.islice(draw_indices(kinds, shares, random, count), count))
    made: list[list[int]] = []
    for start in range(0, count, batch_size * BATCHES_SORTED_TOGETHER):
        window = sorted(order[start : start + batch_size * BATCHES_SORTED_TOGETHER], key=lambda i: lengths[i])
        batches = [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
        random.shuffle(batches)
        made += batches
    return made


def order_rows_by_tokens(
    kinds: Sequence[Hashable],
    lengths: Sequence[int],
    shares: Mapping[Hashable, float],
    *,
    tokens: int,
    least: int,
    rows: int | None,
    seed: int,
) -> Iterator[list[int]]:
    """Yields steps of up to `tokens` tokens, padding included: kinds by their shares, rows of similar length in a step.

    It ends after `rows` rows, or never. Each step has at least `least` rows; the last one repeats some if it must.
    """
    random = Random(seed)
    drawn = draw_indices(kinds, shares, random)
    mean = sum(lengths) / len(lengths)
    window = max(1, int(BATCHES_SORTED_TOGETHER * tokens / mean))
    left, rest = rows, list[int]()
    while new := list(itertools.islice(drawn, window if left is None else min(window, left))):
        left = None if left is None else left - len(new)
        steps = list(_cut_by_tokens(sorted(rest + new, key=lambda i: lengths[i]), lengths, tokens))
        rest = steps.pop()  # the only one that may not be full
        random.shuffle(steps)
        yield from steps
    yield rest + list(itertools.islice(drawn, max(0, least - len(rest))))


def _cut_by_tokens(rows: Sequence[int], lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Cuts rows of rising length into steps of up to `tokens` tokens once each is padded to its longest."""
    step: list[int] = []
    for row in rows:
        if step and (len(step) + 1) * lengths[row] > tokens:
            yield step
            step = []
        step.append(row)
    yield step


def cut_step(step: Sequence[int], parts: int) -> list[list[int]]:
    """Cuts a step into parts whose numbers of rows differ by one at most."""
    bounds = [len(step) * part // parts for part in range(parts + 1)]
    return [list(step[start:end]) for start, end in itertools.pairwise(bounds)]


def draw_indices(
    kinds: Sequence[Hashable], shares: Mapping[Hashable, float], random: Random, together: int = 4096
) -> Iterator[int]:
    """Draws rows without end: kinds that have rows by `shares`, every row of a kind once before any repeats. The kinds
    of `together` rows are drawn at once."""
    by_kind: dict[Hashable, list[int]] = {kind: [] for kind in shares}
    for index, kind in enumerate(kinds):
        if kind in by_kind:
            by_kind[kind].append(index)
    present = {kind: share for kind, share in shares.items() if by_kind[kind]}
    streams = {kind: repeat_shuffled(indices, random) for kind, indices in by_kind.items()}
    while True:
        for kind in random.choices(list(present), list(present.values()), k=together):
            yield next(streams[kind])


def repeat_shuffled(indices: Sequence[int], random: Random) -> Iterator[int]:
    """Yields all indices in a random order, then in another one, without end."""
    while True:
        yield from random.sample(indices, len(indices))
