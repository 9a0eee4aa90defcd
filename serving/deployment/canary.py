"""A canary beside the promoted version: what was compared, and by which rule it is promoted or withdrawn.

Each prompt of a question that the canary answers is put to the promoted version too; the question waits for the canary
alone. One line a prompt goes to `canary/<version>.jsonl` below the home folder: no text of questions, only what came
of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median

from revelator.tasks import TASKS
from serving.protocols import Completion


@dataclass(frozen=True)
class Comparison:
    """One prompt, put to both versions. `agrees`: the same label, the same shape of plan, the same text."""

    request: str  # digest of the question's id
    task: str
    canary_ms: float
    champion_ms: float
    canary_valid: bool  # False too when the canary gave no answer: `error`
    champion_valid: bool
    agrees: bool
    error: str = ""


@dataclass(frozen=True)
class Rules:
    """What a canary must keep to. The defaults leave room for chance, and for a better model to differ."""

    comparisons: int = 100  # before there is a verdict
    validity_loss: float = 0.02  # share of valid outputs that it may have less than the champion
    latency_ratio: float = 1.5  # its median time over the champion's, on the same prompts at the same time
    agreement: float = 0.5  # share of prompts with the same outcome
    errors: float = 0.01  # share of prompts that it did not answer


@dataclass(frozen=True)
class Verdict:
    """The figures, and `reasons` not to promote; none means promoted."""

    version: int
    champion: int
    comparisons: int
    validity: float
    champion_validity: float
    latency_ms: float
    champion_latency_ms: float
    agreement: float
    errors: float
    reasons: tuple[str, ...]

    @property
    def promoted(self) -> bool:
        return not self.reasons


def compared(
    request: str, task: str, canary: Completion | BaseException, champion: Completion, times: tuple[float, float]
) -> Comparison:
    """`times` are the canary's and the champion's milliseconds."""
    canary_ms, champion_ms = (round(ms, 3) for ms in times)
    answered = None if isinstance(canary, BaseException) else canary
    return Comparison(
        request,
        task,
        canary_ms,
        champion_ms,
        canary_valid=answered is not None and _is_valid(task, answered),
        champion_valid=_is_valid(task, champion),
        agrees=answered is not None and _agree(task, answered, champion),
        error="" if answered else type(canary).__name__,
    )


def _is_valid(task: str, completion: Completion) -> bool:
    return not completion.degraded and TASKS[task].sound(completion.text) is not None


def _agree(task: str, one: Completion, other: Completion) -> bool:
    """Whether two versions come to the same: the shape of a plan, else what the task's parser makes of the text."""
    return TASKS[task].outcome(one.text) == TASKS[task].outcome(other.text)


def record_file(home: Path, version: int) -> Path:
    return home / "canary" / f"{version}.jsonl"


def record(home: Path, version: int, rows: Sequence[Comparison]) -> None:
    """Appends whole lines, of several processes too."""
    path = record_file(home, version)
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(asdict(row)) + "\n" for row in rows))


def recorded(home: Path, version: int) -> list[Comparison]:
    path = record_file(home, version)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Comparison(**json.loads(line)) for line in lines]


def judge(version: int, champion: int, rows: Sequence[Comparison], rules: Rules) -> Verdict | None:
    """None while there are too few comparisons; a canary that answers too little is withdrawn before that."""
    unanswered = sum(bool(row.error) for row in rows)
    if len(rows) < rules.comparisons and unanswered <= rules.errors * rules.comparisons:
        return None
    found = _figures(version, champion, rows)
    return replace(found, reasons=tuple(_reasons(found, rules)))


def too_few(version: int, champion: int, rows: Sequence[Comparison], rules: Rules) -> Verdict:
    """The verdict when time is up: what was not compared is not promoted."""
    reason = f"{len(rows)} comparisons in the time given, and {rules.comparisons} are needed"
    return replace(_figures(version, champion, rows), reasons=(reason,))


def _figures(version: int, champion: int, rows: Sequence[Comparison]) -> Verdict:
    answered = [row for row in rows if not row.error]
    return Verdict(
        version=version,
        champion=champion,
        comparisons=len(rows),
        validity=mean([row.canary_valid for row in rows] or [False]),
        champion_validity=mean([row.champion_valid for row in rows] or [False]),
        latency_ms=median([row.canary_ms for row in answered] or [0.0]),
        champion_latency_ms=median([row.champion_ms for row in answered] or [0.0]),
        agreement=mean([row.agrees for row in answered] or [False]),
        errors=mean([bool(row.error) for row in rows] or [False]),
        reasons=(),
    )


def _reasons(found: Verdict, rules: Rules) -> list[str]:
    ratio = found.latency_ms / found.champion_latency_ms if found.champion_latency_ms else 1.0
    tests = (
        (found.errors > rules.errors, f"errors {found.errors:.1%}, at most {rules.errors:.1%}"),
        (
            found.champion_validity - found.validity > rules.validity_loss,
            f"valid {found.validity:.1%}, the champion {found.champion_validity:.1%}",
        ),
        (
            ratio > rules.latency_ratio,
            f"median latency {ratio:.2f} times the champion's, at most {rules.latency_ratio:g}",
        ),
        (found.agreement < rules.agreement, f"agreement {found.agreement:.1%}, at least {rules.agreement:.0%}"),
    )
    return [text for failed, text in tests if failed]
