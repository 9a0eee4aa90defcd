"""Readers of published data sets: each gives `AnnotatedQuestion`s and says what it could not use."""

from data_gen.sources.musique import read_musique
from data_gen.sources.rows import Refused, Skipped
from data_gen.sources.two_wiki import read_two_wiki
from data_gen.sources.world import read_world

__all__ = ["Refused", "Skipped", "read_musique", "read_two_wiki", "read_world"]
