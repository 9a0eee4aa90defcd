"""The atomic reasoning tree, the third language of plans: parse, render, check (AtomR, section 3.2)."""

from revelator.plans.art_checking import Fault, check
from revelator.plans.art_drawing import spelled, to_tree
from revelator.plans.art_reading import parse, render, schema, schema_text, to_json
from revelator.plans.art_tree import (
    MAX_DEPTH,
    Art,
    Call,
    Filter,
    Numbered,
    Relate,
    Search,
    depth,
    escape,
    numbered,
    references,
    substitute,
    substitute_each,
    substituted_size,
)

__all__ = [
    "MAX_DEPTH",
    "Art",
    "Call",
    "Fault",
    "Filter",
    "Numbered",
    "Relate",
    "Search",
    "check",
    "depth",
    "escape",
    "numbered",
    "parse",
    "references",
    "render",
    "schema",
    "schema_text",
    "spelled",
    "substitute",
    "substitute_each",
    "substituted_size",
    "to_json",
    "to_tree",
]
