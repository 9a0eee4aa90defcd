"""What pre-training reads: rows of instruction sets, as tokens with weights.

The loss of each token counts with its weight. Prompts count a little, so that questions are learnt as language (a
prefix language model predicts none of its prompt); completions count fully, and a label (one token) counts as much as
a short plan. The embedded base's tokenizer is learnt from the same rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from revelator.rows import Row, read_batches
from revelator.tasks import TASKS
from training.tokens import ends_prompts, tokenise

WIDTHS = (64, 96, 160, 288, 448)  # batches are padded to one of these: torch.compile makes one graph each
CLOSE_WIDTHS = tuple(range(32, WIDTHS[-1] + 1, 16))  # where nothing is compiled
PROMPT_WEIGHT = 0.1
LABEL_WEIGHT = 8.0
SHORT_DOCUMENTS = 0.5  # of the relevance rows
DOCUMENT = re.compile(r"(?<=^Document: ).+$", re.MULTILINE)
END, PAD = "<|end|>", "<|pad|>"


@dataclass(frozen=True)
class WeightedTokens:
    tokens: np.ndarray  # int16 ids
    weights: np.ndarray  # float32, same length; weight i is that of predicting token i


def draw_rows(folders: Sequence[Path], shares: Mapping[str, float], total: int, random: Random) -> list[Sequence[Row]]:
    """The training rows of each set, of a task no more than a mixture of `total` rows could take; which ones, chance
    decides. A set that is named twice is read once."""
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
            drawn = [shorten(r, random) if random.random() < SHORT_DOCUMENTS else r for r in pool[:want]]
            fitting = weigh_rows(drawn, tokenizer, WIDTHS[-1])
            if lost := len(drawn) - len(fitting):
                warn(f"{task}: {lost:,} of {len(drawn):,} rows are over {WIDTHS[-1]} tokens, left out")
            mixed += [fitting[i % len(fitting)] for i in range(want)]
    return mixed


def shorten(row: Row, random: Random) -> Row:
    """Cuts the document of a relevance row to 60-200 characters: matching names is learnt sooner on short ones."""
    document = DOCUMENT.search(row.prompt)
    if row.task != "relevance" or not document:
        return row
    cut = document[0][: random.randint(60, 200)]
    return replace(row, prompt=row.prompt.replace(document[0], cut))


def weigh_rows(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast, longest: int) -> list[WeightedTokens]:
    """Tokenises and weighs rows of prompt, completion and end token; rows over `longest` tokens are left out."""
    weighted = []
    prompt_weight = 0.0 if ends_prompts(tokenizer) else PROMPT_WEIGHT
    for row, tokens in zip(rows, tokenise(rows, tokenizer), strict=True):
        if len(tokens.input_ids) <= longest:
            weights = np.full(len(tokens.input_ids), LABEL_WEIGHT if row.label else 1.0, np.float32)
            weights[: tokens.prompt_length] = prompt_weight
            weighted.append(WeightedTokens(np.array(tokens.input_ids, np.int16), weights))
    return weighted


def batch_rows(
    rows: list[WeightedTokens], widths: tuple[int, ...], tokens: int, random: Random
) -> Iterator[list[WeightedTokens]]:
    """Yields endless batches of about `tokens` tokens, of rows that fit one of `widths`; each row once a round."""
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


def learn_tokenizer(rows: list[Row], random: Random) -> PreTrainedTokenizerFast:
    """Trains the embedded base's tokenizer on a sample of rows."""
    sample = random.sample(rows, min(len(rows), 60_000))
    labels = sorted({label for task in TASKS.values() for label in task.labels or ()})
    return train_tokenizer([row.prompt + row.completion for row in sample], words=labels)


def train_tokenizer(texts: Iterable[str], *, words: Iterable[str], size: int = 4096) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE tokenizer of `size` tokens. `words` (labels) are one token behind a space, as in " yes".

    Digits stand alone, so that years and counts are copied digit by digit; every byte has a token, so that no name in
    any script is unknown. There is no beginning token: a prompt tokenises the same alone and before its completion.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # A label that the merges split would lose its single token: its word is shown often enough to be merged whole.
    labels = [f": {word}" for word in words] * 20_000
    tokenizer.train_from_iterator([*texts, *labels], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, padding_side="left")
