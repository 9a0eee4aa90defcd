"""Where a question names something, and how it spells it: a plan keeps the question's spelling, so it can be copied."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

TYPES = (
    r"film|movie|song|album|single|book|novel|play|poem|magazine|newspaper|journal|university|college|school|company"
)
SMALL = frozenset(["a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"])
PUNCTUATION = {ord(mark): plain for marks, plain in (("‘’ʼ`´", "'"), ("“”", '"'), ("‐‑‒–—", "-")) for mark in marks}


def mention(name: str, text: str) -> str | None:
    """The spelling of `name` in `text` between word boundaries, up to case, accents and kinds of marks; or None."""
    wanted, said = folded(name), folded(text)
    start = said.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _in_word(said[start - 1 : start]) and not _in_word(said[end : end + 1]):
            return text[start:end]
        start = said.find(wanted, start + 1)
    return None


def _in_word(character: str) -> bool:
    """False for "", which stands beyond both ends."""
    return character.isalnum() or character == "_"


@lru_cache(maxsize=4096)
def folded(text: str) -> str:
    """`text` without case and accents, character by character: offsets stay as they are."""
    return "".join(_plain(character) for character in text.translate(PUNCTUATION))


def _plain(character: str) -> str:
    base = unicodedata.normalize("NFKD", character)[0].casefold()
    return base if len(base) == 1 else character


def recased(text: str, question: str) -> str:
    """`text` with each small word that the question writes with a capital, and never small, written so too."""
    written = re.findall(r"[^\W_]+", question)[1:]
    small = {word for word in written if word.islower()}
    capital = {word.casefold(): word for word in written if word[0].isupper() and word.casefold() not in small}

    def spelt(match: re.Match[str]) -> str:
        if match[0] in SMALL and not _stands_so(match, text, question.casefold()):
            return match[0]  # "the first album" of a question that writes "The Boarding House"
        return capital.get(match[0], match[0])

    return re.sub(r"(?<![{\w])[^\W_]+", spelt, text)


def _stands_so(match: re.Match[str], text: str, question: str) -> bool:
    """Whether the question has the word beside the same neighbour."""
    before = re.search(r"(?<!\w)\w++\W++$", text[: match.start()])
    after = re.match(r"\W+\w+", text[match.end() :])
    pairs = [before[0] + match[0] if before else "", match[0] + after[0] if after else ""]
    return any(pair and pair.casefold() in question for pair in pairs)


def introduced(subjects: list[str], question: str) -> list[str]:
    """The subjects as the question introduces them: "… distributed the film UHF" makes "UHF" "the film UHF".

    All of them or none, so that the parts of a comparison are asked alike.
    """
    types = [_type(subject, question) for subject in subjects]
    if not all(types):
        return subjects
    return [f"the {kind} {subject}" for kind, subject in zip(types, subjects, strict=True)]


def _type(subject: str, question: str) -> str | None:
    name, text = re.escape(folded(subject)), folded(question)
    match = re.search(rf"\b({TYPES})s?:?,? [\"']?{name}", text) or re.search(rf"\b({TYPES})s\b.+ and {name}", text)
    return match[1] if match else None
