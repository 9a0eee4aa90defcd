"""Exact operations over the answers of a plan's parts: compare, subtract, add up, count, intersect, same or not.

A generator need not be asked which of two dates is earlier. What code is not sure of is None and left to the generator.
"""

from serving.executor.operations.compute import compute, compute_within, is_operation
from serving.executor.operations.parts import Member, Merged, Part, find_branches, find_chains_before, measure_parts
from serving.executor.operations.values import parse_date, parse_quantity
from serving.executor.operations.wording import OF_SEVERAL, asks_count, can_be_read, needs_judgement, says_neither

__all__ = [
    "OF_SEVERAL",
    "Member",
    "Merged",
    "Part",
    "asks_count",
    "can_be_read",
    "compute",
    "compute_within",
    "find_branches",
    "find_chains_before",
    "is_operation",
    "measure_parts",
    "needs_judgement",
    "parse_date",
    "parse_quantity",
    "says_neither",
]
