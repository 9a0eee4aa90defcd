"""Source selection by rules: points for the operator and for cues in the question (AtomR, section 3.3.1).

The rules are data (`selection.yaml`). Another selector, such as one that asks the revelator, needs only `scores`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from serving.knowledge.labels import key_of
from serving.knowledge.source import Query, Source


class RuleSelector:
    """Adds up points by kind of source, for the sub-question as the plan has it and for its operator. What a document
    says is no part of it, nor an answer that repeats a document."""

    async def scores(self, query: Query, sources: Sequence[Source]) -> dict[str, float]:
        points = rule_points(query)
        return {source.name: points.get(source.kind, 0.0) for source in sources}


def rule_points(query: Query) -> dict[str, float]:
    """Points by kind of source."""
    rules, asked = _rules(), f" {key_of(query.template)} "
    points = dict(rules["operators"][type(query.call).__name__ if query.call else "direct"])
    for cue in rules["cues"]:
        if any(f" {key_of(word)} " in asked for word in cue["words"]):
            _add(points, cue["points"])
    return points


def _add(points: dict[str, float], more: Mapping[str, float]) -> None:
    for kind, value in more.items():
        points[kind] = points.get(kind, 0.0) + value


@cache
def _rules() -> dict[str, Any]:
    return yaml.safe_load(files("serving.knowledge").joinpath("selection.yaml").read_text(encoding="utf-8"))
