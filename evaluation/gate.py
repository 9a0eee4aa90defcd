"""The promotion gate: a challenger takes the alias only if no task falls and their mean does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Console
from rich.table import Table

from evaluation.scores import DECIDING, Scores
from revelator.errors import ConfigError

RULES = Path(__file__).with_name("gate.yaml")
ROUNDING = 1e-9  # equal means must not fail by the order in which they were summed


class Rules(BaseModel):
    """`margin`: how far a task may fall below the champion; `floors`: what each task needs when there is none."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    margin: float = Field(ge=0, le=1)
    floors: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """One task. `bar` is what it had to reach: the champion's score less the margin, or the floor."""

    task: str
    score: str
    n: int
    challenger: float
    champion: float | None
    bar: float

    @property
    def passed(self) -> bool:
        return self.challenger >= self.bar - ROUNDING


@dataclass(frozen=True)
class Verdict:
    """`refusals` says in words why the gate stays shut; none when it opens."""

    comparisons: tuple[Comparison, ...]
    challenger_mean: float
    champion_mean: float | None
    refusals: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.refusals


def read_rules(path: Path, margin: float | None = None) -> Rules:
    """Raises ConfigError naming field, value and reason."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        return Rules(**values if margin is None else values | {"margin": margin})
    except (OSError, yaml.YAMLError, TypeError) as error:
        raise ConfigError(f"no rules of a gate: {error}", where=str(path), hint=f"an example: {RULES}") from error
    except ValidationError as error:
        reasons = [
            f"{'.'.join(map(str, e['loc']))}: {e['msg']}"
            + (f" (given: {e['input']!r})" if e["type"] != "missing" else "")
            for e in error.errors()
        ]
        raise ConfigError("; ".join(reasons), where=str(path), hint=f"an example: {RULES}") from error


def judge(challenger: Scores, champion: Scores | None, rules: Rules) -> Verdict:
    """Holds the deciding score of every task of the slice against the champion's, or against the floors without one."""
    comparisons = []
    for task in [t for t in DECIDING if t in challenger]:
        ours = challenger[task].deciding
        theirs = champion[task].deciding if champion else None
        bar = rules.floors.get(task, 0.0) if theirs is None else theirs - rules.margin
        comparisons.append(Comparison(task, DECIDING[task], challenger[task].n, ours, theirs, bar))
    mean = math.fsum(c.challenger for c in comparisons) / len(comparisons)
    before = math.fsum(c.champion or 0.0 for c in comparisons) / len(comparisons) if champion else None
    refusals = [_refusal(c, rules) for c in comparisons if not c.passed]
    if before is not None and mean < before - ROUNDING:
        refusals.append(f"the mean over tasks falls from {before:.3f} to {mean:.3f}")
    return Verdict(tuple(comparisons), mean, before, tuple(refusals))


def _refusal(comparison: Comparison, rules: Rules) -> str:
    c = comparison
    if c.champion is None:
        return f"{c.task} {c.score} {c.challenger:.3f} is under its floor {c.bar:.3f}"
    return f"{c.task} {c.score} falls from {c.champion:.3f} to {c.challenger:.3f}, by more than {rules.margin:g}"


def verdict_table(verdict: Verdict, challenger: str, champion: str | None) -> Table:
    table = Table("task", "score", "n", challenger, champion or "floor", "needed", "", title="Promotion gate")
    for c in verdict.comparisons:
        other = f"{c.bar if c.champion is None else c.champion:.3f}"
        sign = "passed" if c.passed else "FAILED"
        table.add_row(c.task, c.score, str(c.n), f"{c.challenger:.3f}", other, f"{c.bar:.3f}", sign)
    if verdict.champion_mean is not None:
        sign = "passed" if verdict.challenger_mean >= verdict.champion_mean - ROUNDING else "FAILED"
        means = f"{verdict.challenger_mean:.3f}", f"{verdict.champion_mean:.3f}"
        table.add_row("mean", "", "", *means, means[1], sign, style="bold")
    return table


def as_text(table: Table) -> str:
    console = Console(width=110, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()
