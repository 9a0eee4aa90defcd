"""The words of a question, and which of them are names."""

from __future__ import annotations

import re
import unicodedata

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
    """Words that begin with a capital or a digit, each once; the first word of a sentence does not tell."""
    found: dict[str, None] = {}
    for match in NAME_WORD.finditer(question):
        before = question[: match.start()].rstrip(" \"'([“‘")
        if before and before[-1] not in ".?!" and (match[0][0].isupper() or match[0][0].isdigit()):
            found[_bare(match[0])] = None
    return list(found)


def _bare(word: str) -> str:
    return word.rstrip(_ENDS).removesuffix("'s").rstrip(_ENDS)
