"""Runs questions: routes, plans, single steps, merging, limits and the trace."""

from serving.executor.executor import Executor, Strategy
from serving.executor.limits import Limits

__all__ = ["Executor", "Limits", "Strategy"]
