"""Reading: rows of question, passage and answers; passages as windows of tokens; a model's scores as answers.

A reader gives each token of a window five scores (it starts the answer, it ends it, and the tags O, B and I of one of
several answers) and each window one score for each of `ANSWER_KINDS`. Windows, decoding and calibration are the same in
training and serving; only the network behind `Forward` differs. Offsets are characters of the passage as it was given.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from revelator.errors import ArtifactError, DataError
from revelator.folders import FolderKind
from revelator.minilm import DIGESTS, WEIGHTS
from revelator.row_files import read_objects
from revelator.sentences import find_ends, is_punctuation

ANSWER_KINDS = ("span", "list", "yes", "no", "none")
SPAN, LIST, YES, NO, NONE = range(len(ANSWER_KINDS))
START, END, OUTSIDE, BEGIN, INSIDE = range(5)  # columns of a token's scores
CLS, SEP, PAD = 101, 102, 0
WINDOW_TOKENS = 384
STRIDE = 192  # tokens of the passage from the start of a window to that of the next
MOST_QUESTION_TOKENS = 64
MOST_TITLE_TOKENS = 24
MOST_ANSWER_TOKENS = 64
MOST_WINDOWS = 32  # of one question that pass through the network at most
PADDED = 1.15  # the longest window of a batch over its shortest
MOST_BATCH_TOKENS = 8192  # of the windows that pass through the network at once, padding included

Forward = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Ids, mask and types, (windows, tokens) int64 each → scores (windows, tokens, 5) and kinds (windows, 5)."""


# Rows


class Answer(NamedTuple):
    text: str
    start: int  # in characters of the passage

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class ReadingRow:
    """A question and a passage. `answers` are other ways to say one answer, or with `is_list` the items of a list;
    there are none where the passage does not say. `verdict` is `yes` or `no` where that is the answer."""

    id: str
    question: str
    passage: str
    title: str = ""
    answers: tuple[Answer, ...] = ()
    is_list: bool = False
    verdict: str = ""

    @property
    def is_answerable(self) -> bool:
        return bool(self.answers or self.verdict)

    def to_json(self) -> str:
        value: dict[str, Any] = {"id": self.id, "title": self.title, "question": self.question, "passage": self.passage}
        value["answers"] = [{"text": answer.text, "start": answer.start} for answer in self.answers]
        extra = {"all_of": self.is_list, "verdict": self.verdict}
        return json.dumps(value | {name: given for name, given in extra.items() if given}, ensure_ascii=False)


def load_rows(path: Path | str) -> list[ReadingRow]:
    """The rows of a file or an address (`revelator.row_files`). Raises DataError with the line that holds none."""
    rows = [_make_row(value, f"{path}, line {number}") for number, value in read_objects(str(path))]
    if not rows:
        raise DataError("there is no row in this file", where=str(path), hint="give JSON lines")
    return rows


def _make_row(value: dict[str, Any], where: str) -> ReadingRow:
    try:
        answers = tuple(Answer(answer["text"], answer["start"]) for answer in value["answers"])
        row = ReadingRow(
            id=str(value.get("id", "")),
            question=value["question"],
            passage=value["passage"],
            title=value.get("title", ""),
            answers=answers,
            is_list=value.get("all_of", False),
            verdict=value.get("verdict", ""),
        )
        wrong = [
            answer for answer in answers if not answer.text or row.passage[answer.start : answer.end] != answer.text
        ]
        if not all(isinstance(text, str) for text in (row.question, row.passage, row.title)):
            raise TypeError("question, passage and title must be text")
    except (KeyError, TypeError) as error:
        hint = "a row has question, passage and answers, each answer with text and start"
        raise DataError(f"not a row for reading: {error!r}", where=where, hint=hint) from error
    if wrong or row.verdict not in ("", "yes", "no"):
        reason = f"the passage does not say {wrong[0].text!r:.60} at its start" if wrong else "verdict is yes or no"
        raise DataError(reason, where=where, hint="`start` counts characters of the passage")
    return row


# Windows


@dataclass(frozen=True, slots=True)
class Window:
    """A question and a part of a passage. `offsets` (tokens, 2): where each of the passage's tokens stands in its text;
    `continues` (tokens,): whether it goes on with the word of the token before; `first` is the window's token at which
    they begin."""

    ids: np.ndarray
    types: np.ndarray
    offsets: np.ndarray
    continues: np.ndarray
    first: int


