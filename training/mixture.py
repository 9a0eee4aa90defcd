"""What pre-training reads: rows of instruction sets, as tokens with weights.

The loss of each token counts with its weight: none of the prompt, which is read and not predicted; all of a completion,
and a label (one token) as much as a short plan.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from transformers import PreTrainedTokenizerFast

from revelator.rows import Row, read_batches
from revelator.tasks import TASKS
from training.tokens import tokenise

WIDTHS = tuple(range(32, 449, 16))  # batches are padded to one of these
LABEL_WEIGHT = 8.0
SHORT_DOCUMENTS = 0.5  # of the relevance rows
DOCUMENT = re.compile(r"(?<=^Document: ).+$", re.MULTILINE)


@dataclass(frozen=True)
class WeightedTokens:
    tokens: np.ndarray  # int16 ids
    weights: np.ndarray  # float32, same length; weight i is that of predicting token i


def sample_training_rows(
    folders: Sequence[Path], shares: Mapping[str, float], total: int, random: Random
) -> list[Sequence[Row]]:
    """Samples the training rows of each set, of a task no more than a mixture of `total` rows could take. A set that is
    named twice is read once."""
    drawn: dict[Path, list[Row]] = {}
    for folder in dict.fromkeys(folders):
        pools: dict[str, list[Row]] = {task: [] for task in TASKS if shares.get(task)}
        seen = Counter[str]()
        for row in (row for batch in read_batches(folder, "train", pools) for row in batch):
            pool, most = pools[row.task], int(total * shares[row.task])
            seen[row.task] += 1
            if len(pool) < most:
                pool.append(row)
            elif (place := random.randrange(seen[row.task])) < most:
                pool[place] = row
        drawn[folder] = [row for pool in pools.values() for row in pool]
    return [drawn[folder] for folder in folders]


def mix_rows(
    sets: Sequence[Sequence[Row]],
    tokenizer: PreTrainedTokenizerFast,
    *,
    shares: Mapping[str, float],
    total: int,
    random: Random,
    warn: Callable[[str], object],
) -> list[WeightedTokens]:
    """Mixes `total` rows by `shares` of tasks.

    The sets that have a task give it equal parts; a set that is too small is repeated. `warn` is called with a
    message about rows that are too long and left out.
    """
    mixed: list[WeightedTokens] = []
    for task in TASKS:
        pools = [pool for rows in sets if (pool := [row for row in rows if row.task == task])]
        for pool in pools:
            want = int(total * shares.get(task, 0) / len(pools))
            random.shuffle(pool)
            drawn = [shorten_document(r, random) if random.random() < SHORT_DOCUMENTS else r for r in pool[:want]]
            fitting = weigh_rows(drawn, tokenizer, WIDTHS[-1])
            if lost := len(drawn) - len(fitting):
                warn(f"{task}: {lost:,} of {len(drawn):,} rows are over {WIDTHS[-1]} tokens, left out")
            mixed += [fitting[i % len(fitting)] for i in range(want)]
    return mixed


def shorten_document(row: Row, random: Random) -> Row:
    """Cuts the document of a relevance row to 60-200 characters: matching names is learnt sooner on short ones."""
    document = DOCUMENT.search(row.prompt)
    if row.task != "relevance" or not document:
        return row
    cut = document[0][: random.randint(60, 200)]
    return replace(row, prompt=row.prompt.replace(document[0], cut))


def weigh_rows(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast, longest: int) -> list[WeightedTokens]:
    """Tokenises and weighs rows of prompt, completion and end token; rows over `longest` tokens are left out."""
    weighted = []
    for row, tokens in zip(rows, tokenise(rows, tokenizer), strict=True):
        if len(tokens.input_ids) <= longest:
            weights = np.full(len(tokens.input_ids), LABEL_WEIGHT if row.label else 1.0, np.float32)
            weights[: tokens.prompt_length] = 0.0
            weighted.append(WeightedTokens(np.array(tokens.input_ids, np.int16), weights))
    return weighted


def batch_rows(
    rows: list[WeightedTokens], widths: tuple[int, ...], tokens: int, random: Random
) -> Iterator[list[WeightedTokens]]:
    """Yields endless batches of about `tokens` tokens, of rows that fit one of `widths`. A round takes each row at most
    once: the rows of its incomplete batches are dropped."""
    while True:
        order = random.sample(range(len(rows)), len(rows))
        waiting: dict[int, list[WeightedTokens]] = {width: [] for width in widths}
        for index in order:
            row = rows[index]
            width = next(w for w in widths if len(row.tokens) <= w)
            waiting[width].append(row)
            if len(waiting[width]) == tokens // width:
                yield waiting[width]
                waiting[width] = []
