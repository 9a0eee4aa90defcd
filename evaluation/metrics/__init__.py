"""Metrics: pure functions of values, without models, files or servers."""
