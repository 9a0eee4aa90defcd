"""The language of plans: parse, render, check, bind and draw."""

from revelator.errors import ExpressionError
from revelator.plans.binding import Binding, bind
from revelator.plans.checking import Diagnostic, check, doubts
from revelator.plans.drawing import letters_key, to_json, to_letters, to_mermaid, to_tree
from revelator.plans.expression import Atomic, Dependent, Expression, Sequence, leaves, placeholders, substitute
from revelator.plans.parser import parse
from revelator.plans.rendering import render

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
