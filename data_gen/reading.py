"""Published sets as rows for reading (`revelator.reading`), without a held-out question.

A row is a question, a passage, and where the answer stands in it. Published sets are recognised by the fields of a row:

* `passage` and `answers`: rows for reading already (SQuAD 2.0, MultiSpanQA, PolicyQA). Another passage of the article
  gives a row without an answer: a passage about the right thing that does not answer is what retrieval brings most.
* `paragraph_text` and `original_nq_answers`: QED.
* `paragraphs` and `question_decomposition`: MuSiQue. Each step is a question with its answers of earlier steps filled
  in; its passage is the supporting paragraph, and another paragraph of the question gives a row without an answer.
* `context` and `supporting_facts`: HotpotQA and 2WikiMultiHopQA. Questions of yes and no have all supporting paragraphs
  as one passage; of the others that paragraph which alone says the answer, and one that supports nothing.
* `steps` and `passages`: our own annotated questions. Each step is a question, its passage that which states its
  answers; another passage of the question gives a row without an answer.
* `question` and `answer` alone (Natural Questions, TriviaQA, WebQuestions): BM25 finds passages in a corpus. Of the
  first `DEPTH` the best that says an answer is taken (distant supervision), or of lists that which says most items.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any

from pydantic import Field, model_validator

from data_gen.augment.substitution import load_names
from data_gen.everyday.passages import PassageWriter
from data_gen.leakage import find_leak, load_held_out
from data_gen.sources.files import read_objects
from revelator.config import FilePath, Strict
from revelator.errors import DataError
from revelator.files import replace_file, sha256_file, sha256_text, stage_folder, write_json
from revelator.reading import Answer, ReadingRow

DEPTH = 8  # passages looked at for an answer of a question that comes without one
LONGEST = 8  # words of an answer that is looked for in passages
KNOWN = {"question", "answer", "answers", "passage", "context", "paragraphs", "paragraph_text", "evidences"}
PLACEHOLDER = re.compile(r"#(\d+)")


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


def convert(
    rows: Sequence[Mapping[str, Any]], corpus: Bm25 | None, dropped: Counter[str], *, lists: bool = False
) -> Iterator[ReadingRow]:
    """The rows for reading of one file; rows without the fields of the others are counted in `dropped`.

    A set that has no passages gives none without a corpus; with `lists`, several answers of its questions are the items
    of a list, and else ways to say one answer."""
    if rows and {"question", "answer"} == rows[0].keys() & KNOWN:
        yield from _read_distant(rows, corpus, lists) if corpus else ()
        return
    articles: dict[str, dict[str, None]] = {}
    for row in rows:
        if isinstance(row.get("passage"), str) and row.get("title"):
            articles.setdefault(row["title"], {})[row["passage"]] = None
    for row in rows:
        try:
            yield from list(_read_published(row, articles))  # of a row all or nothing
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            dropped["not a row of the file's kind"] += 1


def _read_published(row: Mapping[str, Any], articles: Mapping[str, Iterable[str]]) -> Iterator[ReadingRow]:
    if "steps" in row and "passages" in row:
        return _read_annotated(row)
    if "original_nq_answers" in row:
        return iter([_read_qed(row)])
    if "question_decomposition" in row:
        return _read_musique(row)
    return _read_hotpot(row) if "supporting_facts" in row else _read_row(row, articles)


def _read_annotated(row: Mapping[str, Any]) -> Iterator[ReadingRow]:
    passages = {passage["title"]: passage["text"] for passage in row["passages"]}
    for number, step in enumerate(row["steps"]):
        title, identity = step["title"], f"{row['id']}-{number}"
        found = [find_answers(passages[title], [answer])[:1] for answer in step["answers"]] if title in passages else []
        if found and all(found):
            answers = tuple(sorted({one for each in found for one in each}, key=lambda a: (a.start, a.text)))
            yield ReadingRow(identity, step["question"], passages[title], title, answers, is_list=len(answers) > 1)
            others = [each for each in passages.items() if each[0] != title]
            yield from _without_answer(identity, step["question"], step["answers"], others)


def _read_row(row: Mapping[str, Any], articles: Mapping[str, Iterable[str]]) -> Iterator[ReadingRow]:
    answers = tuple(Answer(answer["text"], answer["start"]) for answer in row["answers"])
    is_list, verdict = bool(row.get("all_of")), row.get("verdict", "")
    yield ReadingRow(row["id"], row["question"], row["passage"], row["title"], answers, is_list, verdict)
    if answers:
        others = [(row["title"], text) for text in articles.get(row["title"], ()) if text != row["passage"]]
        yield from _without_answer(row["id"], row["question"], [answer.text for answer in answers], others)


def _read_qed(row: Mapping[str, Any]) -> ReadingRow:
    """One answer in each annotator's words, or, where an annotator names several, a list of them."""
    sets = sorted(row["original_nq_answers"], key=len)
    chosen = sets[-1] if len(sets[-1]) > 1 else [answer for one in sets for answer in one]
    text = row["paragraph_text"]
    answers = {Answer(text[each["start"] : each["end"]], each["start"]) for each in chosen}
    return ReadingRow(
        id=f"qed-{row['example_id']}",
        question=row["question_text"],
        passage=text,
        title=row["title_text"],
        answers=tuple(sorted((answer for answer in answers if answer.text), key=lambda a: (a.start, a.text))),
        is_list=len(sets[-1]) > 1,
    )


