"""Runs questions: routes, plans and trees, evidence, operations over answers, and the trace."""

from serving.executor.executor import Executor

__all__ = ["Executor"]
