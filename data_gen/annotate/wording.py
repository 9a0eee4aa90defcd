"""Natural words for the steps of a gold decomposition.

A short form such as `UHF >> distributed by` becomes a question a person would ask. Of the ways to ask for a relation
(`wordings.yaml`) the one that shares most words with the whole question is taken: a plan that keeps the question's own
words can be learnt by copying.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from revelator.config import read_table
from revelator.files import sha256_text

WORDS = read_table("data_gen.annotate", "words.yaml")
STOP_WORDS, DIVISIONS = (frozenset(WORDS[name].split()) for name in ("stop_words", "divisions"))


def ask(relation: str, subject: str, answer: str, question: str, place: float, seed: str) -> str:
    """The question for (subject, relation, answer) in the words of the whole `question`.

    `place` is where in the question (in words) this step is likely to be spoken of; `seed` decides between equally good
    wordings. A relation without wordings gets "What is the {relation} of …?".
    """
    ways = _load_wordings().get(relation, [[relation, f"What is the {relation} of {{x}}?"]])
    said = split_words(question)
    kin = {_stem(word) for word in said}
    kinds = DIVISIONS & set(split_words(answer))

    def rank(way: Sequence[str]) -> tuple[float, float, str]:
        score, far = _distance(way[1], said, place)
        unsaid = way[0] != ways[0][0] and _stem(way[0]) not in kin
        wrong = bool(kinds) and way[0] in DIVISIONS - kinds  # "In which state …?" is not answered by "Pima County"
        return score + 0.3 * unsaid + 0.9 * wrong, far, sha256_text(f"{seed}|{way[1]}")

    _, template = min(ways, key=rank)
    return template.replace("{x}", subject)


def _distance(template: str, said: Sequence[str], place: float) -> tuple[float, float]:
    """Smaller is nearer: the wording's words that the question lacks, less those it has; then how far these stand.

    A word of the same stem counts for less than the word itself, a question word for less again.
    """
    asked, *others = split_words(template.replace("{x}", " "))
    score, far = -0.3 * (asked in said), 0.0
    for word in (other for other in others if other not in STOP_WORDS):
        places = [i for i, other in enumerate(said) if _stem(other) == _stem(word)]
        score += (-0.5 if word in said else -0.3) if places else 0.5
        far += min((abs(i - place) for i in places), default=0)
    return score, far


def split_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _stem(word: str) -> str:
    for ending in ("ing", "ors", "ers", "ies", "ed", "or", "er", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def tidy(text: str) -> str:
    """A question as written, with the blanks around marks mended, a capital at the start and a mark at the end."""
    text = " ".join(text.replace("’", "'").split())
    text = re.sub(r"(?<!\s)\s+([?,.!;:])", r"\1", text)
    text = re.sub(r"(\}|\w) 's\b", r"\1's", text)
    if text and text[-1] not in "?.!":
        text += "?"
    return text[:1].upper() + text[1:]


@cache
def list_relation_questions() -> tuple[str, ...]:
    """Every way to ask for a relation, with `{x}` for its subject."""
    return tuple(template for ways in _load_wordings().values() for _, template in ways)


def _load_wordings() -> dict[str, list[list[str]]]:
    return read_table("data_gen.annotate", "wordings.yaml")
