"""The words of a question, and which of them are names."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib.resources import files

WORD = re.compile(r"\w+")
LETTERS = re.compile(r"[^\W\d_]+")
NAME_WORD = re.compile(r"[^\W_][\w'.&-]*")
_ENDS = ".'-&"  # what may stand in a name, and is no part of it at its end


def keeps_foreign_words(text: str, question: str) -> bool:
    """Whether `text` has every run of letters of `question` that holds one beyond ASCII, in any case: such words are
    names, or all of the question."""
    folded = unicodedata.normalize("NFC", text.casefold())
    runs = LETTERS.findall(unicodedata.normalize("NFC", question.casefold()))
    return all(run in folded for run in runs if not run.isascii())


def find_words(text: str) -> list[str]:
    """Finds the words of a text as names write them (`O'Neill`, `AT&T`), without a genitive `'s` and a full stop."""
    return [_bare(word) for word in NAME_WORD.findall(text)]


def find_name_words(question: str) -> list[str]:
    """Words that begin with a capital or a digit, each once. One that begins a sentence is none if it is a function
    word: "The" counts in "the director of The Wall", and not in "The director of Jaws"."""
    found: dict[str, None] = {}
    for match in NAME_WORD.finditer(question):
        before = question[: match.start()].rstrip(" \"'([“‘")
        begins = not before or before[-1] in ".?!"
        if (match[0][0].isupper() or match[0][0].isdigit()) and not (
            begins and _bare(match[0]) in read_function_words()
        ):
            found[_bare(match[0])] = None
    return list(found)


def _bare(word: str) -> str:
    return word.rstrip(_ENDS).removesuffix("'s").rstrip(_ENDS)


@cache
def read_function_words() -> frozenset[str]:
    """Reads `function_words.txt`: question words, prepositions, auxiliaries, nouns and verbs of common relations."""
    lines = files("revelator.plans").joinpath("function_words.txt").read_text(encoding="utf-8").splitlines()
    return _spellings(" ".join(line for line in lines if not line.startswith("#")))


def _spellings(text: str) -> frozenset[str]:
    return frozenset(form for word in WORD.findall(text) for form in (word, word.lower(), word[0].upper() + word[1:]))
