"""Scores adapters on pinned rows, compares them, and promotes the better one."""
