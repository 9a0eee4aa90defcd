"""Compound questions joined of published single ones about one thing: "Who wrote Ost, and when did Ost appear?"

What two questions are about is the title of the page that answers them, or a name that both mention
(`data_gen.augment.clauses`). Each part stays as it was asked, so its answer is known to be found alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random

from data_gen.augment.clauses import read_clause
from data_gen.questions import AnnotatedQuestion
from data_gen.records import hash_fraction
from revelator.errors import DataError
from revelator.plans import Atomic, Sequence, doubts, render

SIZES = {2: 0.8, 3: 0.2}  # parts of a question, and how often
LINKS = (" and ", ", and ", "? And ", "? ")  # before the last part
LONGEST = 44  # words of a compound question
DEV = 0.05  # of the things; their questions are of split dev
OPENINGS = {
    "who", "whose", "what", "which", "where", "when", "why", "how", "is", "are", "was", "were", "do", "does",
    "did", "can", "has", "have", "in", "on", "at",
}  # fmt: skip


class Joiner:
    """Draws compound questions from single ones. Those about one thing are of one split."""

    def __init__(self, singles: Iterable[AnnotatedQuestion], random: Random) -> None:
        self._random = random
        about: dict[str, dict[str, str]] = defaultdict(dict)
        for single in singles:
            asked = " ".join(single.question.split()).rstrip("?. ")
            for thing in _name_things(single):
                about[thing][asked.casefold()] = asked
        self._groups = [(thing, list(asked.values())) for thing, asked in about.items() if len(asked) > 1]
        if not self._groups:
            raise DataError("no two single questions about one thing", hint="give more single questions")

    def draw(self, identity: str, source: str, licence: str) -> AnnotatedQuestion | None:
        """A compound question with its parts and its plan; None where it came out too long or its plan is doubtful."""
        thing, group = self._random.choice(self._groups)
        [size] = self._random.choices(list(SIZES), list(SIZES.values()))
        parts = self._random.sample(group, min(size, len(group)))
        expression = Sequence(tuple(Atomic(f"{part}?") for part in parts))
        question = self._join(parts)
        if len(question.split()) > LONGEST or doubts(expression):
            return None
        return AnnotatedQuestion(
            id=identity,
            source=source,
            licence=licence,
            split="dev" if hash_fraction(f"joined:{thing}") < DEV else "train",
            question=question,
            route="compound",
            expression=render(expression),
            parts=tuple(f"{part}?" for part in parts),
            teacher="joined",
        )

    def _join(self, parts: list[str]) -> str:
        link = self._random.choice(LINKS)
        first, *others = parts
        if link != "? ":
            others = [_continue(part) for part in others]
        *middle, last = others
        between = link if link == "? " else ", "
        return between.join([first, *middle]) + link + last + "?"


def _name_things(single: AnnotatedQuestion) -> set[str]:
    titles = {passage.title.casefold() for passage in single.passages if passage.relevant and passage.title}
    clause = read_clause(single.question)
    return titles or {span.casefold() for span in clause.spans if len(span) > 4} if clause else titles


def _continue(part: str) -> str:
    """A question as it goes on within a sentence: a name keeps its capital."""
    opening = part.split()[0].casefold()
    return part[:1].lower() + part[1:] if opening in OPENINGS else part
