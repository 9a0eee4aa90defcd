"""BM25 over an index folder that processes share by memory map: build, open, search.

Scores are bm25s's (Lù 2024, "BM25S"; the Lucene variant of Robertson and Zaragoza's BM25): computed when the index is
built, summed when it is searched. A title counts `title_weight` times, as if it stood that often before the text.

The vocabulary of a large corpus is the only part that bm25s would copy into every process (a dictionary of strings).
Here a term is found by binary search in a memory-mapped array of 64-bit hashes instead.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import Stemmer
from bm25s.stopwords import STOPWORDS_EN
from rich.progress import Progress, TaskID

from revelator import durable
from revelator.errors import ArtifactError, DataError, InvalidRequest
from revelator.trace import Passage
from serving.passages import PassageStore, PassageWriter, detokenize, read_corpus

FORMAT = "revelator-bm25-1"
STOP_WORDS = frozenset(STOPWORDS_EN)
ASKING_WORDS = frozenset(
    "who whom whose what which when where why how did does do done has had have name".split()  # noqa: SIM905
)
_WORD = re.compile(r"\w+")
_STEMMER = Stemmer.Stemmer("english")
_STEMMER_LOCK = threading.Lock()  # a stemmer is not safe between threads


@dataclass(frozen=True)
class IndexSettings:
    """How passages become terms and scores. `k1` and `b` as in BM25; `title_weight`: how often the title is counted."""

    k1: float = 1.2
    b: float = 0.75
    title_weight: int = 2
    detokenize: bool = False


_DEFAULTS = IndexSettings()


def terms(text: str) -> list[str]:
    """Stems of the words of a text: lower case, accents folded, English stop words left out, order kept."""
    folded = text.lower()
    if not folded.isascii():
        folded = "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))
    return [_stem(word) for word in _WORD.findall(folded) if word not in STOP_WORDS]


def query_terms(query: str) -> list[str]:
    """Distinct terms of a query, without the words that only make it a question, unless nothing else is left."""
    content = [_stem(word) for word in sorted(ASKING_WORDS)]
    found = list(dict.fromkeys(terms(query)))
    return [term for term in found if term not in content] or found


@lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    with _STEMMER_LOCK:
        return _STEMMER.stemWord(word)


def build_index(
    corpora: Sequence[Path], out: Path, settings: IndexSettings = _DEFAULTS, *, progress: Progress | None = None
) -> dict[str, Any]:
    """Indexes the passages of `corpora` into the folder `out`, whole or not at all, and returns its manifest.

    The same corpora and settings give the same bytes. Raises DataError for a broken line, an id that is used twice,
    or no passage at all; ArtifactError when `out` exists and is not an index.
    """
    if out.exists() and not _is_index(out):  # sets and worlds have a manifest.json too
        raise ArtifactError("exists and is not an index", where=str(out), hint="name a new folder")
    progress = progress or Progress(disable=True)
    with durable.staged_folder(out) as stage:
        ids, vocabulary = _read_all(corpora, stage, settings, progress)
        _write_scores(stage, ids, len(vocabulary), settings, progress)
        _write_vocabulary(stage, vocabulary)
        manifest = {
            "format": FORMAT,
            "count": len(ids),
            "terms": len(vocabulary),
            "corpora": [{"name": path.name, "sha256": durable.sha256_file(path)} for path in corpora],
            "settings": asdict(settings),
            "files": durable.sha256_folder(stage),
            "sizes": {path.name: path.stat().st_size for path in sorted(stage.iterdir())},
        }
        durable.write_json(stage / "manifest.json", manifest)
    return manifest


def _is_index(folder: Path) -> bool:
    try:
        form = json.loads((folder / "manifest.json").read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return str(form).startswith(FORMAT.rstrip("0123456789"))


def _read_all(
    corpora: Sequence[Path], stage: Path, settings: IndexSettings, progress: Progress
) -> tuple[list[list[int]], dict[str, int]]:
    """Term numbers of each passage, and the number of each term; fills the passage store on the way."""
    vocabulary: dict[str, int] = {}
    ids: list[list[int]] = []
    seen: dict[str, str] = {}
    with PassageWriter(stage) as writer:
        for path in corpora:
            if not path.is_file():
                raise DataError("no such corpus", where=str(path))
            task = progress.add_task(f"reading {path.name}", total=path.stat().st_size)
            advance = partial(_advance, progress, task)
            for line, passage in read_corpus(path, progress=advance):
                where = f"{path}:{line}"
                if passage.id in seen:
                    raise DataError(f"id {passage.id!r} was used already at {seen[passage.id]}", where=where)
                seen[passage.id] = where
                passage = _readable(passage) if settings.detokenize else passage
                writer.add(passage)
                words = terms(passage.title) * settings.title_weight + terms(passage.text)
                ids.append([vocabulary.setdefault(word, len(vocabulary)) for word in words])
    if not ids:
        raise DataError("no passage in the corpus", where=", ".join(map(str, corpora)))
    if not vocabulary:
        raise DataError("no passage holds a word that can be searched", where=", ".join(map(str, corpora)))
    return ids, vocabulary


def _advance(progress: Progress, task: TaskID, done: int) -> None:
    progress.update(task, completed=done)


def _readable(passage: Passage) -> Passage:
    return replace(passage, title=detokenize(passage.title), text=detokenize(passage.text))


def _write_scores(stage: Path, ids: list[list[int]], count: int, settings: IndexSettings, progress: Progress) -> None:
    task = progress.add_task("scoring", total=None)
    bm25 = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
    bm25.scores = bm25.build_index_from_ids(list(range(count)), ids, show_progress=False)
    bm25.vocab_dict = {}
    bm25.save(stage, show_progress=False)
    (stage / "vocab.index.json").unlink()
    progress.update(task, total=1, completed=1)


def _write_vocabulary(stage: Path, vocabulary: dict[str, int]) -> None:
    """Two arrays: the hashes of all terms in rising order, and beside each the term's number."""
    hashes = _hashes(vocabulary)
    order = np.argsort(hashes)
    if len(np.unique(hashes)) < len(hashes):
        raise DataError("two terms of this corpus have the same 64-bit hash", hint="leave one passage out")
    np.save(stage / "term_hashes.npy", hashes[order])
    np.save(stage / "term_numbers.npy", order.astype(np.int32))


