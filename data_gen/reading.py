"""Rows for reading (`revelator.reading`) from the sources of `data build`, without a held-out question.

A row is a question, a passage, and where the answer stands in it. A source of the format `reading` has such rows
(SQuAD 2.0, MultiSpanQA, PolicyQA); another passage of the article gives a row without an answer: a passage about the
right thing that does not answer is what retrieval brings most. Of the annotated questions of other formats

* each step whose passage is known is a question; another passage of the question gives a row without an answer.
* one without such steps is asked as a whole: if the answer is yes or no, all relevant passages are one; else it is the
  one relevant passage that says the answer.
* a single question without passages (Natural Questions, TriviaQA, WebQuestions) is looked up in a corpus by BM25. Of
  the first `DEPTH` passages the best that says an answer is taken (distant supervision), or of lists that which says
  most items.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from data_gen.augment.substitution import load_names
from data_gen.config import Published, SourceSettings
from data_gen.everyday.passages import PassageWriter
from data_gen.leakage import KEPT_BACK, find_leak, is_kept_back, load_held_out
from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from data_gen.read_examples import find_answers
from data_gen.sources.formats import READERS
from data_gen.sources.multi_hop import annotate_hotpot
from data_gen.sources.rows import ReadResult, count_outcome, read_annotated
from revelator.config import FilePath, Share, Strict
from revelator.errors import DataError
from revelator.files import replace_file, sha256_text, stage_folder
from revelator.folders import FolderKind
from revelator.reading import Answer, ReadingRow, load_rows
from revelator.row_files import read_objects

DEPTH = 8  # passages looked at for an answer of a question that comes without one
LONGEST = 8  # words of an answer that is looked for in passages
READING_ROWS = FolderKind("a folder of rows for reading", "revelator-reading-1", "revelator data build CONFIG.yaml")


class ReadingSource(SourceSettings):
    """A source of rows. `reading` is the format of rows for reading, others are those of sets. With `lists`, several
    answers of a question without passages are the items of a list, and else spellings of one."""

    format: Literal[Published, "reading"]
    lists: bool = False

    @property
    def title(self) -> str:
        """What its file of rows is called."""
        return self.name or Path(self.path).name.partition(".")[0]


class ReadingConfig(Strict):
    """Rows for reading (`data_gen.reading`). Each source gives a file of rows. `everyday` passages about several things
    of one kind are drawn beside them; `names` is as in a set's `augment`."""

    rows: Literal["reading"]
    sources: tuple[ReadingSource, ...] = ()
    corpus: FilePath | None = None  # titles and texts in which questions without passages are looked up
    everyday: Annotated[int, Field(ge=0)] = 0
    names: FilePath | None = None
    seed: int = 13  # of `everyday`
    held_out: FilePath | None = None
    keep_back: Share = 0.0  # as in a set

    @model_validator(mode="after")
    def _has_rows(self) -> ReadingConfig:
        titles = [source.title for source in self.sources]
        if not (self.sources or self.everyday):
            raise ValueError("sources: name some, or give a number of everyday passages")
        if self.everyday and not self.names:
            raise ValueError("names: everyday passages need a file of titles, which name things and people")
        if len(set(titles)) < len(titles):
            raise ValueError(f"sources: two are called {max(titles, key=titles.count)!r}; give one a `name`")
        return self


class Bm25:
    """BM25 over titles and texts, in memory."""

    def __init__(self, passages: Sequence[dict[str, Any]]) -> None:
        import bm25s

        self._passages = [(passage["title"], passage["text"]) for passage in passages]
        self._index = bm25s.BM25()
        texts = [f"{title} {text}" for title, text in self._passages]
        self._index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)

    def search(self, questions: Sequence[str], k: int) -> list[list[tuple[str, str]]]:
        import bm25s

        asked = bm25s.tokenize(list(questions), stopwords="en", show_progress=False)
        found, _ = self._index.retrieve(asked, k=min(k, len(self._passages)), show_progress=False)
        return [[self._passages[number] for number in row] for row in found]


def _read_rows(source: ReadingSource, corpus: Bm25 | None, dropped: Counter[str]) -> Iterator[ReadingRow]:
    if source.format == "reading":
        yield from _read_articles(load_rows(source.path)[: source.limit])
        return
    # triples ask one lead for birth and for death, and a reader that learnt them did worse (training/readers/README.md)
    read = _read_two_wiki_whole if source.format == "2wiki" else READERS[source.format]
    unread: list[AnnotatedQuestion] = []
    for result in islice(read(source.path), source.limit):
        if not isinstance(result, AnnotatedQuestion):
            count_outcome(result, dropped)
        elif result.passages:
            yield from _read_annotated(result)
        elif result.route == "single":
            unread.append(result)
    if corpus:
        yield from _read_distant(unread, corpus, source.lists)


def _read_two_wiki_whole(path: str) -> Iterator[ReadResult]:
    return read_annotated(path, lambda row: annotate_hotpot(row, "2wiki", "Apache-2.0"))


def _read_articles(rows: Sequence[ReadingRow]) -> Iterator[ReadingRow]:
    articles: dict[str, dict[str, None]] = {}
    for row in rows:
        articles.setdefault(row.title, {})[row.passage] = None
    for row in rows:
        yield row
        if row.answers and row.title:
            others = [(row.title, text) for text in articles[row.title] if text != row.passage]
            yield from _without_answer(row.id, row.question, [answer.text for answer in row.answers], others)


