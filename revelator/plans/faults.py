"""Faults of a text that point into it: errors with line, column and caret, and diagnostics of what parses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len

from revelator.errors import ExpressionError, PlanError, RevelatorError
from revelator.terminal import mask_controls

EXCERPT_WIDTH = 72  # characters of the source line shown around a fault

Span = tuple[int, int]  # character offsets [start, end) in the text that was parsed


@dataclass(frozen=True)
class Diagnostic:
    """A fault of a plan.

    `start` and `end` are character offsets in the text parsed, `hint` suggests a mend.
    """

    code: str
    message: str
    start: int
    end: int
    hint: str

    @classmethod
    def of_error(cls, error: ExpressionError) -> Diagnostic:
        """Makes the diagnostic of an error that keeps a text from being parsed."""
        return cls(error.code, error.message, error.start, error.end, error.hint or "")


def sort_faults(found: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorts diagnostics by where they stand in the text."""
    return tuple(sorted(found, key=lambda d: (d.start, d.end)))


def fault(text: str, code: str, message: str, start: int, end: int, hint: str) -> ExpressionError:
    """Makes the error for `text[start:end]`."""
    line_start = text.rfind("\n", 0, start) + 1
    return ExpressionError(
        message,
        code=code,
        start=start,
        end=end,
        line=text.count("\n", 0, start) + 1,
        column=start - line_start + 1,
        excerpt=excerpt(text, start, end),
        hint=hint,
    )


def describe_faults(plan: str | None, error: RevelatorError) -> RevelatorError:
    """Returns the error as it came; of a plan that cannot run, with an excerpt and a hint for each diagnostic."""
    if not isinstance(error, PlanError) or not error.diagnostics:
        return error
    faults = (f"{d.message}\n{excerpt(plan or '', d.start, d.end)}\n  hint: {d.hint}" for d in error.diagnostics)
    return PlanError("the plan cannot be run\n" + "\n".join(faults), diagnostics=error.diagnostics)


def excerpt(text: str, start: int, end: int) -> str:
    """Returns two short lines: the source line around `text[start:end]`, and carets under it."""
    line_start = text.rfind("\n", 0, start) + 1
    first = max(line_start, start - EXCERPT_WIDTH // 2)
    window = text[first : first + EXCERPT_WIDTH].partition("\n")[0]
    last = first + len(window)
    before, after = "…" * (first > line_start), "…" * (text[last : last + 1] not in ("", "\n"))
    shown = mask_controls(window)
    indent = " " * cell_len(before + shown[: start - first])
    carets = "^" * max(1, cell_len(shown[start - first : end - first]))
    return f"  {before}{shown}{after}\n  {indent}{carets}"
