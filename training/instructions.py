"""Instruction sets as training and evaluation read them: verified, tokenised as serving does, in a fixed order.

Every run's data order is decided before its first step, from the seed alone. That makes a resumed run see the rows that
the killed one would have seen, lets tasks be mixed by share, and groups rows of like length so that little is padding.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet

from revelator.durable import sha256_file
from revelator.errors import ArtifactError, DataError
from revelator.tasks import TASKS, prompt_hash

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IGNORED = -100  # the label of tokens that the loss leaves out
WINDOW = 64  # batches sorted by length together; real.yaml's padding is 4 % then, 12 % at 16, 68 % unsorted
COLUMNS = ["id", "task", "prompt", "completion", "label", "gold", "entities"]


@dataclass(frozen=True)
class Instruction:
    """One row of a set; `gold` is the JSON of the typed gold value, `entities` of the names in question and plan."""

    id: str
    task: str
    prompt: str
    completion: str
    label: str
    gold: str
    entities: str = ""


@dataclass(frozen=True)
class TokenRow:
    task: str
    input_ids: list[int]
    labels: list[int]  # IGNORED for the prompt


def verify_set(folder: Path) -> dict:
    """The set's manifest, once its files and prompts are those of this release. Raises DataError or ArtifactError."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise DataError(
            "no manifest.json: this is no instruction set, or one whose build did not finish",
            where=str(folder),
            hint="build one: `revelator data build CONFIG.yaml --out DIR`",
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        hashed, files, _ = manifest["prompt_hash"], manifest["files"], manifest["digest"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"not the manifest of an instruction set: {error!r}", where=str(path), hint="build the set again"
        ) from error
    if hashed != prompt_hash():
        raise ArtifactError(
            f"the set was built with other prompts: its prompt hash is {hashed[:12]}…, "
            f"this release's {prompt_hash()[:12]}…",
            where=str(folder),
            hint="build the set again with this release: `revelator data build`",
        )
    for name, digest in files.items():
        if not (folder / name).is_file() or sha256_file(folder / name) != digest:
            raise DataError(
                "missing, or changed since the set was built", where=str(folder / name), hint="build the set again"
            )
    return manifest


def read_split(folder: Path, split: str) -> list[Instruction]:
    """All rows of one split. Raises DataError when there is none."""
    path = folder / f"{split}.parquet"
    if not path.is_file():
        raise DataError("the set has no such split", where=str(path), hint="splits are train, dev and test")
    if missing := set(COLUMNS) - set(parquet.read_schema(path).names):
        raise DataError(f"no column {min(missing)}", where=str(path), hint="build the set again with this release")
    rows = [Instruction(**row) for row in parquet.read_table(path, columns=COLUMNS).to_pylist()]
    if not rows:
        raise DataError("the split is empty", where=str(path), hint="build the set from more questions")
    return rows


def pinned(rows: Sequence[Instruction], each: int) -> list[Instruction]:
    """At most `each` rows a task, chosen by the hash of their id: the same rows whoever asks, in whatever order."""
    by_task: dict[str, list[Instruction]] = {}
    for row in sorted(rows, key=lambda r: hashlib.sha256(r.id.encode()).digest()):
        chosen = by_task.setdefault(row.task, [])
        if len(chosen) < each:
            chosen.append(row)
    return [row for task in sorted(by_task) for row in by_task[task]]


def first_token(tokenizer: PreTrainedTokenizerBase, label: str) -> int:
    """The token that stands for `label` in training, evaluation and serving: the first of " label"."""
    return tokenizer(" " + label, add_special_tokens=False)["input_ids"][0]


