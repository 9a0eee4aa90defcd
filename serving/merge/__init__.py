"""Exact operations over the answers of a plan's parts: compare, subtract, add up, count, intersect, same or not.

A generator need not be asked which of two dates is earlier. What code is not sure of is None and left to the generator.
"""
