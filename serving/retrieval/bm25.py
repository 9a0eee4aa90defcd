"""BM25 scores in files that processes share by memory map.

Scores are bm25s's (Lù 2024, "BM25S"; the Lucene variant of Robertson and Zaragoza's BM25): computed when the index is
built, summed when it is searched. A title counts `TITLE_WEIGHT` times, as if it stood that often before the text.

`write` lays out bm25s's own files (columns of a sparse matrix, one a term) from shards of the corpus, so that memory
holds the vocabulary and one shard, never the matrix. The vocabulary of a large corpus is the only part that bm25s would
copy into every process (a dictionary of strings): here a term is found by binary search in a memory-mapped array of
64-bit hashes instead.

Words of a query that no passage holds are read as the nearest that one holds: a name typed carelessly is found. Nearest
is by edits (optimal string alignment, by rapidfuzz: a letter more, less, other, or two exchanged). A word that MiniLM's
vocabulary lists is left as it is: it is spelled well, and the corpus does not say it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import bm25s
import numpy as np
from rapidfuzz.distance import OSA
from rapidfuzz.process import extract

from revelator.errors import DataError
from revelator.minilm import read_vocabulary
from serving.retrieval.index_folder import Shard, create_mapped
from serving.retrieval.words import extract_query_terms, extract_query_words, extract_terms, hash_words

K1 = 1.2  # saturation of repeats
B = 0.75  # weight of a passage's length
SPELLINGS = "words.txt"
LEAST = 3  # letters of a word that may be read as another
LONG = 8  # letters of a word in which two may be wrong
MOST = 8  # words that one is read as, where several are equally near


class BM25Scores:
    """The BM25 part of an index folder, memory-mapped. Safe to share between threads."""

    def __init__(self, folder: Path) -> None:
        self._bm25 = bm25s.BM25.load(folder, mmap=True, load_vocab=False)
        self._hashes = np.load(folder / "term_hashes.npy", mmap_mode="r")
        self._numbers = np.load(folder / "term_numbers.npy", mmap_mode="r")
        spellings = folder / SPELLINGS  # an earlier build wrote none
        self._spellings = spellings.open("rb") if spellings.exists() else None
        self.count = int(self._bm25.scores["num_docs"])

    def score(self, query: str) -> np.ndarray:
        """The score of every passage, shape (n,), float32; 0 where no term is shared."""
        numbers = self._find_term_numbers(extract_query_terms(query))
        if not len(numbers):
            return np.zeros(self.count, np.float32)
        return self._bm25.get_scores_from_ids(numbers)

    def respell(self, query: str, readable: np.ndarray | None = None) -> dict[str, list[str]]:
        """The words of a query that no passage holds, with those that they may be meant for. Of a mask of `readable`
        passages no others count: what only they say is neither known nor offered."""
        words = extract_query_words(query)
        places, known = self._find_terms(list(words))
        if readable is not None:
            known &= np.array([self._is_said(place, readable) for place in places], bool)
        unknown = [word for word, is_known in zip(words.values(), known, strict=True) if not is_known]
        return {word: near for word in unknown if (near := self._find_nearest(word, readable))}

    def _is_said(self, place: int, readable: np.ndarray) -> bool:
        """Whether a readable passage holds the term that stands at a place."""
        number = self._numbers[place]
        first, end = self._bm25.scores["indptr"][number : number + 2]
        return bool(readable[self._bm25.scores["indices"][first:end]].any())

    @cached_property
    def _words(self) -> list[str]:
        """The words of the index, read when the first query holds one that it lacks."""
        if self._spellings is None:
            return []
        number = self._spellings.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode().split()

    def _find_nearest(self, word: str, readable: np.ndarray | None) -> list[str]:
        """The words that `word`, which is none of them, may be meant for: those with the fewest edits."""
        if len(word) < LEAST or not word.isalpha() or word in read_vocabulary():
            return []
        edits = 1 if len(word) < LONG else 2
        most = MOST if readable is None else None
        found = extract(word, self._words, scorer=OSA.distance, score_cutoff=edits, limit=most)
        if readable is not None:
            places, _ = self._find_terms([term for near, _, _ in found for term in extract_terms(near)])
            found = [one for one, place in zip(found, places, strict=True) if self._is_said(place, readable)]
        return [near for near, distance, _ in found if distance == found[0][1]][:MOST]

    def _find_term_numbers(self, words: list[str]) -> np.ndarray:
        places, known = self._find_terms(words)
        return np.asarray(self._numbers[places[known]])

    def _find_terms(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Where each term stands in the index, and whether it does."""
        wanted = hash_words(words)
        places = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        return places, self._hashes[places] == wanted