class ReadingTokenizer:
    """MiniLM's tokenizer, whose offsets lead back to the text. Windows are at most `size` tokens long, and each begins
    `stride` of the passage's tokens after the one before it."""

    def __init__(self, path: Path, size: int = WINDOW_TOKENS, stride: int = STRIDE) -> None:
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        count = self._tokenizer.get_vocab_size()
        tokens = [self._tokenizer.id_to_token(i) or "" for i in range(count)]
        self._continues = np.array([token.startswith("##") for token in tokens])
        self.size = size
        self.stride = stride

    def encode(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Ids (tokens,) and offsets (tokens, 2). A lone surrogate, which is no character, is read as `?`."""
        whole = text.encode(errors="replace").decode()
        [found] = self._tokenizer.encode_batch([whole], add_special_tokens=False)  # encode would hold up all threads
        return np.array(found.ids, np.int64), np.array(found.offsets, np.int64).reshape(-1, 2)

    def cut(self, question: str, title: str, passage: str) -> list[Window]:
        """The windows of a passage; every token stands in one. An empty passage is one window without tokens."""
        asked, named = self.encode(question)[0][:MOST_QUESTION_TOKENS], self.encode(title)[0][:MOST_TITLE_TOKENS]
        ids, offsets = self.encode(passage)
        head = np.concatenate([[CLS], asked, [SEP], named, [SEP] if len(named) else []]).astype(np.int64)
        room = self.size - len(head) - 1
        windows = []
        for start in range(0, max(len(ids), 1), self.stride):
            part = ids[start : start + room]
            whole = np.concatenate([head, part, [SEP]]).astype(np.int64)
            types = (np.arange(len(whole)) >= len(asked) + 2).astype(np.int64)
            continues = self._continues[part]
            continues[:1] = False
            windows.append(Window(whole, types, offsets[start : start + room], continues, len(head)))
            if start + room >= len(ids):
                break
        return windows


def choose_windows(windows: Sequence[Window], most: int = MOST_WINDOWS) -> list[int]:
    """Indices, in order, of at most `most` windows of one question: those whose title and passage share most tokens
    with the question; rarer tokens count more, ties go to the earlier window."""
    if len(windows) <= most:
        return list(range(len(windows)))
    asked = np.unique(windows[0].ids[windows[0].types == 0][1:-1])
    holds = np.stack([np.isin(asked, window.ids[window.types == 1]) for window in windows])
    weights = np.log(len(windows) / np.maximum(holds.sum(0), 1))
    return sorted(np.argsort(-(holds @ weights), kind="stable")[:most].tolist())


def pad_windows(windows: Sequence[Window]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, mask and types of a batch, (windows, tokens) int64 each, padded on the right."""
    ids = np.full((len(windows), max(len(window.ids) for window in windows)), PAD, np.int64)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for row, window in enumerate(windows):
        ids[row, : len(window.ids)], mask[row, : len(window.ids)] = window.ids, 1
        types[row, : len(window.types)] = window.types
    return ids, mask, types


def batch_by_length(lengths: Sequence[int], tokens: int = MOST_BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices in batches of similar length, each of at most `tokens` with its padding (or one longer window). Padding
    costs what tokens do: the rows of a table beside whole passages took twice the time in one batch."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and ((len(batch) + 1) * lengths[index] > tokens or lengths[index] > PADDED * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


# Answers


@dataclass(frozen=True, slots=True)
class Calibration:
    """P(the passage answers) = 1 / (1 + exp(-(weight · margin + bias))) of a window's margin: how far the scores of the
    kinds of answers stand above that of no answer. Fitted on dev."""

    weight: float = 1.0
    bias: float = 0.0

    def estimate(self, margin: float) -> float:
        x = self.weight * margin + self.bias
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, x))))


