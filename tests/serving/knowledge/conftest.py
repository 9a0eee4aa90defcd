"""A small graph of films, and a server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.knowledge.graph_store import build_graph
from tests.serving.knowledge.toy_web import Web, serving_web

TRIPLES = [
    ("Tin Comet", "directed_by", "Ada Quill"),
    ("Tin Comet", "starred_actors", "Bo Marsh"),
    ("Tin Comet", "starred_actors", "Cy Vane"),
    ("Tin Comet", "release_year", "1987"),
    ("Tin Comet", "has_genre", "Comedy"),
    ("Glass Harbour", "directed_by", "Ada Quill"),
    ("Glass Harbour", "starred_actors", "Bo Marsh"),
    ("Glass Harbour", "release_year", "1994"),
    ("Glass Harbour", "has_genre", "Drama"),
    ("Paper Moons", "directed_by", "Bo Marsh"),
    ("Paper Moons", "release_year", "2003"),
    ("Paper Moons", "has_genre", "Comedy"),
    ('Say "No" \\ {x}', "directed_by", "O'Hara"),
]


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    (folder / "films.tsv").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    build_graph([folder / "films.tsv"], folder / "graph")
    return folder / "graph"


@pytest.fixture
def web() -> Iterator[Web]:
    with serving_web() as web:
        yield web
