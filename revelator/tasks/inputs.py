"""What each task is given."""

from __future__ import annotations

from dataclasses import dataclass

from revelator.trace import join_answers

UNKNOWN = "unknown"  # stands in a prompt for the answer of a step that has none


@dataclass(frozen=True)
class Step:
    """A sub-question that was asked, with its answers: none where nothing was found."""

    question: str
    answers: tuple[str, ...]

    @property
    def answer(self) -> str:
        """The answers as a prompt shows them."""
        return join_answers(self.answers) or UNKNOWN


@dataclass(frozen=True)
class RouteInput:
    question: str


@dataclass(frozen=True)
class DecomposeInput:
    question: str


@dataclass(frozen=True)
class RefineInput:
    question: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class RelevanceInput:
    question: str
    title: str
    text: str


@dataclass(frozen=True)
class EndInput:
    question: str
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class TranslateInput:
    question: str
