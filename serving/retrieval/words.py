"""Text to terms, as BM25 counts them."""

from __future__ import annotations

import hashlib
import re
import threading
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

STOP_WORDS = frozenset(STOPWORDS_EN)
ASKING_WORDS = frozenset(
    "who whom whose what which when where why how did does do done has had have name".split()  # noqa: SIM905
)
_WORD = re.compile(r"\w+")
_STEMMER = Stemmer.Stemmer("english")
_STEMMER_LOCK = threading.Lock()  # a stemmer is not safe between threads


def extract_words(text: str) -> list[str]:
    """The words of a text: lower case, accents folded, English stop words left out, order kept."""
    folded = text.lower()
    if not folded.isascii():
        folded = "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))
    return [word for word in _WORD.findall(folded) if word not in STOP_WORDS]


def extract_terms(text: str) -> list[str]:
    """Stems of the words of a text."""
    return [_stem(word) for word in extract_words(text)]


def extract_query_words(query: str) -> dict[str, str]:
    """Distinct terms of a query, without the words that only make it a question, unless nothing else is left; with each
    the word that it is the stem of."""
    content = [_stem(word) for word in sorted(ASKING_WORDS)]
    found: dict[str, str] = {}
    for word in extract_words(query):
        found.setdefault(_stem(word), word)
    return {term: word for term, word in found.items() if term not in content} or found


def extract_query_terms(query: str) -> list[str]:
    return list(extract_query_words(query))


@lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    with _STEMMER_LOCK:
        return _STEMMER.stemWord(word)


def hash_word(text: str) -> int:
    """64 bits of BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "little")


def hash_words(words: Iterable[str]) -> np.ndarray:
    """The `hash_word` of each word, shape (n,), uint64."""
    return np.array([hash_word(word) for word in words], np.uint64)
