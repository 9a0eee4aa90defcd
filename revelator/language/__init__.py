"""The language of plans: parse, render, check, bind and draw."""

from revelator.errors import ExpressionError
from revelator.language.binding import Binding, bind
from revelator.language.check import Diagnostic, check, doubts
from revelator.language.drawing import letters_key, to_json, to_letters, to_mermaid, to_tree
from revelator.language.expression import (
    Atomic,
    Dependent,
    Expression,
    Sequence,
    leaves,
    placeholders,
    substitute,
)
from revelator.language.parser import parse
from revelator.language.render import render

__all__ = [
    "Atomic",
    "Binding",
    "Dependent",
    "Diagnostic",
    "Expression",
    "ExpressionError",
    "Sequence",
    "bind",
    "check",
    "doubts",
    "leaves",
    "letters_key",
    "parse",
    "placeholders",
    "render",
    "substitute",
    "to_json",
    "to_letters",
    "to_mermaid",
    "to_tree",
]
