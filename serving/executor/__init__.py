"""Runs questions: routes, plans, single steps, merging, limits and the trace."""

from revelator.limits import Limits, Strategy
from serving.executor.executor import Executor

__all__ = ["Executor", "Limits", "Strategy"]
