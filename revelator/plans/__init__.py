"""The languages of plans: the names of `bnf`, in which most plans are written. `logic` and `art` are the other two, and
`language` describes all three by values of one class."""

from revelator.errors import ExpressionError
from revelator.plans.binding import bind, spell_by_numbers
from revelator.plans.bnf import (
    Atomic,
    Dependent,
    Expression,
    Operation,
    Sequence,
    list_leaves,
    list_placeholders,
    list_steps,
    parse,
    render,
    substitute,
)
from revelator.plans.checking import check
from revelator.plans.drawing import draw_tree, make_letters_key, to_json, to_letters
from revelator.plans.faults import Diagnostic
from revelator.plans.graph import Graph

__all__ = [
    "Atomic",
    "Dependent",
    "Diagnostic",
    "Expression",
    "ExpressionError",
    "Graph",
    "Operation",
    "Sequence",
    "bind",
    "check",
    "draw_tree",
    "list_leaves",
    "list_placeholders",
    "list_steps",
    "make_letters_key",
    "parse",
    "render",
    "spell_by_numbers",
    "substitute",
    "to_json",
    "to_letters",
]
