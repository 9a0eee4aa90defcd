"""Operations over the answers of a plan's parts: compare, same, in common, count, superlative, sum, difference.

A generator need not be asked which of two dates is earlier. `compute` reads the operation from the question's own
words, the values from the answers, and gives None when it cannot be sure: an unreadable value, values of different
dimensions, a tie, a candidate that the question does not name. `compute_within` is the same for a leaf of a plan whose
placeholders stand for the earlier answers.
"""

from serving.merge.compute import asks_count, compute
from serving.merge.parts import Member, Merged, Part, size_of
from serving.merge.within import compute_within, is_operation
from serving.merge.wording import needs_judgement

__all__ = [
    "Member",
    "Merged",
    "Part",
    "asks_count",
    "compute",
    "compute_within",
    "is_operation",
    "needs_judgement",
    "size_of",
]
