"""No question twice, and none that is held out for measuring.

A question is known by the hash of its normalised text (`revelator.fingerprints`). A held-out file has lines of that
hash in hex, two spaces, and the name of a set.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from data_gen.questions import AnnotatedQuestion
from revelator.errors import DataError
from revelator.files import sha256_text
from revelator.fingerprints import hash_question

KEPT_BACK = "kept back for measuring"
LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def load_held_out(path: Path) -> dict[str, str]:
    """Hash → name of the set that holds the question out. Raises DataError with the line that is not such a pair."""
    held: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        hint = "give the file of the data, or leave `held_out` out where nothing is measured"
        raise DataError(f"the held-out hashes cannot be read: {error}", where=str(path), hint=hint) from error
    for number, line in enumerate(lines, start=1):
        match = LINE.fullmatch(line)
        if match is None:
            raise DataError(
                "expected a sha256 in hex, two spaces and a set's name",
                where=f"{path}, line {number}",
                hint="a hash is over the question in NFKC and case folded, letters and digits joined by single spaces",
            )
        held[match[1]] = match[2]
    return held


def find_leak(held_out: dict[str, str], *texts: str) -> str | None:
    """The set that holds out one of the texts, or None."""
    return next((held_out[h] for text in texts if (h := hash_question(text)) in held_out), None)


def find_held_out(held_out: dict[str, str], question: AnnotatedQuestion, keep_back: float = 0.0) -> str | None:
    """The reason against a question that would teach a held-out one, or one that is kept back; None for any other.

    A single question is kept back with its article, too. Steps are not: a question of four would be dropped for each
    of them."""
    if found := find_leak(held_out, *question.list_taught()):
        return f"held out ({found})"
    published = [question.question, *question.parts, *question.made_from]
    if question.route == "single":  # else too few would be left: questions of two articles lose twice as many
        published += [passage.title for passage in question.passages if passage.relevant and passage.title]
    return KEPT_BACK if any(is_kept_back(text, keep_back) for text in published) else None


def is_kept_back(text: str, share: float) -> bool:
    """Whether a question is of the share that training leaves for measuring. The hash of its text decides, so that it
    is the same question in every set and format."""
    return int(hash_question(text)[:8], 16) < share * 16**8


def make_text_key(text: str) -> int:
    """The first 64 bits of the sha256: which texts of a build are the same. That a model was trained on a question is
    known by 40 bits (`revelator.fingerprints.fingerprint`)."""
    return int(sha256_text(text)[:16], 16)


def make_question_key(text: str) -> int:
    """The first 64 bits of the hash of the normalised text."""
    return int(hash_question(text)[:16], 16)


class SeenQuestions:
    """Remembers questions, in order to drop one that came before, in whichever split.

    It remembers a key of the id and one of the text, about 150 bytes a question. Two of n different ones have one key
    with a probability of n²/2⁶⁵ (for a million questions 3 in 10⁸), and then the later question is dropped.
    """

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._questions: set[int] = set()

    def find_repeat(self, id_key: int, question_key: int) -> str | None:
        """The reason against a question that came before; None for a new one, which is remembered.

        The arguments are the `make_text_key` of its id and the `make_question_key` of its text.
        """
        if id_key in self._ids:
            return "id seen before"
        if question_key in self._questions:
            return "question seen before"
        self._ids.add(id_key)
        self._questions.add(question_key)
        return None


class QuestionFilter:
    """Lets each question through once, and none that is held out for measuring."""

    def __init__(self, held_out: str | None, keep_back: float = 0.0) -> None:
        self._held_out = load_held_out(Path(held_out)) if held_out else {}
        self._keep_back = keep_back
        self._seen = SeenQuestions()

    def admits(self, question: AnnotatedQuestion, dropped: Counter[str]) -> bool:
        """Whether a question is let through; a reason against it is counted."""
        reason = find_held_out(self._held_out, question, self._keep_back) or self._seen.find_repeat(
            make_text_key(question.id), make_question_key(question.question)
        )
        if reason:
            dropped[reason] += 1
        return reason is None
