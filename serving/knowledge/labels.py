"""Which node or relation of a graph a name stands for: labels in a SQLite file, found by text, by key or by words.

A key is the label as `fold_label` folds it: case, accents and punctuation do not tell entities apart unless the exact
text does. The file is read-only once it is built, and processes share it through the page cache.
"""

from __future__ import annotations

import sqlite3
import threading
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from serving.retrieval import STOP_WORDS

LabelKind = Literal["entity", "relation"]
CANDIDATES = 20
SHARED = 5  # letters at the beginning that make two words one: direct|or, direct|ed
THRESHOLD = 0.5


@dataclass(frozen=True, slots=True)
class Label:
    """A name of a node; `main` is the one that answers show, the others are aliases."""

    iri: str
    text: str
    kind: LabelKind = "entity"
    main: bool = True


def fold_label(text: str) -> str:
    """Case folded, accents removed, every run of other characters than letters and digits one space."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join(c if c.isalnum() else " " for c in folded if not unicodedata.combining(c))
    return " ".join(kept.split())


def write_labels(path: Path, labels: Iterable[Label]) -> int:
    """Makes the file and returns how many labels it holds."""
    connection = sqlite3.connect(path)
    try:
        connection.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE TABLE labels(id INTEGER PRIMARY KEY, iri TEXT, text TEXT, key TEXT, kind TEXT, main INTEGER);"
            "CREATE VIRTUAL TABLE words USING fts5(key, content='labels', content_rowid='id');"
        )
        rows = ((one.iri, one.text, fold_label(one.text), one.kind, int(one.main)) for one in labels)
        connection.executemany("INSERT INTO labels(iri, text, key, kind, main) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("CREATE INDEX by_key ON labels(key, kind)")
        connection.execute("INSERT INTO words(words) VALUES ('rebuild')")
        connection.commit()
        return connection.execute("SELECT count(*) FROM labels").fetchone()[0]
    finally:
        connection.close()


class LabelIndex:
    """The file of `write_labels`, read-only. Safe to share between threads: each has a connection of its own, for
    threads that wait for one hold Python's lock meanwhile."""

    def __init__(self, path: Path) -> None:
        self._uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        self._local = threading.local()
        self.relations = self._read("kind = 'relation' ORDER BY main DESC, id")  # with their aliases

    def find_entities(self, name: str) -> list[Label]:
        """Finds labels that equal the name, else those with the same key, else those with all of its words, shortest
        first."""
        key = fold_label(name)
        if not key:  # a film may be called "$"
            text = name.encode(errors="replace").decode()  # half a surrogate pair has no UTF-8
            return self._read(
                "key = '' AND kind = 'entity' AND text = ? ORDER BY main DESC, id LIMIT ?", text, CANDIDATES
            )
        same = self._read("key = ? AND kind = 'entity' ORDER BY main DESC, id LIMIT ?", key, 10 * CANDIDATES)
        if same:
            return ([label for label in same if label.text == name] or same)[:CANDIDATES]
        words = " ".join(f'"{word}"' for word in key.split())
        within = (
            "id IN (SELECT rowid FROM words WHERE words MATCH ?) AND kind = 'entity' ORDER BY length(key), id LIMIT ?"
        )
        return self._read(within, words, CANDIDATES)

    def find_relations(self, phrase: str) -> list[Label]:
        """The relations named exactly so, or else those of the best score of at least `THRESHOLD`; none when all are
        worse. The score is the share of word beginnings in common (Dice)."""
        key = fold_label(phrase)
        if exact := [label for label in self.relations if fold_label(label.text) == key]:
            return exact
        scored = [(compute_similarity(key, fold_label(label.text)), label) for label in self.relations]
        best = max((score for score, _ in scored), default=0.0)
        return [label for score, label in scored if score == best] if best >= THRESHOLD else []

    def _read(self, condition: str, *values: str | int) -> list[Label]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = sqlite3.connect(self._uri, uri=True)
        rows = connection.execute(f"SELECT iri, text, kind, main FROM labels WHERE {condition}", values)
        return [Label(iri, text, kind, bool(main)) for iri, text, kind, main in rows]


def compute_similarity(a: str, b: str) -> float:
    """Dice coefficient of two keys' words, stop words left out; words with the same beginning are one."""
    first, second = ([word for word in key.split() if word not in STOP_WORDS] or key.split() for key in (a, b))
    if not first or not second:
        return 0.0
    matched = sum(any(is_alike(word, other) for other in second) for word in first)
    return 2 * min(matched, len(second)) / (len(first) + len(second))


def is_alike(a: str, b: str) -> bool:
    """Equal words, or words that share their first `SHARED` letters or all but an `s`."""
    if a == b or a.removesuffix("s") == b.removesuffix("s"):
        return True
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))) >= SHARED
