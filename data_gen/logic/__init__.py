"""Logical questions over a corpus: topics, queries from templates, wordings, documents that flip a term."""
