"""The languages of plans: the names of `bnf`, in which most plans are written. `logic` and `art` are the other two, and
`language` describes all three by values of one class."""

from revelator.errors import ExpressionError
from revelator.plans.binding import Binding, bind
from revelator.plans.bnf import (
    Atomic,
    Dependent,
    Expression,
    Sequence,
    leaves,
    parse,
    placeholders,
    render,
    substitute,
)
from revelator.plans.checking import check, doubts
from revelator.plans.drawing import draw_tree, letters_key, to_json, to_letters
from revelator.plans.faults import Diagnostic

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
    "draw_tree",
    "leaves",
    "letters_key",
    "parse",
    "placeholders",
    "render",
    "substitute",
    "to_json",
    "to_letters",
]
