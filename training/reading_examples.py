"""From rows for reading to batches of windows: what the reader learns from, and what is held back as dev.

Dev is chosen by the hash of the article's title (of the passage where there is none), so that no article is read in
training and on dev, whichever set it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from revelator.errors import ConfigError, DataError
from revelator.files import sha256_text
from revelator.reading import LIST, NO, NONE, SPAN, YES, ReadingRow, ReadingTokenizer, Window, load_rows
from training.config import ReaderConfig

DEV_ONE_IN = 10  # articles
MOST_DEV_ROWS = 1_000  # of a file


@dataclass(frozen=True)
class Example:
    """A window and its labels: its kind, and the first and last tokens of its answers."""

    window: Window
    kind: int
    spans: tuple[tuple[int, int], ...] = ()


def read_train_and_dev(config: ReaderConfig) -> tuple[dict[str, list[ReadingRow]], dict[str, list[ReadingRow]]]:
    """Training and dev rows by the names of their files."""
    training: dict[str, list[ReadingRow]] = {}
    dev: dict[str, list[ReadingRow]] = {}
    for path in config.rows:
        name, rows = name_source(path), load_rows(path)
        if name in training:
            raise ConfigError(f"two files are called {name}", where="rows", hint="rename one: shares go by names")
        held = [row for row in rows if is_dev(row)]
        training[name] = [row for row in rows if not is_dev(row)]
        dev[name] = sorted(held, key=lambda row: sha256_text(row.id + row.question))[:MOST_DEV_ROWS]
        if not training[name]:
            raise DataError("every row of this file is of the dev part", where=str(path), hint="give more articles")
    if unknown := sorted(config.shares.keys() - training.keys()):
        message = f"shares of files that are not read: {', '.join(unknown)}"
        raise ConfigError(message, where="shares", hint=f"files: {', '.join(training)}")
    if not any(dev.values()):
        raise DataError("no row is of the dev part", where="rows", hint=f"give more articles: one in {DEV_ONE_IN} is")
    return training, dev


def name_source(path: Path) -> str:
    return path.name.partition(".")[0]


def is_dev(row: ReadingRow) -> bool:
    """Whether a row's article is on dev, as one in `DEV_ONE_IN` is."""
    article = " ".join((row.title or row.passage).casefold().split())
    return int(sha256_text(article)[:8], 16) % DEV_ONE_IN == 0


def make_examples(row: ReadingRow, tokenizer: ReadingTokenizer) -> list[Example]:
    """The windows of a row, with labels. A window without a complete answer is of kind `none`; every window of a yes/no
    row has its verdict."""
    examples = []
    for window in tokenizer.cut(row.question, row.title, row.passage):
        spans = tuple(filter(None, (find_tokens(window, answer.start, answer.end) for answer in row.answers)))
        if row.verdict:
            examples.append(Example(window, YES if row.verdict == "yes" else NO))
        elif not spans:
            examples.append(Example(window, NONE))
        else:
            examples.append(Example(window, LIST if row.is_list else SPAN, spans))
    return examples


def find_tokens(window: Window, start: int, end: int) -> tuple[int, int] | None:
    """First and last token, counted within the window, of characters `start` to `end`; None if it lacks a part."""
    offsets = window.offsets
    inside = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < end))
    if not len(inside) or offsets[0, 0] > start or offsets[-1, 1] < end:
        return None
    return window.first + int(inside[0]), window.first + int(inside[-1])


def draw_batches(
    sources: Sequence[tuple[float, Sequence[Example]]], tokens: int, random: Random
) -> Iterator[list[Example]]:
    """Batches without end, of similar lengths each; a source is drawn by its share, and used up before it comes again.

    A share counts windows: with shares of 1, a file of twice the windows is drawn twice as often."""
    weights = [share * len(examples) for share, examples in sources]
    waiting: list[list[Example]] = [[] for _ in sources]
    while True:
        pool = []
        for source in random.choices(range(len(sources)), weights, k=512):
            if not waiting[source]:
                waiting[source] = random.sample(list(sources[source][1]), len(sources[source][1]))
            pool.append(waiting[source].pop())
        batches: list[list[Example]] = [[]]
        for example in sorted(pool, key=lambda each: len(each.window.ids)):
            if batches[-1] and (len(batches[-1]) + 1) * len(example.window.ids) > tokens:
                batches.append([])
            batches[-1].append(example)
        random.shuffle(batches)
        yield from batches
