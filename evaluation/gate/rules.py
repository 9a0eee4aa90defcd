"""The promotion gate: a challenger takes the alias only if no task falls and their mean rises, both shown by the paired
bootstrap on the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field, field_validator
from rich.console import Console
from rich.table import Column, Table

from evaluation.gate.scores import DECIDING, PINNED, Scores, TaskScore
from evaluation.metrics.bootstrap import Interval, paired_bootstrap
from evaluation.seen import SeenCount, warn_of_seen
from revelator.config import Share, Strict, read_config

RULES = Path(__file__).with_name("gate.yaml")
ROUNDING = 1e-9  # what sums of equal scores may differ by


class Rules(Strict):
    """`margins`: how far each task may fall below the champion. `floors`: what each task must reach without a champion.

    `confidence`: the lower end of a difference's interval is its (1 - confidence) quantile. `minimum`: the least
    questions of each slice.
    """

    confidence: float = Field(ge=0.5, lt=1)
    minimum: int = Field(100, ge=0)
    margins: dict[str, Share]
    floors: dict[str, Share]

    @field_validator("margins", "floors")
    @classmethod
    def _names_tasks(cls, values: dict[str, float]) -> dict[str, float]:
        if unknown := [task for task in values if task not in DECIDING]:
            raise ValueError(f"no such task: {unknown[0]}; tasks: {', '.join(DECIDING)}")
        return values


@dataclass(frozen=True)
class Comparison:
    """The scores of one task, on the challenger's questions or (PINNED) on the champion's. With a champion, `change`
    is the challenger's score minus the champion's, and the lower end of its interval must reach `bar`. Without a
    champion, the score itself must reach `bar`. `seen` counts what each of them has seen in training."""

    task: str
    score: str
    n: int
    challenger: float
    champion: float | None
    change: Interval | None
    bar: float
    seen: tuple[SeenCount, ...]

    @property
    def passes(self) -> bool:
        return (self.change.low if self.change else self.challenger) >= self.bar - ROUNDING

    def describe_failure(self) -> str:
        """Says why the task fails. Call it only when `passes` is false."""
        if self.change is None:
            return f"{self.task} {self.score} {self.challenger:.3f} is under its floor {self.bar:.3f}"
        if self.change.mean < self.bar - ROUNDING:
            what = f"falls from {self.champion:.3f} to {self.challenger:.3f}, by more than {-self.bar:g}"
        else:
            what = f"may fall by more than {-self.bar:g}"
        return f"{self.task} {self.score} {what} ({format_change(self.change)}, n = {self.n})"


@dataclass(frozen=True)
class Verdict:
    """The gate's decision; `change` is the change of the mean over tasks, None without a champion."""

    comparisons: tuple[Comparison, ...]
    challenger_mean: float
    champion_mean: float | None
    change: Interval | None

    @property
    def refusals(self) -> list[str]:
        """Says in words why the gate refuses; nothing if it opens."""
        said = [comparison.describe_failure() for comparison in self.comparisons if not comparison.passes]
        if self.change and not self.is_mean_rise_shown:
            means = f"{self.champion_mean:.3f} to {self.challenger_mean:.3f}"
            said.append(f"the mean over tasks is not shown to rise: {means} ({format_change(self.change)})")
        return said

    @property
    def passes(self) -> bool:
        return not self.refusals

    @property
    def seen(self) -> tuple[SeenCount, ...]:
        """What the challenger and, with one, the champion have seen in training, over all tasks."""
        return tuple(sum(counts, SeenCount()) for counts in zip(*(c.seen for c in self.comparisons), strict=True))

    @property
    def is_mean_rise_shown(self) -> bool:
        """Whether the lower end of the interval of the mean's change is above 0, or there is no champion."""
        return self.change is None or self.change.low > ROUNDING


def read_rules(path: Path, margin: float | None = None) -> Rules:
    """Reads the rules; `margin` replaces the margin of every task. Raises ConfigError naming field, value and
    reason."""
    changes = None if margin is None else {"margins": dict.fromkeys(DECIDING, margin)}
    return read_config(path, Rules, changes)


def judge(challenger: Scores, champion: Scores | None, rules: Rules) -> Verdict:
    """Compares the deciding score of every task against the champion's on the same rows, or against the
    floors without one. A task without a margin may not fall at all."""
    tasks = [name for task in DECIDING for name in (task, f"{PINNED}{task}") if name in challenger]
    each, mean = _compare_scores(challenger, champion, tasks, rules.confidence) if champion else ({}, None)
    comparisons = tuple(
        Comparison(
            task,
            DECIDING[challenger[task].task],
            challenger[task].n,
            challenger[task].deciding,
            champion[task].deciding if champion else None,
            each.get(task),
            -rules.margins.get(challenger[task].task, 0.0) if champion else rules.floors.get(task, 0.0),
            tuple(side[task].seen for side in (challenger, champion) if side),
        )
        for task in tasks
    )
    ours = float(np.mean([c.challenger for c in comparisons]))
    theirs = float(np.mean([champion[task].deciding for task in tasks])) if champion else None
    return Verdict(comparisons, ours, theirs, mean)


def _compare_scores(
    challenger: Scores, champion: Scores, tasks: list[str], confidence: float
) -> tuple[dict[str, Interval], Interval]:
    def read_values(score: TaskScore) -> np.ndarray:
        """Returns the deciding score of each row, in the order of the row ids."""
        return np.array(score.values[DECIDING[score.task]])[np.argsort(score.ids)]

    differences = {task: read_values(challenger[task]) - read_values(champion[task]) for task in tasks}
    groups = {task: [id.rsplit("/", 2)[0] for id in sorted(challenger[task].ids)] for task in tasks}
    return paired_bootstrap(differences, groups, confidence=confidence)


def format_change(change: Interval) -> str:
    return f"{change.mean:+.3f} [{change.low:+.3f}, {change.high:+.3f}]"


def build_verdict_table(verdict: Verdict, challenger: str, champion: str | None) -> Table:
    about = describe_seen(verdict, [challenger, champion] if champion else [challenger])
    table = Table(Column("task", overflow="fold"), "score", "n", challenger, title="Promotion gate", caption=about)
    for name in (champion, "change", "may fall", "") if champion else ("floor", ""):
        table.add_column(name)
    for c in verdict.comparisons:
        ours, *theirs = [f"\n{count.format_count()}" for count in c.seen]
        against = [f"{c.bar:.3f}"]
        if c.change is not None:
            against = [f"{c.champion:.3f}{theirs[0]}", format_change(c.change), f"{-c.bar:.3f}"]
        passed = "passed" if c.passes else "FAILED"
        table.add_row(c.task, c.score, str(c.n), f"{c.challenger:.3f}{ours}", *against, passed)
    if verdict.change is not None:
        means = f"{verdict.challenger_mean:.3f}", f"{verdict.champion_mean:.3f}"
        passed = "passed" if verdict.is_mean_rise_shown else "FAILED"
        row = ("mean", "", "", *means, format_change(verdict.change), "must rise", passed)
        table.add_row(*row, style="bold")
    return table


def describe_seen(verdict: Verdict, names: Sequence[str]) -> str:
    """What the versions of these names have seen in training, and a warning if that is any question."""
    sides = dict(zip(names, verdict.seen, strict=True))
    said = "; ".join(f"{name} {count}" for name, count in sides.items())
    return " ".join(filter(None, [f"Rows of all tasks: {said}.", warn_of_seen(sides)]))


def render_text(table: Table) -> str:
    console = Console(width=130, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
