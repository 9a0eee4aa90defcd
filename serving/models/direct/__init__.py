"""Answers that need no document: what a self-contained question lets one compute, and nothing else."""

from __future__ import annotations

from serving.models.direct.arithmetic import evaluated, parity, series
from serving.models.direct.categories import category
from serving.models.direct.comparison import alphabetical, compared
from serving.models.direct.groups import grouped
from serving.models.direct.quantities import converted
from serving.models.direct.statements import described, years
from serving.models.direct.stories import story
from serving.models.direct.words import counted, lettered, placed, reversed_word
from serving.protocols import Reading

MOST_CHARACTERS = 300  # of a question that is its own source: the rules' patterns are cubic in its length

_RULES = (
    evaluated,
    parity,
    series,
    counted,
    lettered,
    placed,
    reversed_word,
    alphabetical,
    compared,
    category,
    converted,
    years,
    described,
    grouped,
    story,
)


def answer_directly(question: str) -> Reading | None:
    """A computed answer, or None. `Reading.method` names the computation."""
    text = " ".join(question.split()).rstrip("?.! ")
    if len(text) > MOST_CHARACTERS:
        return None
    for rule in _RULES:
        found = rule(text)
        if found is not None:
            value, method = found
            return Reading(f"{value}", (value,), method=method)
    return None
