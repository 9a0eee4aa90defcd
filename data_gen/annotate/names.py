"""Where a question names something, and how it spells it: a plan keeps the question's spelling, so it can be copied."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from data_gen.questions import AnnotatedQuestion
from revelator import plans

NAME_SPAN = re.compile(r"[^\W\d_a-z][\w'.&-]*(?: (?:of|of the|de|von) [^\W\d_a-z][\w'.&-]*| [^\W_a-z][\w'.&-]*)*")
NAME_WORD = re.compile(r"[^\W_][\w'.&-]*")
TYPES = r"film|movie|song|album|single|book|novel|play|poem|magazine|newspaper|journal|university|college|school"
MAX_NAME = 48  # characters
SAFE_NAME = re.compile(r"[^\W\d_][\w '.,:&!-]*[\w.!](?: \([\w .,'-]+\))?")  # nothing that a plan would have to quote
SMALL = frozenset(["a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "or", "the", "to", "with"])
PUNCTUATION = {ord(mark): plain for marks, plain in (("‘’ʼ`´", "'"), ("“”", '"'), ("‐‑‒–—", "-")) for mark in marks}


def find_mention(name: str, text: str) -> str | None:
    """The spelling of `name` in `text` between word boundaries, up to case, accents and kinds of marks; or None."""
    found = re.search(rf"(?<!\w){re.escape(fold(name))}(?!\w)", fold(text))
    return text[found.start() : found.end()] if found else None


@lru_cache(maxsize=4096)
def fold(text: str) -> str:
    """`text` without case and accents, character by character: offsets stay as they are."""
    return "".join(_simplify(character) for character in text.translate(PUNCTUATION))


def _simplify(character: str) -> str:
    base = unicodedata.normalize("NFKD", character)[0].casefold()
    return base if len(base) == 1 else character


def recase(text: str, question: str) -> str:
    """`text` with each word in small letters that the question writes with a capital, and never small, written so too,
    but for articles and prepositions: "the first album" of a question that writes "The Boarding House"."""
    written = re.findall(r"[^\W_]+", question)[1:]
    small = {word for word in written if word.islower()}
    capital = {word.casefold(): word for word in written if word[0].isupper() and word.casefold() not in small | SMALL}

    return re.sub(r"(?<![{\w])[^\W_]+", lambda match: capital.get(match[0], match[0]), text)


def introduce(subjects: Sequence[str], question: str) -> dict[str, str]:
    """The subjects as the question introduces them: "… distributed the film UHF" makes "UHF" "the film UHF".

    All of them or none, so that the parts of a comparison are asked alike.
    """
    types = [_find_type(subject, question) for subject in subjects]
    known = {subject: f"the {kind} {subject}" for subject, kind in zip(subjects, types, strict=True)}
    return known if all(types) else {}


def _find_type(subject: str, question: str) -> str | None:
    name, text = re.escape(fold(subject)), fold(question)
    match = re.search(rf"\b({TYPES})s?:?,? [\"']?{name}", text) or re.search(rf"\b({TYPES})s\b.+ and {name}", text)
    return match[1] if match else None


def find_shared_names(question: str, texts: Sequence[str], known: Sequence[str] = ()) -> list[str]:
    """Names that stand in the question and in at least one of `texts`, longest first, none inside another.

    `known` names come first; further ones are runs of capitalised words.
    """
    spans = (match for text in texts for match in NAME_SPAN.finditer(text) if match.start() > 0)
    found = (match[0].removesuffix("'s") for match in spans)
    further = [name for name in found if not any(find_mention(one, name) for one in known)]
    names: list[str] = []
    for name in sorted({*known, *further}, key=lambda name: (-len(name), name)):
        is_shared = find_mention(name, question) and any(find_mention(name, text) for text in texts)
        if is_shared and not any(find_mention(name, longer) for longer in names):
            names.append(name)
    return names


def find_planned_names(question: AnnotatedQuestion) -> list[str]:
    """The names that a question shares with its plan or parts, longest first."""
    leaves = [leaf.text for leaf in plans.list_leaves(plans.parse(question.expression))] if question.expression else []
    return find_shared_names(question.question, [*leaves, *question.parts], question.entities)


def find_capitalised(text: str) -> tuple[str, ...]:
    """Words that look like names: capitals or digits, the first word of the text, or after a question, aside."""
    words = [word for asked in text.split("? ") for word in NAME_WORD.findall(asked)[1:]]
    return tuple(dict.fromkeys(word.removesuffix("'s") for word in words if word[0].isupper() or word[0].isdigit()))
