"""Versions for others: exports for other engines, their model card, and the model hub."""