def _read_annotated(question: AnnotatedQuestion) -> Iterator[ReadingRow]:
    relevant = [passage for passage in question.passages if passage.relevant and passage.text]
    whole = AnnotatedStep(question.question, question.answers[:1])
    for number, step in enumerate([step for step in question.steps if step.title] or [whole]):
        identity = f"{question.id}-{number}"
        if step is whole and (verdict := "".join(step.answers).lower()) in ("yes", "no"):
            text = " ".join(passage.text for passage in relevant)
            yield ReadingRow(identity, step.question, text, verdict=verdict)
            continue
        spellings = question.answers if len(question.steps) < 2 else step.answers
        is_list = len(step.answers) > 1
        fitting = [passage for passage in relevant if step.title in ("", passage.title)]
        found = [(p, _find_list(p.text, step.answers) if is_list else find_answers(p.text, spellings)) for p in fitting]
        said = [(p, places) for p, places in found if len(places) >= len(step.answers)]
        if len(said) == 1:
            [(passage, places)] = said
            yield ReadingRow(identity, step.question, passage.text, passage.title, places, is_list=is_list)
            others = [(other.title, other.text) for other in question.passages if other.title != passage.title]
            yield from _without_answer(identity, step.question, step.answers, others)


def _without_answer(
    identity: str, question: str, answers: Sequence[str], others: Sequence[tuple[str, str]]
) -> Iterator[ReadingRow]:
    """A row of one of the passages that do not say the answer, chosen by the row's hash."""
    silent = [(title, text) for title, text in others if text and not find_answers(text, answers)]
    if silent:
        title, text = silent[int(sha256_text(identity)[:8], 16) % len(silent)]
        yield ReadingRow(f"{identity}-none", question, text, title)


def _read_distant(questions: Sequence[AnnotatedQuestion], corpus: Bm25, lists: bool) -> Iterator[ReadingRow]:
    wanted = {question.question: answers for question in questions if (answers := _list_findable(question.answers))}
    searched = corpus.search(list(wanted), DEPTH) if wanted else []
    for (question, answers), passages in zip(wanted.items(), searched, strict=True):
        found = [(title, text, (_find_list if lists else find_answers)(text, answers)) for title, text in passages]
        title, text, places = max(found, key=lambda each: len(each[2]) if lists else bool(each[2]))
        if places:
            identity = f"distant-{sha256_text(question)[:12]}"
            yield ReadingRow(identity, question, text, title, places, is_list=lists and len(places) > 1)


def _find_list(text: str, answers: Sequence[str]) -> tuple[Answer, ...]:
    """The first place of each item that a text says; of two that overlap, the longer one."""
    found: list[Answer] = []
    for answer in sorted(answers, key=len, reverse=True):
        for place in find_answers(text, [answer])[:1]:
            if all(place.end <= other.start or other.end <= place.start for other in found):
                found.append(place)
    return tuple(sorted(found, key=lambda place: place.start))


def _list_findable(answers: Sequence[str]) -> list[str]:
    """The answers that are long enough to be meant where they stand, and short enough to be found."""
    return [text for text in answers if len(text) > 2 and len(text.split()) <= LONGEST]


def build_reading(config: ReadingConfig, out: Path) -> dict[str, Any]:
    """Writes NAME.jsonl.gz for each source, and everyday.jsonl.gz, into the folder `out`, which is replaced. Returns
    the manifest. Raises DataError for a source that gives no row, ConfigError for a folder of something else."""
    READING_ROWS.check_place(out)
    held = load_held_out(Path(config.held_out)) if config.held_out else {}
    search = Bm25([row for _, row in read_objects(config.corpus)]) if config.corpus else None
    counts: dict[str, dict[str, int]] = {}
    with stage_folder(out) as stage:
        for source in config.sources:
            dropped = Counter[str]()
            rows = _read_rows(source, search, dropped)
            counts[source.title] = _write_rows(
                stage / f"{source.title}.jsonl.gz", source.path, rows, held, dropped, config.keep_back
            )
        if config.everyday and config.names:
            teller = PassageWriter(load_names(Path(config.names)), Random(config.seed))
            rows = (row for number in range(config.everyday) for row in teller.draw(f"everyday:{config.seed}-{number}"))
            counts["everyday"] = _write_rows(stage / "everyday.jsonl.gz", "everyday", rows, held, Counter())
        return READING_ROWS.write_manifest(stage, {"counts": counts})


def _write_rows(
    path: Path,
    place: str,
    rows: Iterable[ReadingRow],
    held: dict[str, str],
    dropped: Counter[str],
    keep_back: float = 0.0,
) -> dict[str, int]:
    """Writes the rows of a place that are neither held out nor kept back. Returns how many there are by kind, and how
    many were dropped. Raises DataError where there is none."""
    kept = []
    for row in rows:
        if leak := find_leak(held, row.question):
            dropped[f"held out ({leak})"] += 1
        elif is_kept_back(row.question, keep_back) or (row.title and is_kept_back(row.title, keep_back)):
            dropped[KEPT_BACK] += 1
        else:
            kept.append(row)
    if not kept:
        hint = "give a set of passages, or, to questions and answers, a `corpus`"
        raise DataError("no row for reading comes of this source", where=place, hint=hint)
    with replace_file(path) as target, gzip.GzipFile("", "wb", 9, target, 0) as packed:
        packed.write("".join(f"{row.to_json()}\n" for row in kept).encode())
    kinds = Counter(
        "yes or no" if r.verdict else "list" if r.is_list else "span" if r.answers else "none" for r in kept
    )
    return {**dict(sorted(kinds.items())), **dropped}