def _read_musique(row: Mapping[str, Any]) -> Iterator[ReadingRow]:
    paragraphs = {each["idx"]: each for each in row["paragraphs"]}
    others = [each for each in row["paragraphs"] if not each["is_supporting"]]
    steps = row["question_decomposition"]
    answered = [step["answer"] for step in steps]
    for number, step in enumerate(steps):
        question = word_step(step["question"], answered)
        paragraph = paragraphs.get(step["paragraph_support_idx"])
        if question is None or paragraph is None:
            continue
        text = paragraph["paragraph_text"]
        if answers := find_answers(text, [step["answer"]]):
            yield ReadingRow(f"{row['id']}-{number}", question, text, paragraph["title"], answers)
            yield from _without_answer(f"{row['id']}-{number}", question, [step["answer"]], [
                (each["title"], each["paragraph_text"]) for each in others
            ])  # fmt: skip


def word_step(question: str, answered: Sequence[str]) -> str | None:
    """A step of MuSiQue as a question: earlier answers in place of `#n`, and `X >> relation` in words.

    None where it refers to a step that does not exist."""
    if any(not 0 < int(n) <= len(answered) for n in PLACEHOLDER.findall(question)):
        return None
    filled = PLACEHOLDER.sub(lambda match: answered[int(match[1]) - 1], question)
    subject, arrow, relation = filled.partition(">>")
    return f"What is the {relation.strip()} of {subject.strip()}?" if arrow else filled


def _read_hotpot(row: Mapping[str, Any]) -> Iterator[ReadingRow]:
    supporting = {title for title, _ in row["supporting_facts"]}
    paragraphs = _join_paragraphs(row["context"])
    identity, answer, question = str(row.get("_id", row.get("id"))), row["answer"], row["question"]
    facts = [(title, text) for title, text in paragraphs if title in supporting and text]
    if answer.lower() in ("yes", "no"):
        joined = " ".join(text for _, text in facts)
        yield ReadingRow(identity, question, joined, verdict=answer.lower())
        return
    said = [(title, text, found) for title, text in facts if (found := find_answers(text, [answer]))]
    if len(said) == 1:
        title, text, found = said[0]
        yield ReadingRow(identity, question, text, title, found)
        others = [(title, text) for title, text in paragraphs if title not in supporting]
        yield from _without_answer(identity, question, [answer], others)


