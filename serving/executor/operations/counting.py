"""How many: of a list, of what two lists share, of the members of a fan-out that meet a condition."""

from __future__ import annotations

import re
from collections.abc import Sequence

from serving.executor.operations.arithmetic import total
from serving.executor.operations.dates import parse_date
from serving.executor.operations.parts import Merged, Part
from serving.executor.operations.quantities import parse_quantity
from serving.executor.operations.text import normalise
from serving.executor.operations.whole import is_value

OF_SEVERAL = re.compile(r"\bhow many of\b", re.IGNORECASE)  # asks how many members of a fan-out meet a condition


def count(question: str, parts: Sequence[Part]) -> Merged | None:
    if len(parts) == 1 and len(parts[0].members) > 1 and OF_SEVERAL.search(question):
        return count_meeting(question, parts[0])
    values = [member.answers for part in parts for member in part.members]
    numbers = [re.search(r"\d", one) or parse_quantity(one) for one, *more in values if not more]
    if len(numbers) == len(values) and all(numbers):
        return total(question, [answers[0] for answers in values])
    if any(numbers) or any(re.search(r"\bhow many\b", part.questions[-1], re.IGNORECASE) for part in parts):
        return None
    keys = [{normalise(answer) for answer in part.answers} for part in parts]
    both = len(parts) > 1 and re.search(r"\b(both|common)\b", question)
    counted = set.intersection(*keys) if both else set.union(*keys)
    return Merged((str(len(counted)),), "count") if counted else None


def count_meeting(question: str, part: Part) -> Merged | None:
    """How many members of a fan-out meet the condition in the question: their value is named there, or their date lies
    after or before a year that is."""
    bound = re.search(r"\b(after|before|since|until|later than|earlier than) (?:the year )?(\d{3,4})\b", question)
    if bound:
        year, later = int(bound[2]), bound[1] in ("after", "since", "later than")
        dates = [parse_date(one) for one, *more in (m.answers for m in part.members) if is_value(one) and not more]
        if len(dates) < len(part.members) or not all(dates):
            return None
        if any(d.last is not None and d.year <= year <= d.last for d in dates if d):
            return None
        inside = [d for d in dates if d and (d.year > year if later else d.year < year)]
        exact = [d for d in dates if d and d.year == year and bound[1] in ("since", "until")]
        return Merged((str(len(inside) + len(exact)),), f"count: {bound[1]}")
    text = f" {normalise(question)} "
    named = {key for answer in part.answers if f" {(key := normalise(answer))} " in text}
    if not named:
        return None
    value = max(named, key=lambda key: (text.rindex(f" {key} "), len(key)))
    meeting = sum(value in {normalise(answer) for answer in member.answers} for member in part.members)
    return Merged((str(meeting),), "count: of the value named")
