"""What each task is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A sub-question that has been answered; several values are joined by "; "."""

    question: str
    answer: str


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
