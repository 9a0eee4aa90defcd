"""Runs questions: routes, plans and trees, evidence, operations over answers, and the trace."""