def check_labels(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises ArtifactError unless each label task's labels are told apart by their first token."""
    for task in TASKS.values():
        first = {label: first_token(tokenizer, label) for label in task.labels or ()}
        for one, other in itertools.combinations(first, 2):
            if first[one] == first[other]:
                token = tokenizer.convert_ids_to_tokens(first[one])
                raise ArtifactError(
                    f"the tokenizer gives the {task.name} labels {one!r} and {other!r} the same first token {token!r}",
                    hint="labels are answered by one forward pass over their first tokens: choose another base",
                )


def tokenise(rows: Sequence[Instruction], tokenizer: PreTrainedTokenizerBase) -> list[TokenRow]:
    """Prompt as serving tokenises it, completion, end token; only the completion and the end count for the loss.

    Raises ArtifactError when the tokenizer has no end token or joins the end of a prompt with the start of its
    completion: the model would then be asked in another form than it was trained in.
    """
    if tokenizer.eos_token_id is None:
        raise ArtifactError("this base's tokenizer has no end token", hint="choose another base")
    prompts = tokenizer([r.prompt for r in rows])["input_ids"]
    completions = tokenizer([r.completion for r in rows], add_special_tokens=False)["input_ids"]
    together = tokenizer([r.prompt + r.completion for r in rows])["input_ids"]
    tokens = []
    for row, prompt, completion, whole in zip(rows, prompts, completions, together, strict=True):
        if prompt + completion != whole:
            raise ArtifactError(
                f"this base's tokenizer joins prompt and completion of row {row.id} ({row.task}) across their boundary",
                hint="choose a base with a byte-level tokenizer",
            )
        ids = [*prompt, *completion, tokenizer.eos_token_id]
        tokens.append(TokenRow(row.task, ids, [IGNORED] * len(prompt) + ids[len(prompt) :]))
    return tokens


def keep_whole(rows: Sequence[TokenRow], max_length: int, limit: float) -> tuple[list[TokenRow], dict[str, int]]:
    """Rows of at most `max_length` tokens, and how many of each task are not.

    No row is cut: a plan without its end teaches plans without one. Raises DataError naming the task of which a share
    above `limit` would be lost: a small task may vanish while the whole loses little.
    """
    kept = [row for row in rows if len(row.input_ids) <= max_length]
    lost = Counter(row.task for row in rows if len(row.input_ids) > max_length)
    of = Counter(row.task for row in rows)
    for task, count in lost.most_common():
        if count > limit * of[task]:
            longest = max(len(row.input_ids) for row in rows if row.task == task)
            raise DataError(
                f"{count} of {of[task]} {task} rows are longer than {max_length} tokens; the limit is {limit:.1%}",
                hint=f"raise max_length (the longest has {longest} tokens) or lost_rows_limit, or weigh the task 0",
            )
    return kept, dict(lost)


def shares(weights: Mapping[str, float], sizes: Mapping[str, int], temperature: float | None) -> dict[str, float]:
    """Each task's share of the rows drawn: w·n^(1/T) for weight w, n rows and temperature T, brought to a sum of 1.

    This is temperature-scaled mixing (Raffel et al. 2020, section 3.5.2) with a weight in front. T = 1 draws tasks in
    proportion to their rows, a higher T draws small ones more often; None is T without bound: shares are weights alone.
    Tasks without rows or weight have none; DataError when no task is left.
    """
    raw = {
        task: weights[task] * (size ** (1 / temperature) if temperature else 1.0)
        for task, size in sizes.items()
        if size and weights.get(task, 0) > 0
    }
    if not raw:
        raise DataError("no row belongs to a task with a weight above zero", hint="see `tasks` in the configuration")
    total = sum(raw.values())
    return {task: value / total for task, value in raw.items()}


def training_order(
    rows: Sequence[TokenRow], drawn_as: Mapping[str, float], *, batch_size: int, steps: int, seed: int
) -> list[int]:
    """Indices of `batch_size * steps` rows: tasks by their share in `drawn_as`, every row of one before any again."""
    random = Random(seed)
    by_task: dict[str, list[int]] = {task: [] for task in drawn_as}
    for index, row in enumerate(rows):
        if row.task in by_task:
            by_task[row.task].append(index)
    drawn = random.choices(list(drawn_as), list(drawn_as.values()), k=batch_size * steps)
    streams = {task: _endless(indices, random) for task, indices in by_task.items()}
    order = [next(streams[task]) for task in drawn]
    return list(_grouped(order, rows, batch_size, random))


def _endless(indices: list[int], random: Random) -> Iterator[int]:
    while True:
        yield from random.sample(indices, len(indices))


def _grouped(order: list[int], rows: Sequence[TokenRow], batch_size: int, random: Random) -> Iterator[int]:
    for start in range(0, len(order), batch_size * WINDOW):
        window = sorted(order[start : start + batch_size * WINDOW], key=lambda i: len(rows[i].input_ids))
        batches = [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
        random.shuffle(batches)
        yield from itertools.chain.from_iterable(batches)
