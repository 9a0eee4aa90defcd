"""What pre-training reads: task rows of instruction sets, running text and copying drills, as token rows with weights.

A row is (tokens, weights): the loss of each token counts with its weight. Prompts count a little, so that questions are
learnt as language; completions count fully, and a label (one token) counts as much as a short plan.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as parquet
from transformers import PreTrainedTokenizerFast

PROMPT_WEIGHT = 0.1
LABEL_WEIGHT = 8.0
TEXT_WEIGHT = 0.5
DOCUMENT = re.compile(r"(?<=^Document: ).+$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    tokens: np.ndarray  # int16 ids
    weights: np.ndarray  # float32, same length; weight i is that of predicting token i


@dataclass(frozen=True)
class Example:
    task: str
    prompt: str
    completion: str
    label: str


def read_set(folder: Path, split: str) -> list[Example]:
    """The rows of one split of an instruction set."""
    table = parquet.read_table(folder / f"{split}.parquet", columns=["task", "prompt", "completion", "label"])
    return [Example(**row) for row in table.to_pylist()]


def read_articles(path: Path) -> Iterator[tuple[str, str]]:
    """(title, text) of a JSONL corpus, gzip or not, tokenised punctuation joined to its word."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            article = json.loads(line)
            yield article["title"], _joined(article["text"])


def _joined(text: str) -> str:
    for mark in (" ,", " .", " ;", " :", " ?", " !", " )", " 's"):
        text = text.replace(mark, mark[1:])
    return text.replace("( ", "(")


def shortened(example: Example, random: Random) -> Example:
    """A relevance example whose document is cut to 60-200 characters: matching names is learnt sooner on short ones."""
    document = DOCUMENT.search(example.prompt)
    if example.task != "relevance" or not document:
        return example
    cut = document[0][: random.randint(60, 200)]
    return replace(example, prompt=example.prompt.replace(document[0], cut))


def task_rows(examples: list[Example], tokenizer: PreTrainedTokenizerFast, longest: int) -> list[Row]:
    """Rows of prompt + completion + end token; rows over `longest` tokens are left out."""
    prompts = tokenizer([e.prompt for e in examples], add_special_tokens=False)["input_ids"]
    completions = tokenizer([e.completion for e in examples], add_special_tokens=False)["input_ids"]
    rows = []
    for example, prompt, completion in zip(examples, prompts, completions, strict=True):
        tokens = [*prompt, *completion, tokenizer.eos_token_id]
        if len(tokens) <= longest:
            weight = LABEL_WEIGHT if example.label else 1.0
            weights = [PROMPT_WEIGHT] * len(prompt) + [weight] * (len(tokens) - len(prompt))
            rows.append(Row(np.array(tokens, np.int16), np.array(weights, np.float32)))
    return rows


def text_rows(texts: list[str], tokenizer: PreTrainedTokenizerFast, longest: int) -> list[Row]:
    """Rows of running text, cut at `longest`."""
    ids = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=longest)["input_ids"]
    return [Row(np.array(i, np.int16), np.full(len(i), TEXT_WEIGHT, np.float32)) for i in ids if len(i) > 8]


def copy_rows(titles: list[str], count: int, tokenizer: PreTrainedTokenizerFast, random: Random) -> list[Row]:
    """Drills: two to five titles, then one to all of them again; only the second half counts."""
    rows = []
    for _ in range(count):
        names = random.sample(titles, random.randint(2, 5))
        again = random.sample(names, random.randint(1, len(names)))
        first = tokenizer(f"Question: {', '.join(names)}\nPlan:", add_special_tokens=False)["input_ids"]
        second = tokenizer(f" {' + '.join(again)}", add_special_tokens=False)["input_ids"]
        tokens = [*first, *second, tokenizer.eos_token_id]
        weights = [0.0] * (len(first) + 1) + [1.0] * (len(second))
        rows.append(Row(np.array(tokens, np.int16), np.array(weights, np.float32)))
    return rows


def batches(rows: list[Row], widths: tuple[int, ...], tokens: int, random: Random) -> Iterator[list[Row]]:
    """Endless batches of about `tokens` tokens, each of rows that fit one of `widths`; every row once a round."""
    while True:
        order = random.sample(range(len(rows)), len(rows))
        waiting: dict[int, list[Row]] = {width: [] for width in widths}
        for index in order:
            row = rows[index]
            width = next(w for w in widths if len(row.tokens) <= w)
            waiting[width].append(row)
            if len(waiting[width]) == tokens // width:
                yield waiting[width]
                waiting[width] = []
