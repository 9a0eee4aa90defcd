"""Readers of published data sets: each gives `AnnotatedQuestion`s and says what it could not use."""
