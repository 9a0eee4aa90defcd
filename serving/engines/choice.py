"""Which of several texts that a model may write is taken."""

from __future__ import annotations

from collections.abc import Sequence

from revelator.language.names import name_words, words_in
from revelator.tasks import TASKS


def soundest(task: str, question: str, texts: Sequence[str]) -> int | None:
    """The place in `texts`, likeliest first, of the one that is taken: of those that parse and check, the likeliest of
    those that keep most of the question's names. None where no text checks.

    What a small model gets wrong first is a long or odd name: a syllable goes, or the whole leaf that asks about it.
    Such a text is rarely its only likely one.
    """
    names = name_words(question)
    kept = {
        place: len(set(names).intersection(words_in(text)))
        for place, text in enumerate(texts)
        if TASKS[task].sound(text) is not None
    }
    return max(kept, key=kept.__getitem__, default=None)