def _join_paragraphs(context: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Title and text of HotpotQA's paragraphs, which are lists of sentences."""
    return [(title, " ".join("".join(f"{part} " for part in parts).split())) for title, parts in context]


def _without_answer(
    identity: str, question: str, answers: Sequence[str], others: Sequence[tuple[str, str]]
) -> Iterator[ReadingRow]:
    """A row of one of the passages that do not say the answer, chosen by the row's hash."""
    silent = [(title, text) for title, text in others if text and not find_answers(text, answers)]
    if silent:
        title, text = silent[int(sha256_text(identity)[:8], 16) % len(silent)]
        yield ReadingRow(f"{identity}-none", question, text, title)


def _read_distant(rows: Sequence[Mapping[str, Any]], corpus: Bm25, lists: bool) -> Iterator[ReadingRow]:
    wanted = [_name_answers(row) for row in rows]
    asked = [index for index, answers in enumerate(wanted) if answers]
    for index, passages in zip(asked, corpus.search([rows[i]["question"] for i in asked], DEPTH), strict=True):
        question, answers = rows[index]["question"], wanted[index]
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


def _name_answers(row: Mapping[str, Any]) -> list[str]:
    """The answers that are long enough to be meant where they stand, and short enough to be found."""
    given = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
    return [text for text in given if len(text) > 2 and len(text.split()) <= LONGEST]


def find_answers(passage: str, answers: Iterable[str]) -> tuple[Answer, ...]:
    """Where the answers stand in a passage as whole words, letters' case aside; at most four places."""
    found = set()
    for text in answers:
        for match in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", passage, re.IGNORECASE):
            found.add(Answer(match[0], match.start()))
    return tuple(sorted(found, key=lambda answer: (answer.start, -len(answer.text))))[:4]


class ReadingConfig(Strict):
    """Rows for reading (`data_gen.reading`). Each file of `reading` and `lists` is a published set, and gives a file of
    rows. In a set without passages several answers of a question are spellings of one, or, in `lists`, items of a list.
    `everyday` passages about several things of one kind are drawn beside them; `names` is as in a set's `augment`."""

    reading: tuple[FilePath, ...]
    lists: tuple[FilePath, ...] = ()
    corpus: FilePath | None = None  # titles and texts in which sets without passages are looked up
    everyday: Annotated[int, Field(ge=0)] = 0
    names: FilePath | None = None
    seed: int = 13  # of `everyday`
    held_out: FilePath | None = None

    @model_validator(mode="after")
    def _has_rows(self) -> ReadingConfig:
        if not (self.reading or self.lists or self.everyday):
            raise ValueError("reading: name files, or give a number of everyday passages")
        if self.everyday and not self.names:
            raise ValueError("names: everyday passages need a file of titles, which name things and people")
        return self


def build_reading(config: ReadingConfig, out: Path) -> dict[str, Any]:
    """Writes NAME.jsonl.gz for each file, and everyday.jsonl.gz, into the folder `out`, which is replaced, and returns
    the manifest. Raises DataError for a file that gives no row."""
    held = load_held_out(Path(config.held_out)) if config.held_out else {}
    search = Bm25([row for _, row in read_objects(config.corpus)]) if config.corpus else None
    counts: dict[str, dict[str, int]] = {}
    with stage_folder(out) as stage:
        for file in (*config.reading, *config.lists):
            name, dropped = Path(file).name.partition(".")[0], Counter[str]()
            found = convert([row for _, row in read_objects(file)], search, dropped, lists=file in config.lists)
            counts[name] = _write_rows(stage / f"{name}.jsonl.gz", file, found, held, dropped)
        if config.everyday and config.names:
            teller = PassageWriter(load_names(Path(config.names)), Random(config.seed))
            rows = (row for number in range(config.everyday) for row in teller.draw(f"everyday:{config.seed}-{number}"))
            counts["everyday"] = _write_rows(stage / "everyday.jsonl.gz", "everyday", rows, held, Counter())
        manifest = {"counts": counts, "files": {p.name: sha256_file(p) for p in sorted(stage.glob("*.gz"))}}
        write_json(stage / "manifest.json", manifest)
    return manifest


def _write_rows(
    path: Path, place: str, rows: Iterable[ReadingRow], held: dict[str, str], dropped: Counter[str]
) -> dict[str, int]:
    """Writes the rows of a place that are not held out; how many there are by kind, and how many were dropped. Raises
    DataError where there is none."""
    kept = []
    for row in rows:
        if leak := find_leak(held, row.question):
            dropped[f"held out ({leak})"] += 1
        else:
            kept.append(row)
    if not kept:
        hint = "give a set of passages, or, to questions and answers, a `corpus`"
        raise DataError("no row for reading comes of this file", where=place, hint=hint)
    with replace_file(path) as target, gzip.GzipFile("", "wb", 9, target, 0) as packed:
        packed.write("".join(f"{row.to_json()}\n" for row in kept).encode())
    kinds = Counter(
        "yes or no" if r.verdict else "list" if r.is_list else "span" if r.answers else "none" for r in kept
    )
    return {**dict(sorted(kinds.items())), **dropped}
