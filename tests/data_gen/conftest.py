"""Made-up questions in the published formats of MuSiQue and 2WikiMultiHopQA."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MUSIQUE = [
    {
        "id": "2hop__1_2",
        "question": "Who founded the company that distributed the film Tin Comet?",
        "question_decomposition": [
            {
                "id": 1,
                "question": "Tin Comet >> distributed by",
                "answer": "Harrow Pictures",
                "paragraph_support_idx": 1,
            },
            {"id": 2, "question": "#1 >> founded by", "answer": "Ada Quill", "paragraph_support_idx": 2},
        ],
        "paragraphs": [
            {"idx": 0, "title": "Tin Soldier", "paragraph_text": "A song of 1931.", "is_supporting": False},
            {
                "idx": 1,
                "title": "Tin Comet (film)",
                "paragraph_text": "Harrow Pictures sent it out.",
                "is_supporting": True,
            },
            {"idx": 2, "title": "Harrow Pictures", "paragraph_text": "Ada Quill founded it.", "is_supporting": True},
            {"idx": 3, "title": "Quill", "paragraph_text": "A feather to write with.", "is_supporting": False},
        ],
        "answer": "Ada Quill",
        "answer_aliases": ["A. Quill"],
        "answerable": True,
    },
    {
        "id": "3hop2__3_4_5",
        "question": "When did the maker of the Plover and the company that owns Bexley Gin merge?",
        "question_decomposition": [
            {"id": 3, "question": "who made the plover", "answer": "Morrow Works", "paragraph_support_idx": 0},
            {"id": 4, "question": "Bexley Gin >> owned by", "answer": "Stane Ltd", "paragraph_support_idx": 1},
            {"id": 5, "question": "when did #1 and #2 merge ?", "answer": "1961", "paragraph_support_idx": 2},
        ],
        "answer": "1961",
        "answer_aliases": [],
        "answerable": True,
    },
]
TWO_WIKI = [
    {
        "_id": "bc1",
        "type": "bridge_comparison",
        "question": "Which film has the director born first, Salt Road or The Blue Kiln (1934 Film)?",
        "supporting_facts": [["The Blue Kiln (1934 film)", 0], ["Salt Road", 0], ["Eno Vard", 0], ["Mila Tross", 0]],
        "evidences": [
            ["The Blue Kiln", "director", "Eno Vard"],
            ["Salt Road", "director", "Mila Tross"],
            ["Eno Vard", "date of birth", "3 May 1899"],
            ["Mila Tross", "date of birth", "7 June 1901"],
        ],
        "answer": "The Blue Kiln (1934 Film)",
        "context": [
            ["Salt Road", ["Salt Road is a film.", "Mila Tross directed it."]],
            ["The Blue Kiln (1934 film)", ["Eno Vard directed it."]],
            ["Eno Vard", ["Born 3 May 1899."]],
            ["Mila Tross", ["Born 7 June 1901."]],
            ["Kiln", ["A kiln is an oven."]],
        ],
    },
    {
        "_id": "c1",
        "type": "comparison",
        "question": "Are Orn Fell and Lake Sedge located in the same country?",
        "supporting_facts": [["Orn Fell", 0], ["Lake Sedge", 0]],
        "evidences": [["Orn Fell", "country", "Norway"], ["Lake Sedge", "country", "Chile"]],
        "answer": "no",
    },
    {
        "_id": "i1",
        "type": "inference",
        "question": "Who is Odo Of Marn's paternal grandfather?",
        "supporting_facts": [["Odo of Marn", 0], ["Guy of Marn", 0]],
        "evidences": [["Odo of Marn", "father", "Guy of Marn"], ["Guy of Marn", "father", "Ebbo"]],
        "answer": "Ebbo",
    },
    {
        "_id": "p1",
        "type": "compositional",
        "question": "Where was the performer of song Ember Lane (Ria Sol Song) born?",
        "supporting_facts": [["Ember Lane (Ria Sol song)", 0], ["Ria Sol", 0]],
        "evidences": [["Ember Lane", "performer", "Ria Sol"], ["Ria Sol", "place of birth", "Tarn"]],
        "answer": "Tarn",
    },
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as JSON lines (gzipped if the name says so) or, for a name in .json, as one array."""

    def _write(name: str, rows: list[Any]) -> Path:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        text = f"[{','.join(lines)}]" if ".jsonl" not in name else "\n".join(lines) + "\n"
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return _write


@pytest.fixture
def musique(write: Callable[..., Path]) -> Path:
    return write("musique.jsonl.gz", MUSIQUE)


@pytest.fixture
def two_wiki(write: Callable[..., Path]) -> Path:
    return write("two_wiki.json", TWO_WIKI)


@pytest.fixture
def two_wiki_rows() -> list[dict[str, Any]]:
    return TWO_WIKI


@pytest.fixture
def musique_rows() -> list[dict[str, Any]]:
    return MUSIQUE