@dataclass(frozen=True, slots=True)
class FoundSpan:
    """A span of passage number `passage`, in characters."""

    text: str
    start: int
    end: int
    passage: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reader makes of a question and its passages: the best answer, and the probability that they give one.

    `spans` hold the answer, or for `yes` and `no` what speaks for it; they are empty where no passage has a token.
    """

    kind: str
    spans: tuple[FoundSpan, ...]
    probability: float
    margin: float = -50.0

    @property
    def answers(self) -> tuple[str, ...]:
        if self.kind in ("yes", "no"):
            return (self.kind,)
        return tuple(dict.fromkeys(span.text for span in self.spans))


NO_ANSWER = Reading("none", (), 0.0)


class Reader:
    """A network with its tokenizer and calibration. It holds no state, so threads may share it."""

    def __init__(self, tokenizer: ReadingTokenizer, forward: Forward, calibration: Calibration) -> None:
        self.tokenizer = tokenizer
        self.forward = forward
        self.calibration = calibration

    def read(self, question: str, passages: Sequence[tuple[str, str]]) -> Reading:
        """The best answer of the passages, which are pairs of title and text. Reads at most `MOST_WINDOWS` windows of a
        question, over all its passages; `choose_windows` chooses them."""
        return self.read_all([(question, passages)])[0]

    def read_all(self, requests: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> list[Reading]:
        """`read` of many questions, batched over all of them."""
        places, windows = [], []
        for number, (question, passages) in enumerate(requests):
            own = [
                (index, window)
                for index, (title, text) in enumerate(passages)
                for window in self.tokenizer.cut(question, title, text)
            ]
            for chosen in choose_windows([window for _, window in own]):
                index, window = own[chosen]
                places.append((number, index))
                windows.append(window)
        titles = [[title for title, _ in passages] for _, passages in requests]
        outcomes: list[list[Reading]] = [[] for _ in requests]
        for batch in batch_by_length([len(window.ids) for window in windows]):
            scores, kinds = self.forward(*pad_windows([windows[i] for i in batch]))
            for row, i in enumerate(batch):
                number, index = places[i]
                text = requests[number][1][index][1]
                found = decode_window(windows[i], scores[row], kinds[row], text, index, self.calibration)
                outcomes[number].append(found)
        return [_choose_best(found, own) for found, own in zip(outcomes, titles, strict=True)]


def decode_window(
    window: Window, scores: np.ndarray, kinds: np.ndarray, text: str, passage: int, calibration: Calibration
) -> Reading:
    """The answer of one window, in whole words that are not marks of punctuation alone. A single span lies within one
    sentence; list items may be anywhere in the window. Raises ArtifactError for scores that are no numbers: the weights
    are damaged."""
    count = len(window.offsets)
    if not (np.isfinite(kinds).all() and np.isfinite(scores[: window.first + count]).all()):
        raise ArtifactError("the reader's scores are no numbers", hint="train it again: its weights are damaged")
    if not count:
        return NO_ANSWER
    kind = ANSWER_KINDS[int(np.argmax(kinds[:NONE]))]
    inner = scores[window.first : window.first + count].astype(np.float64)
    is_word = [not is_punctuation(text[start:end]) for start, end in window.offsets]
    words_before = np.concatenate([[0], np.cumsum(is_word)])
    ends_inside = np.append(window.continues[1:], False)
    starts, ends = (
        np.where(ruled_out, -np.inf, inner[:, column])
        for ruled_out, column in ((window.continues, START), (ends_inside, END))
    )
    begin, stop = int(window.offsets[0, 0]), int(window.offsets[-1, 1])
    sentences = np.searchsorted(find_ends(text, begin, stop), window.offsets[:, 0], side="right")
    margin = float(np.logaddexp.reduce(kinds[:NONE].astype(np.float64)) - kinds[NONE])
    spans = _find_best_span(starts, ends, sentences, words_before)
    if kind == "list":
        words = np.flatnonzero(~window.continues)
        lasts = np.append(words[1:], count) - 1
        tags = np.where(window.continues[:, None], inner[:, [OUTSIDE, INSIDE, INSIDE]], inner[:, OUTSIDE:])
        tags = np.add.reduceat(tags, words)  # what goes on with a word that begins an item is inside of it
        items = [(int(words[a]), int(lasts[b])) for a, b in find_tagged_spans(tags)]
        spans = [(a, b) for a, b in items if words_before[b + 1] > words_before[a]] or spans
    if not spans:
        return NO_ANSWER
    found = _leave_out_parts(_to_span(window, text, passage, a, b) for a, b in spans)
    return Reading(kind, found, calibration.estimate(margin), margin)


def _find_best_span(
    starts: np.ndarray, ends: np.ndarray, sentences: np.ndarray, words_before: np.ndarray
) -> list[tuple[int, int]]:
    """First and last token of the span with the highest sum of scores that lies in one sentence and holds a word; []
    where none does."""
    spans, best = list[tuple[int, int]](), -math.inf
    for more in range(min(MOST_ANSWER_TOKENS, len(starts))):
        room = len(starts) - more
        is_whole = (sentences[:room] == sentences[more:]) & (words_before[more + 1 :] > words_before[:room])
        sums = np.where(is_whole, starts[:room] + ends[more:], -np.inf)
        place = int(sums.argmax())
        if sums[place] > best:
            spans, best = [(place, place + more)], sums[place]
    return spans


def find_tagged_spans(tags: np.ndarray) -> list[tuple[int, int]]:
    """First and last word of each item, by the scores (words, 3) of the tags O, B and I. An item starts at a B, or at
    an I that follows no item; I continues it."""
    spans: list[tuple[int, int]] = []
    best = tags.argmax(1)
    for place, tag in enumerate(best):
        is_open = bool(spans) and spans[-1][1] == place - 1
        if tag == BEGIN - OUTSIDE or (tag == INSIDE - OUTSIDE and not is_open):
            spans.append((place, place))
        elif tag == INSIDE - OUTSIDE:
            spans[-1] = (spans[-1][0], place)
    return spans


def _leave_out_parts(spans: Iterable[FoundSpan]) -> tuple[FoundSpan, ...]:
    """The items of a list without those that are whole words of another one: "Rara" beside "Beko Rara"."""
    found = list(spans)
    padded = [f" {' '.join(span.text.split())} " for span in found]
    kept = [own for own in padded if not any(own in other and own != other for other in padded)]
    return tuple(span for span, own in zip(found, padded, strict=True) if own in kept)


def _to_span(window: Window, text: str, passage: int, first: int, last: int) -> FoundSpan:
    start, end = int(window.offsets[first, 0]), int(window.offsets[last, 1])
    return FoundSpan(text[start:end], start, end, passage)


def _choose_best(outcomes: Sequence[Reading], titles: Sequence[str]) -> Reading:
    """The likeliest window. A list also takes the items of the other list windows with a probability of at least 0.5
    that are of its passage, or of one with the same title: a long list is cut into several passages."""
    best = max(outcomes, key=lambda outcome: outcome.probability, default=NO_ANSWER)
    if best.kind != "list":
        return best
    here = best.spans[0].passage
    of_list = [place for place, title in enumerate(titles) if place == here or (title and title == titles[here])]
    lists = [o for o in outcomes if o.kind == "list" and o.spans[0].passage in of_list and o.probability >= 0.5]
    found = {span for outcome in [best, *lists] for span in outcome.spans}
    spans = sorted(found, key=lambda span: (span.passage, span.start))
    return Reading("list", _leave_out_parts(spans), best.probability, best.margin)


# A trained reader's folder


READER = FolderKind("a reader", "revelator-reader-1", "revelator train reader --rows FILE")
READER_WEIGHTS = "reader.safetensors"


def open_folder(folder: Path) -> Calibration:
    """Verifies a reader's folder, and returns its calibration. Raises ArtifactError where files are missing, changed,
    or belong to other weights of MiniLM."""
    manifest, hint = READER.read_manifest(folder, verify=True), "train it again, or fetch it again"
    try:
        calibration = Calibration(**manifest["calibration"])
        is_sound, minilm = math.isfinite(calibration.weight + calibration.bias), manifest["minilm"]
    except (KeyError, TypeError) as error:
        reason = f"the manifest of a reader is not whole: {error!r}"
        raise ArtifactError(reason, where=str(folder), hint=hint) from error
    if not is_sound:
        raise ArtifactError("the calibration holds numbers that are none", where=str(folder), hint=hint)
    if minilm != DIGESTS[WEIGHTS]:
        raise ArtifactError("the reader is of another MiniLM", where=str(folder), hint=hint)
    return calibration