def _hashes(words: Iterable[str]) -> np.ndarray:
    digests = b"".join(hashlib.blake2b(w.encode(errors="replace"), digest_size=8).digest() for w in words)
    return np.frombuffer(digests, dtype="<u8")


class BM25Index:
    """An index folder, memory-mapped. Safe to share between threads."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.passages = PassageStore(folder)
        self._bm25 = bm25s.BM25.load(folder, mmap=True, load_vocab=False)
        self._hashes = np.load(folder / "term_hashes.npy", mmap_mode="r")
        self._numbers = np.load(folder / "term_numbers.npy", mmap_mode="r")

    @classmethod
    def open(cls, folder: Path) -> BM25Index:
        """Opens a folder that `build_index` made. ArtifactError names the file that is missing or has another size."""
        manifest = read_manifest(folder)
        try:
            return cls(folder, manifest)
        except (OSError, ValueError, KeyError) as error:
            hint = f"see which file is damaged: revelator index info {folder} --verify"
            raise ArtifactError(f"cannot be read: {error}", where=str(folder), hint=hint) from error

    def __len__(self) -> int:
        return len(self.passages)

    def search(self, query: str, k: int) -> list[Passage]:
        """At most `k` passages that share a term with the query, best first; equal scores in the corpus's order."""
        if k < 1:
            raise InvalidRequest(f"k must be 1 or more, not {k}")
        numbers = self._term_numbers(query_terms(query))
        if not len(numbers):
            return []
        scores = self._bm25.get_scores_from_ids(numbers)
        return [replace(self.passages[i], score=float(scores[i])) for i in _best(scores, k)]

    def _term_numbers(self, words: list[str]) -> np.ndarray:
        hashes = _hashes(words)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.asarray(self._numbers[places[self._hashes[places] == hashes]])


def _best(scores: np.ndarray, k: int) -> list[int]:
    k = min(k, len(scores))
    worst = np.partition(scores, -k)[-k]
    among = np.flatnonzero((scores >= worst) & (scores > 0))
    return among[np.argsort(-scores[among], kind="stable")][:k].tolist()


def read_manifest(folder: Path, *, verify: bool = False) -> dict[str, Any]:
    """The manifest of an index folder after a look at every file's size, with `verify` at its digest too."""
    hint = "build it with `revelator index build CORPUS --out DIR`"
    path = folder / "manifest.json"
    if not path.is_file():
        raise ArtifactError("not an index: manifest.json is missing", where=str(folder), hint=hint)
    try:
        manifest = json.loads(path.read_bytes())
        form, sizes, digests = manifest["format"], manifest["sizes"], manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError("not the manifest of an index", where=str(path), hint=hint) from error
    if form != FORMAT:
        raise ArtifactError(f"format {form!r}, and this version reads {FORMAT!r}", where=str(path), hint=hint)
    for name, size in sizes.items():
        file = folder / name
        if not file.is_file() or file.stat().st_size != size:
            raise ArtifactError("missing or of another size than when it was built", where=str(file), hint=hint)
        if verify and durable.sha256_file(file) != digests[name]:
            raise ArtifactError("has changed since it was built", where=str(file), hint=hint)
    return manifest


class LocalRetriever:
    """`serving.protocols.Retriever` over an index in this process. Searches run in threads, so the loop stays free."""

    def __init__(self, index: BM25Index, *, threads: int = 2) -> None:
        self.index = index
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="bm25")

    async def search(self, query: str, k: int) -> list[Passage]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.index.search, query, k)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
