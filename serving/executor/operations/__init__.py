"""Operations over the answers of a plan's parts: compare, same, in common, count, superlative, sum, difference.

A generator need not be asked which of two dates is earlier. `compute` reads the operation from the question's own
words, the values from the answers, and gives None when it cannot be sure: an unreadable value, values of different
dimensions, a tie, a candidate that the question does not name. `compute_within` is the same for a leaf of a plan whose
placeholders stand for the earlier answers.

A reader's answer is text: "12 May 1957", "May 1957", "c. 44 BC", "1,204 km", "6 ft 2 in", "3.5 million", "twenty-one".
`parse_date` and `parse_quantity` return None for what they cannot read, and comparisons return None for what cannot be
told apart ("1957" and "May 1957") or does not belong together (metres and kilograms).
"""

from serving.executor.operations.chains import (
    compute_leaf,
    find_branches,
    find_chains_before,
    find_chains_through,
    make_parts,
)
from serving.executor.operations.compute import asks_count, compute
from serving.executor.operations.dates import Date, parse_date
from serving.executor.operations.parts import Member, Merged, Part, size_of
from serving.executor.operations.quantities import NUMBER_WORDS, Quantity, number_text, parse_quantity, unit
from serving.executor.operations.text import country, normalise
from serving.executor.operations.whole import is_value
from serving.executor.operations.within import compute_within, is_operation
from serving.executor.operations.wording import needs_judgement

__all__ = [
    "NUMBER_WORDS",
    "Date",
    "Member",
    "Merged",
    "Part",
    "Quantity",
    "asks_count",
    "compute",
    "compute_leaf",
    "compute_within",
    "country",
    "find_branches",
    "find_chains_before",
    "find_chains_through",
    "is_operation",
    "is_value",
    "make_parts",
    "needs_judgement",
    "normalise",
    "number_text",
    "parse_date",
    "parse_quantity",
    "size_of",
    "unit",
]
