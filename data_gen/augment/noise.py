"""The same question typed carelessly: a slip of a finger, no capital at the beginning, no question mark, a few polite
words before it. Its names, plan, parts and steps stay as they are, so that a model learns to write them as they should
be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from data_gen.annotate.names import find_mention, find_planned_names
from data_gen.annotate.wording import WORDS
from data_gen.questions import AnnotatedQuestion

LEAST = 4  # letters of a word in which a finger slips
KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def add_typing_errors(question: AnnotatedQuestion, rng: Random) -> AnnotatedQuestion:
    """The question as it may be typed in a hurry, drawn by `rng`; itself where a name would not survive it."""
    text = question.question
    names = find_planned_names(question)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        text = misspell(text, names, rng)
    if rng.random() < 0.4:
        text = f"{rng.choice(WORDS['openings'])} {text[:1].lower()}{text[1:]}"
    if rng.random() < 0.5:
        text = text.rstrip("?. ")
    if rng.random() < 0.5:
        text = text[:1].lower() + text[1:]
    return replace(question, question=text) if all(find_mention(name, text) for name in names) else question


def misspell(text: str, names: Sequence[str], rng: Random) -> str:
    """`text` with one slip in one of its small words that no name has."""
    kept = {word for name in names for word in name.split()}
    words = text.split(" ")
    places = [
        place
        for place, word in enumerate(words)
        if len(word) >= LEAST and word.isascii() and word.isalpha() and word.islower() and word not in kept
    ]
    if not places:
        return text
    place = rng.choice(places)
    words[place] = slip(words[place], rng)
    return " ".join(words)


def slip(word: str, rng: Random) -> str:
    """One letter of a word is left out, typed twice, typed before its neighbour, or is one beside it on the keys."""
    at = rng.randrange(1, len(word) - 1)
    match rng.randrange(4):
        case 0:
            return word[:at] + word[at + 1 :]
        case 1:
            return word[:at] + word[at] + word[at:]
        case 2:
            return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    row = next(keys for keys in KEYS if word[at] in keys)
    beside = row[max(0, row.index(word[at]) - 1) : row.index(word[at]) + 2].replace(word[at], "")
    return word[:at] + rng.choice(beside) + word[at + 1 :]
