"""The operations that a plan may end in, and what each makes of the answers of its parts.

A part is one operand of the `+` in front of the `=>`, or the whole where there is none; it may have several values, one
of its last step for each value that this was asked with. Dates, quantities and names are values; what an operation
cannot be done on is left to `judge`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

OPERATIONS = {
    "count": "how many different values there are",
    "sum": "all numbers together",
    "mean": "the sum of the numbers by how many there are",
    "difference": "how far two values are apart; of dates, in years",
    "min": "the least value, or the earliest",
    "max": "the greatest value, or the latest",
    "argmin": "what the part with the least value is about, or its value of one of the steps that are named",
    "argmax": "what the part with the greatest value is about, or its value of one of the steps that are named",
    "where": "what each part is about, or its value of one of the steps that are named, whose value meets a condition",
    "equal": "yes where every part has the same values, no where none is the same",
    "union": "the values of all parts, each once",
    "intersect": "the values that every part has",
    "except": "the values of the first part that no other part has",
    "judge": "what the reader makes of the question and the answers of the parts",
}
CONDITIONAL = ("where",)  # those with a condition: `=> where > 1980`
COMPUTED = tuple(name for name in OPERATIONS if name not in ("judge", *CONDITIONAL))  # from the answers alone, by code
EXTREMES = ("argmin", "argmax")  # those that answer with what has the least or the greatest value
CHOOSING = (*EXTREMES, *CONDITIONAL)  # those that may name the steps whose value is the answer
VERDICTS = ("equal",)  # those whose answer is yes or no
ORDERING = ("sum", "mean", "difference", "min", "max", *EXTREMES)  # those that yes and no are no values for
SEVERAL = ("except",)  # those that need two parts
COMPARING = ("equal",)  # those that need two parts, or one that is asked several times
PAIRED = ("difference",)  # those that take two values
SIGNS = ("=", "!=", "<", "<=", ">", ">=")  # of a date, less is earlier
REFERENCE = re.compile(r"\{([1-9]\d{0,999})\}", re.ASCII)  # to a step, behind an operation


@dataclass(frozen=True, slots=True)
class Condition:
    """How a value must compare with `value`: a date, a quantity or a name, or what a step answers, `{3}`. The
    constructor raises ValueError."""

    sign: str
    value: str

    def __post_init__(self) -> None:
        if self.sign not in SIGNS:
            raise ValueError(f"there is no sign {self.sign!r}; there are {', '.join(SIGNS)}")
        if not self.value.strip():
            raise ValueError("a condition has a value")

    @property
    def steps(self) -> tuple[int, ...]:
        """The number of the step whose value it compares with; () where the value stands in the plan."""
        found = REFERENCE.fullmatch(self.value)
        return (int(found[1]),) if found else ()

    def renumber(self, number: Callable[[int], int]) -> Condition:
        """The same condition with another number for the step."""
        return replace(self, value=f"{{{number(*self.steps)}}}") if self.steps else self
