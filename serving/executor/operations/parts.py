"""What operations work on: the answers of a plan's chains, and what they give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MOST_CHARACTERS = 100_000  # of the questions and answers that an operation works on, in a second at most
MOST_COMPARED = 500  # values that are compared, each with each


@dataclass(frozen=True)
class Member:
    """One way through a chain: the value taken for each placeholder, first taken first, and the answers at its end."""

    lineage: Mapping[str, str]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """One chain of a plan: its questions as planned, first asked first, and its members (several after a fan-out).

    `whole`: every value on the way was asked with, and every call gave an answer. No operation is sure of a part that
    is not whole: how many there are, which is the longest, what they come to.
    """

    questions: tuple[str, ...]
    members: tuple[Member, ...]
    whole: bool = True

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(answer for member in self.members for answer in member.answers))


@dataclass(frozen=True)
class Merged:
    """The answers of the whole question and the operation that gave them."""

    answers: tuple[str, ...]
    method: str


def size_of(parts: Iterable[Part]) -> int:
    """Characters of their questions and answers."""
    return sum(
        sum(map(len, part.questions)) + sum(len(answer) for member in part.members for answer in member.answers)
        for part in parts
    )
