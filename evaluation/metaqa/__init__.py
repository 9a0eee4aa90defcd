"""MetaQA answered from its graph."""
