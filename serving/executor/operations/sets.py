"""Answers as sets: what two lists share.

That they share nothing is never said: they may only write the same names differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from serving.executor.operations.parts import Merged, Part
from serving.executor.operations.text import normalise


def common(parts: Sequence[Part]) -> Merged | None:
    keys = [{normalise(answer) for answer in part.answers} for part in parts]
    common = set.intersection(*keys)
    shared = tuple(answer for answer in parts[0].answers if normalise(answer) in common)
    return Merged(shared, "in common") if shared else None


_WITHIN = re.compile(
    r"\{(\w+)\}\s++(?:(?:is|are|was|were)\s++)?+(also|not)?+\s*+"
    r"(?:in|among|amongst|one of|part of)\s++(?:the\s++)?+\{(\w+)\}",
    re.IGNORECASE,
)
_BOTH = re.compile(
    r"\bboth\s+(?:in\s+|among\s+)?\{(\w+)\} and \{(\w+)\}|\bcommon to (?:both )?\{(\w+)\} and \{(\w+)\}"
    r"|\{(\w+)\} and \{(\w+)\} (?:both )?(?:have in common|share)\b",
    re.IGNORECASE,
)


def selects(text: str) -> bool:
    """Whether a wording selects from two lists of values."""
    return _WITHIN.search(text) is not None or _BOTH.search(text) is not None


def within(text: str, values: Mapping[str, Part]) -> list[str] | None:
    """What a wording selects from two lists, in the first one's order: "{a} are (not) among {b}", "both {a} and {b}".

    None when it selects nothing so; of two single values, neither of which is a list, None too.
    """
    one, both = _WITHIN.search(text), _BOTH.search(text)
    names = (one[1], one[3]) if one else tuple(filter(None, both.groups())) if both else ()
    if len(names) != 2 or not set(names) <= set(values):
        return None
    first, second = (values[name].answers for name in names)
    if len(first) == len(second) == 1:
        return None
    keys = {normalise(answer) for answer in second}
    left_out = one is not None and (one[2] or "").lower() == "not"
    return [answer for answer in first if (normalise(answer) in keys) != left_out]