def write(stage: Path, shards: Iterable[Shard]) -> int:
    """Scores and vocabulary of all shards, in the corpus's order, into `stage`; returns the number of terms."""
    shards = list(shards)
    vocabulary, numbers = _number_terms(shards)
    if not vocabulary:
        raise DataError("no passage holds a word that can be searched")
    frequencies, lengths = np.zeros(len(vocabulary), np.int64), []
    for shard, global_number in zip(shards, numbers, strict=True):
        _, words, _ = _count_terms(shard, global_number)
        frequencies += np.bincount(words, minlength=len(vocabulary))
        lengths.append(shard.read("lengths"))
    count, mean = sum(map(len, lengths)), float(np.concatenate(lengths).mean())
    idf = np.log(1 + (count - frequencies + 0.5) / (frequencies + 0.5))
    _write_parameters(stage, count)
    _write_columns(stage, shards, numbers, frequencies, idf, mean)
    _write_vocabulary(stage, vocabulary)
    _write_spellings(stage, {word for shard in shards for word in json.loads(shard.read("spellings").tobytes())})
    return len(vocabulary)


def _write_parameters(stage: Path, count: int) -> None:
    """bm25s's own description of an index, from one of a single term; the columns then take the place of its arrays."""
    bm25 = bm25s.BM25(k1=K1, b=B, method="lucene")
    bm25.scores = bm25.build_index_from_ids([0], [[0]], show_progress=False) | {"num_docs": count}
    bm25.vocab_dict = {}
    bm25.save(stage, show_progress=False)
    (stage / "vocab.index.json").unlink()


def _number_terms(shards: list[Shard]) -> tuple[dict[str, int], list[np.ndarray]]:
    """Terms in order of first use, and for each shard the number of each of its own terms."""
    vocabulary: dict[str, int] = {}
    numbers = []
    for shard in shards:
        own = [vocabulary.setdefault(word, len(vocabulary)) for word in json.loads(shard.read("vocabulary").tobytes())]
        numbers.append(np.array(own, np.int64))
    return vocabulary, numbers


def _count_terms(shard: Shard, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(passage in the shard, term, how often), by term and then passage: each pair once."""
    lengths, words = shard.read("lengths"), shard.read("words")
    passages = np.repeat(np.arange(len(lengths)), lengths)
    pairs, times = np.unique(numbers[words] * len(lengths) + passages, return_counts=True)
    return pairs % len(lengths), pairs // len(lengths), times


def _write_columns(
    stage: Path,
    shards: list[Shard],
    numbers: list[np.ndarray],
    frequencies: np.ndarray,
    idf: np.ndarray,
    mean: float,
) -> None:
    starts = np.concatenate([[0], np.cumsum(frequencies)])
    np.save(stage / "indptr.csc.index.npy", starts)
    data = create_mapped(stage / "data.csc.index.npy", np.float32, (int(starts[-1]),))
    indices = create_mapped(stage / "indices.csc.index.npy", np.int32, (int(starts[-1]),))
    filled, first = starts[:-1].copy(), 0
    for shard, global_number in zip(shards, numbers, strict=True):
        passages, words, times = _count_terms(shard, global_number)
        lengths = shard.read("lengths")
        here = np.bincount(words, minlength=len(frequencies))
        rank = np.arange(len(words)) - (np.cumsum(here) - here)[words]
        places = filled[words] + rank
        damping = K1 * ((1 - B) + B * lengths[passages] / mean)
        data[places] = idf[words].astype(np.float32) * (times / (damping + times))
        indices[places] = first + passages
        filled += here
        first += len(lengths)


def _write_vocabulary(stage: Path, vocabulary: dict[str, int]) -> None:
    """Two arrays: the hashes of all terms in rising order, and beside each the term's number."""
    found = hash_words(vocabulary)
    order = np.argsort(found)
    if len(np.unique(found)) < len(found):
        raise DataError("two terms of this corpus have the same 64-bit hash", hint="leave one passage out")
    np.save(stage / "term_hashes.npy", found[order])
    np.save(stage / "term_numbers.npy", order.astype(np.int32))


def _write_spellings(folder: Path, words: Iterable[str]) -> None:
    """Writes the words of an index. A number, or a name with one, is never meant for another."""
    kept = sorted(word for word in words if word.isalpha() and len(word) >= LEAST - 1)
    (folder / SPELLINGS).write_text("".join(f"{word}\n" for word in kept), encoding="utf-8")
