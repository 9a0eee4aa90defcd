"""Instruction sets as training and evaluation read them: verified, a batch at a time, tasks mixed by share."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet

from revelator.errors import ArtifactError, DataError
from revelator.files import sha256_file
from revelator.tasks import TASKS, prompt_hash

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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


def read_split(folder: Path, split: str, tasks: Container[str] = frozenset(TASKS)) -> list[Instruction]:
    """All rows of one split that belong to `tasks`. Raises DataError when the split has no row at all."""
    return [row for batch in batches(folder, split) for row in batch if row.task in tasks]


def batches(folder: Path, split: str, size: int = 1000) -> Iterator[list[Instruction]]:
    """The rows of one split, `size` at a time: what they take of memory does not grow with the set."""
    path = folder / f"{split}.parquet"
    if not path.is_file():
        raise DataError("the set has no such split", where=str(path), hint="splits are train, dev and test")
    file = parquet.ParquetFile(path)
    if missing := set(COLUMNS) - set(file.schema_arrow.names):
        raise DataError(f"no column {min(missing)}", where=str(path), hint="build the set again with this release")
    if not file.metadata.num_rows:
        raise DataError("the split is empty", where=str(path), hint="build the set from more questions")
    for batch in file.iter_batches(size, columns=COLUMNS):
        yield [Instruction(**row) for row in batch.to_pylist()]


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
