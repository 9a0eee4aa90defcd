"""ITLR's template benchmark: 32 logical queries, filled from the synthetic world or from SciFact's abstracts."""
