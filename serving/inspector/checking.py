"""What the page shows under a plan as it is typed: the faults of the language's own checker, each with its excerpt."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from revelator.plans.faults import excerpt
from revelator.plans.language import LANGUAGES, LanguageName

MOST = 8_000  # characters: 32 leaves, which a plan may have, of 250 each


class Plan(BaseModel):
    """The body of `POST /api/check`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(max_length=MOST)
    language: LanguageName = "bnf"


def verdict(text: str, language: LanguageName = "bnf") -> dict[str, Any]:
    """What `PlanLanguage.verdict` says about a text, each diagnostic and doubt with its `excerpt`.

    Offsets count characters (code points) from the start of the text; `excerpt` is the line with carets under it.
    """
    found = LANGUAGES[language].verdict(text)
    return {**found, "diagnostics": _pointed(text, found["diagnostics"]), "doubts": _pointed(text, found["doubts"])}


def _pointed(text: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**d, "excerpt": excerpt(text, d["start"], d["end"])} for d in found]
