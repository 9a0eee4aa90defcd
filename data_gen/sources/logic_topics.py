"""Topics of a corpus, each with the sentence of the corpus that names it.

A document gives its title where that is short; the runs of content words between stop words and marks of a longer title
(the candidate phrases of RAKE, Rose et al. 2010); and the kind of thing that its first sentence says its subject is, in
the plural ("… is an animated sitcom created by …" → animated sitcoms). Topics are told apart by their normalised text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_gen.annotate.inflection import make_plural
from data_gen.annotate.names import MAX_NAME, SAFE_NAME
from data_gen.annotate.wording import STOP_WORDS
from revelator.errors import DataError
from revelator.fingerprints import normalise
from revelator.row_files import read_objects

FEWEST = 300  # topics that a corpus must give to train on
TITLE_WORDS = 6
SAID = 240  # characters of a sentence
MARKS = re.compile(r"(?<!\s)\s+([,.;:?!)\]])")
ASIDE = re.compile(r"(?<!\s)\s*+\([^()]*\)")
SENTENCE = re.compile(r".{20,}?[.!?](?=\s+[^\Wa-z]|$)", re.DOTALL)
KIND = re.compile(r"\b(?:is|was) an? (\S.*)")
LITTLE = STOP_WORDS | frozenset(
    """about after against among as before between but during into its not off one out over per since some than then
    through two under until upon using versus via where while within without""".split()  # noqa: SIM905
)
VERBAL = ("ed", "ing", "ly", "born", "known")  # ends of words that end no noun phrase here


@dataclass(frozen=True, slots=True)
class Topic:
    """What documents can be about, as a question names it, and a sentence about it in which its text stands."""

    text: str
    said: str


def read_topics(path: Path, fewest: int = FEWEST) -> list[Topic]:
    """The topics of a corpus: JSON lines (gzip or not) with `title` and, if they have one, `text`; or a world's folder.

    Raises DataError for a file that cannot be read, a row without a title, and a corpus of too few topics.
    """
    path = path / "passages.jsonl" if path.is_dir() else path
    found: dict[str, Topic] = {}
    for line, row in read_objects(str(path)):
        if not isinstance(row.get("title"), str):
            hint = "give JSON lines with title and text, or the folder of a world"
            raise DataError("not a document with a `title`", where=f"{path}, line {line}", hint=hint)
        for topic in _read_row(row):
            found.setdefault(normalise(topic.text), topic)
    if len(found) < fewest:
        raise DataError(f"only {len(found)} topics", where=str(path), hint=f"give a corpus with {fewest} or more")
    return list(found.values())


def _read_row(row: dict[str, Any]) -> Iterator[Topic]:
    title = " ".join(row["title"].rstrip(" .").split())
    text = row.get("text")
    lead = _cut_lead(text) if isinstance(text, str) else ""
    if len(title.split()) > TITLE_WORDS:
        for phrase in _split_phrases(title):
            yield Topic(phrase, f"{title}.")
    elif _is_usable(title):
        yield Topic(title, lead if title in lead else f"{title}. {lead}".strip())
    if lead and (match := KIND.search(lead)) and (kind := _read_kind(match[1])):
        yield Topic(kind, f"On {kind}: {lead}")


def _is_usable(text: str) -> bool:
    return 2 < len(text) <= MAX_NAME and SAFE_NAME.fullmatch(text) is not None


def _cut_lead(text: str) -> str:
    """The first sentence, without what stands in parentheses, cut to SAID characters."""
    text = MARKS.sub(r"\1", ASIDE.sub("", " ".join(text[:600].split()))).replace("( ", "(").replace(" 's", "'s")
    match = SENTENCE.match(text)
    said = match[0] if match else text
    return said if len(said) <= SAID else said[:SAID].rpartition(" ")[0] + " …"


def _split_phrases(title: str) -> Iterator[str]:
    """Runs of one to four content words; a capital at the title's start is not part of a phrase."""
    title = title if title[1:2].isupper() else title[:1].lower() + title[1:]
    for part in re.split(r"[^\w\s'-]+", title):
        run: list[str] = []
        for word in [*part.split(), ""]:
            if word and word.casefold() not in LITTLE and not word.isdigit():
                run.append(word)
                continue
            phrase = " ".join(run)
            if 0 < len(run) <= 4 and len(phrase) >= 6 and _is_usable(phrase) and not phrase.endswith(VERBAL):
                yield phrase
            run = []


def _read_kind(text: str) -> str | None:
    """The words up to the first mark or little word, in the plural; None where the last is no common noun."""
    words: list[str] = []
    for word in text.split()[:6]:
        bare = word.rstrip(",.;:")
        if bare.casefold() in LITTLE or not re.fullmatch(r"[^\W\d_][\w'-]*", bare):
            break
        words.append(bare)
        if bare != word:
            break
    while words and words[-1].endswith(VERBAL):
        words.pop()
    if not words or len(words) > 4 or not words[-1].islower() or len(words[-1]) < 3:
        return None
    kind = " ".join([*words[:-1], make_plural(words[-1])])
    return kind if _is_usable(kind) else None
