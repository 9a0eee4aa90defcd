"""Which of several texts that a model may write is taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from revelator.plans import doubts, leaves, logic, substitute
from revelator.plans.art import numbered
from revelator.plans.names import name_words, words_in
from revelator.tasks import TASKS
from serving.merge.counting import OF_SEVERAL


def soundest(task: str, question: str, texts: Sequence[str]) -> int | None:
    """The place in `texts`, likeliest first, of the one that is taken: of those that parse and check, the likeliest of
    those that keep most of the question's names and, of equals, leave the fewest doubts (`language.doubts`, of plans
    alone). None where no text checks; one with control characters does not.

    What a small model gets wrong first is a long or odd name: a syllable goes, or the whole leaf that asks about it;
    and it asks again what it has asked. Such a text is rarely its only likely one. Where a question counts, what it
    counts by stands in no leaf of a plan (`serving.merge.counting` compares with it), and a text that keeps more names
    is a worse one: of 393 such questions of a world each gold plan leaves a name out.
    """
    plan = task == "translate_bnf"
    names = set() if plan and OF_SEVERAL.search(question) else set(name_words(question))
    values = {place: TASKS[task].sound(text) for place, text in enumerate(texts) if text.isprintable()}
    worth = {
        place: (len(names.intersection(words_in(_asks(task, v)))), -len(doubts(v)) if plan else 0)
        for place, v in values.items()
        if v is not None
    }
    return max(worth, key=worth.__getitem__, default=None)


def _asks(task: str, value: Any) -> str:
    """What the leaves, terms or nodes of a plan ask for: no placeholder, and not the question that a tree repeats."""
    match task:
        case "translate_logic":
            return " ".join(logic.terms(value))
        case "translate_art":
            root, *below = [each.node for each in numbered(value)]
            calls = [text for node in (root, *below) if node.call for text in node.call.texts]
            return " ".join([*calls, *(node.question for node in below)])
    return " ".join(substitute(leaf.text, dict.fromkeys(leaf.placeholders, "")) for leaf in leaves(value))
