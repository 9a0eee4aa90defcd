"""ITLR's benchmark of logical queries: cases with labels by construction, and how each way to search ranks them."""
