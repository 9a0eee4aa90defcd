"""Beam search finds what enumeration finds; of the likeliest texts the soundest one is taken."""

from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.beams import Beams
from serving.engines.choice import soundest

VOCABULARY, ROOM, END = 4, 4, 0


def enumerated(table: torch.Tensor, rows: int) -> list[list[tuple[float, list[int]]]]:
    """Every text of at most ROOM tokens, its end among them, with its log probability, by row, likeliest first.

    `table` (rows, ROOM, vocabulary before, vocabulary) gives the logits after a token; nothing before is token END."""
    odds = table.log_softmax(-1)
    found: list[list[tuple[float, list[int]]]] = [[] for _ in range(rows)]
    for row, length in product(range(rows), range(ROOM)):
        for text in product(range(1, VOCABULARY), repeat=length):
            path = [END, *text, END]
            score = sum(float(odds[row, i, a, b]) for i, (a, b) in enumerate(pairwise(path)))
            found[row].append((score, list(text)))
    return [sorted(own, key=lambda pair: -pair[0]) for own in found]


def searched(table: torch.Tensor, rows: int, width: int) -> list[list[list[int]]]:
    beams = Beams(rows, width, END)
    logits = table[:, 0, END].repeat_interleave(width, 0)
    for place in range(1, ROOM + 1):
        beams.step(logits)
        if not beams.alive or place == ROOM:
            break
        owners = torch.tensor(beams.alive).repeat_interleave(width)
        logits = table[owners, place, torch.tensor(beams.tokens)]
    return beams.found()


@given(st.integers(0, 2**31), st.integers(1, 3))
def test_a_wide_search_finds_the_likeliest_texts(seed: int, rows: int) -> None:
    table = 3 * torch.randn((rows, ROOM, VOCABULARY, VOCABULARY), generator=torch.Generator().manual_seed(seed))
    texts = [[text for _, text in own] for own in enumerated(table, rows)]
    width = len(texts[0])  # as wide as there are texts: nothing is left out
    found = searched(table, rows, width)
    assert [own[:5] for own in found] == [own[:5] for own in texts]


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_rows_do_not_touch_one_another_and_scores_fall(seed: int, width: int) -> None:
    table = 3 * torch.randn((3, ROOM, VOCABULARY, VOCABULARY), generator=torch.Generator().manual_seed(seed))
    together = searched(table, 3, width)
    assert together == [searched(table[row : row + 1], 1, width)[0] for row in range(3)]
    for own, known in zip(together, enumerated(table, 3), strict=True):
        places = [[text for _, text in known].index(text) for text in own]
        assert places == sorted(places) and len(own) <= width


def test_a_beam_of_one_is_the_greedy_text() -> None:
    table = torch.randn((1, ROOM, VOCABULARY, VOCABULARY), generator=torch.Generator().manual_seed(1))
    table[:, :, 1:, END] = 9.0
    first = int(table[0, 0, END, 1:].argmax()) + 1
    table[0, 0, END, END] = -9.0
    assert searched(table, 1, 1) == [[[first]]]


@pytest.mark.parametrize(
    ("texts", "taken"),
    [
        (["Who directed Tin Comet?", "Who directed The Tin Comet?"], 1),
        (["Who directed The Tin Comet?", "Who is the director of The Tin Comet?"], 0),
        (["Who directed (The Tin Comet?", "Who directed Tin?"], 1),
        (["Who directed (The Tin Comet?", "{x}"], None),
        ([], None),
    ],
    ids=["a name is whole", "the likeliest of equals", "what does not check is out", "none checks", "nothing"],
)
def test_the_soundest_text_is_taken(texts: list[str], taken: int | None) -> None:
    assert soundest("translate_bnf", "When did the director of The Tin Comet die?", texts) == taken


def test_a_genitive_and_the_end_of_a_sentence_are_no_part_of_a_name() -> None:
    question = "Name Ada Quill's village in the U.S."
    assert soundest("translate_bnf", question, ["Which village?", "Where in the U.S. was Ada Quill born?"]) == 1
