"""Rows for reading (`revelator.reading`) as questions of a set: each with its passage and a few others.

The split goes by article, so that none is read in training and measured on; a title's part before a colon is the
article ("Travel rules: Booking"), and the passage itself where there is no title. Rows come in the order of their
hashes: a `limit` takes some of every article. Rows without an answer are at most `ANSWERLESS` times as many as others.

No passage stands beside that of a question which several articles are asked ("Do you share my data?"): each answers it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from data_gen.config import SetConfig
from data_gen.leakage import KEPT_BACK, is_kept_back
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from data_gen.records import hash_fraction
from data_gen.sources.rows import ReadResult, SkippedRow
from data_gen.sources.single_step import make_single
from revelator.files import sha256_text
from revelator.fingerprints import hash_question
from revelator.reading import ReadingRow, load_rows
from revelator.rows import SPLITS

NEAR, FAR = 2, 2  # other passages of the article, and of other articles, that may stand beside a row's own
ANSWERLESS = 0.35  # with those of data_gen.read_examples a third of all: SQuAD has more without an answer than with one


def read_reading_rows(path: Path | str, config: SetConfig) -> Iterator[ReadResult]:
    """Single questions that teach `read` alone. A passage that does not answer has no other of its article beside it:
    that one may."""
    rows = sorted(load_rows(path), key=lambda row: sha256_text(f"{row.id}\n{row.question}\n{row.passage}"))
    reasons, counts, asked = [], Counter[bool](), dict[str, set[str]]()
    shelves = {split: _Shelf(asked) for split in SPLITS}
    for row in rows:
        reason = _find_reason_against(row, config.keep_back)
        if not reason and not row.is_answerable and counts[False] >= ANSWERLESS * counts[True]:
            reason = "more rows without an answer than are wanted"
        if not reason:
            shelves[choose_split(row, config)].add(row)
            counts[row.is_answerable] += 1
        reasons.append(reason)
    for row, reason in zip(rows, reasons, strict=True):
        if reason:
            yield SkippedRow(row.id, reason)
            continue
        split = choose_split(row, config)
        others = shelves[split].draw_others(row, Random(f"{config.seed}:{row.id}:{row.question}:passages"))
        yield _annotate(row, split, others, Path(path).name.partition(".")[0])


class _Shelf:
    """The passages of one split, pairs of title and text, by article. `asked` has the articles of each question, and is
    shared by the splits."""

    def __init__(self, asked: dict[str, set[str]]) -> None:
        self._passages: dict[str, dict[tuple[str, str], None]] = {}
        self._asked = asked

    def add(self, row: ReadingRow) -> None:
        article = find_article(row)
        self._passages.setdefault(article, {})[row.title, row.passage] = None
        self._asked.setdefault(hash_question(row.question), set()).add(article)

    def draw_others(self, row: ReadingRow, random: Random) -> list[tuple[str, str]]:
        article, articles = find_article(row), list(self._passages)
        if len(self._asked[hash_question(row.question)]) > 1:
            return []
        near = [passage for passage in self._passages[article] if passage != (row.title, row.passage)]
        near = random.sample(near, min(NEAR, len(near))) if row.is_answerable else []
        drawn = random.sample(articles, min(FAR + 1, len(articles)))
        return [*near, *[random.choice(list(self._passages[name])) for name in drawn if name != article][:FAR]]


def find_article(row: ReadingRow) -> str:
    return " ".join((row.title.partition(": ")[0] or row.passage).casefold().split())


def choose_split(row: ReadingRow, config: SetConfig) -> str:
    return config.split.choose(hash_fraction(f"split:{config.seed}:{find_article(row)}"))


def _find_reason_against(row: ReadingRow, keep_back: float) -> str:
    if not (row.question.strip() and row.passage.strip()):
        return "no question, or no passage"
    return KEPT_BACK if any(is_kept_back(text, keep_back) for text in (row.question, row.title) if text) else ""


def _annotate(row: ReadingRow, split: str, others: list[tuple[str, str]], source: str) -> AnnotatedQuestion:
    texts = (row.verdict,) if row.verdict else tuple(answer.text for answer in row.answers)
    passages = [AnnotatedPassage(row.title, row.passage, row.is_answerable)]
    passages += [AnnotatedPassage(title, text, False) for title, text in others]
    identity = f"{source}:{row.id or sha256_text(row.question + row.passage)[:12]}"
    known = len(texts) if row.is_list else 1
    question = make_single(identity, source, "own", row.question, texts, tuple(passages), known)
    return replace(question, split=split, tasks=("read",))
