"""What the page shows under a plan as it is typed: the faults of the language's own checker, each with its excerpt."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from revelator.errors import ExpressionError
from revelator.plans import Diagnostic, art, logic
from revelator.plans.commands import verdict_of
from revelator.plans.faults import excerpt
from revelator.trace import PlanLanguage

MOST = 8_000  # characters: 32 leaves, which a plan may have, of 250 each


class Plan(BaseModel):
    """The body of `POST /api/check`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(max_length=MOST)
    language: PlanLanguage = "bnf"


def verdict(text: str, language: PlanLanguage = "bnf") -> dict[str, Any]:
    """`expression, valid, canonical, diagnostics` of a text, and the `doubts` about a plan that checks.

    Offsets count characters (code points) from the start of the text; `excerpt` is the line with carets under it.
    """
    found = verdict_of(text) if language == "bnf" else _verdict(text, language)
    return {**found, "diagnostics": _pointed(text, found["diagnostics"]), "doubts": _pointed(text, found["doubts"])}


def _pointed(text: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**d, "excerpt": excerpt(text, d["start"], d["end"])} for d in found]


def _verdict(text: str, language: Literal["logic", "art"]) -> dict[str, Any]:
    canonical, faults = None, []
    try:
        if language == "logic":
            query = logic.parse(text)
            canonical, faults = logic.render(query), [vars(d) for d in logic.check(query)]
        else:
            tree = art.parse(text)
            canonical = art.render(tree)
            faults = [_whole(text, fault) for fault in art.check(tree)]
    except ExpressionError as error:
        faults = [vars(Diagnostic(error.code, error.message, error.start, error.end, error.hint or ""))]
    return {"expression": text, "valid": not faults, "canonical": canonical, "diagnostics": faults, "doubts": []}


def _whole(text: str, fault: art.Fault) -> dict[str, Any]:
    """A tree's fault names its node by number, not by its place in the text."""
    return vars(Diagnostic(fault.code, f"{fault.place}: {fault.message}", 0, len(text), fault.hint))
