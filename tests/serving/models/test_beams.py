"""Beam search finds what enumeration finds; of the likeliest texts the soundest one is taken."""

import json
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from revelator.plans.names import find_name_words
from revelator.tasks import TRANSLATE_ART, TRANSLATE_BNF, TRANSLATE_LOGIC
from serving.models.decoding import Beam, Beams
from serving.models.local import choose_plan

VOCABULARY, ROOM, END = 4, 4, 0


def enumerated(table: torch.Tensor, rows: int) -> list[list[tuple[float, list[int]]]]:
    """Every text of at most ROOM tokens, its end among them, with its log probability, by row, likeliest first.

    `table` (rows, ROOM, vocabulary before, vocabulary) gives the logits after a token; nothing before is token END."""
    log_probabilities = table.log_softmax(-1)
    found: list[list[tuple[float, list[int]]]] = [[] for _ in range(rows)]
    for row, length in product(range(rows), range(ROOM)):
        for text in product(range(1, VOCABULARY), repeat=length):
            path = [END, *text, END]
            score = sum(float(log_probabilities[row, i, a, b]) for i, (a, b) in enumerate(pairwise(path)))
            found[row].append((score, list(text)))
    return [sorted(own, key=lambda pair: -pair[0]) for own in found]


def search(table: torch.Tensor, rows: int, width: int) -> list[list[Beam]]:
    beams = Beams(rows, width, END)
    log_probabilities = table.log_softmax(-1).numpy()
    found = log_probabilities[:, 0, END].repeat(width, 0)
    for place in range(1, ROOM + 1):
        tokens = np.argsort(found, axis=1)
        beams.step(np.take_along_axis(found, tokens, 1), tokens)
        if not beams.alive or place == ROOM:
            break
        found = log_probabilities[np.repeat(beams.alive, width), place, beams.tokens]
    return beams.list_found()


def searched(table: torch.Tensor, rows: int, width: int) -> list[list[list[int]]]:
    return [[beam.text for beam in own] for own in search(table, rows, width)]


@given(st.integers(0, 2**31), st.integers(1, 3))
def test_a_wide_search_finds_the_likeliest_texts(seed: int, rows: int) -> None:
    table = 3 * torch.randn((rows, ROOM, VOCABULARY, VOCABULARY), generator=torch.Generator().manual_seed(seed))
    texts = enumerated(table, rows)
    width = len(texts[0])  # as wide as there are texts: nothing is left out
    for found, own in zip(search(table, rows, width), texts, strict=True):
        assert [beam.text for beam in found[:5]] == [text for _, text in own[:5]]
        assert [beam.score for beam in found[:5]] == pytest.approx([score for score, _ in own[:5]], abs=1e-4)


def plainly_searched(table: torch.Tensor, row: int, width: int) -> list[list[int]]:
    """The same search of one row, to the last step: nothing tells it that no beam can win any more."""
    log_probabilities = table.log_softmax(-1)
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    found: list[tuple[float, list[int]]] = []
    for place in range(ROOM):
        steps = [
            (score + float(log_probabilities[row, place, text[-1] if text else END, token]), text, token)
            for score, text in beams
            for token in range(VOCABULARY)
        ]
        best = sorted(steps, key=lambda step: -step[0])[: 2 * width]
        found += [(score, text) for score, text, token in best[:width] if token == END]
        beams = [(score, [*text, token]) for score, text, token in best if token != END][:width]
    return [text for _, text in sorted(found, key=lambda pair: -pair[0])[:width]]


@given(st.integers(0, 2**31), st.integers(1, 4))
def test_rows_do_not_touch_one_another_and_ending_early_loses_nothing(seed: int, width: int) -> None:
    table = 3 * torch.randn((3, ROOM, VOCABULARY, VOCABULARY), generator=torch.Generator().manual_seed(seed))
    assert searched(table, 3, width) == [plainly_searched(table, row, width) for row in range(3)]


def test_a_search_ends_once_no_beam_can_win() -> None:
    beams = Beams(1, 1, END)
    beams.step(np.array([[-0.1, -9.0, -9.0, -9.0]]), np.array([[END, 1, 2, 3]]))
    assert beams.alive == [] and [beam.text for [beam] in beams.list_found()] == [[]]


def test_a_beam_of_one_is_the_greedy_text() -> None:
    table = torch.randn((1, ROOM, VOCABULARY, VOCABULARY), generator=torch.Generator().manual_seed(1))
    table[:, :, 1:, END] = 9.0
    first = int(table[0, 0, END, 1:].argmax()) + 1
    table[0, 0, END, END] = -9.0
    assert searched(table, 1, 1) == [[[first]]]


@pytest.mark.parametrize(
    ("texts", "taken"),
    [
        (["Who directed Comet?", "Who directed Tin Comet?"], 1),
        (["Who directed Tin Comet?", "Who is the director of Tin Comet?"], 0),
        (["Who directed The Comet?", "Who directed Tin Comet 2?"], 1),
        (["Who directed (Tin Comet?", "Who directed Tin?"], 1),
        (["Who directed\nTin Comet?", "Who directed Tin?"], 1),
        (["Who is the director of Comet? * When did {Tin} die?", "Who directed Tin Comet? * When did {x} die?"], 1),
        (["Who directed (The Tin Comet?", "{x}"], None),
        ([], None),
    ],
    ids=[
        "a name is whole",
        "the likeliest of equals",
        "most of the names",
        "what does not check is out",
        "so are control characters",
        "a placeholder is no name",
        "none checks",
        "nothing",
    ],
)
def test_the_soundest_text_is_taken(texts: list[str], taken: int | None) -> None:
    assert choose_plan(TRANSLATE_BNF, "When did the director of Tin Comet 2 die?", texts) == taken


def test_a_tree_keeps_names_where_it_asks_and_not_where_it_repeats_the_question() -> None:
    question = "Who is the spouse of the director of Émile Comet?"
    trees = [
        {"question": question, "children": [{"question": f"Who directed {name}?", "search": {"name": name}}]}
        for name in ("Comet", "Émile Comet")
    ]
    for escaped in (True, False):
        texts = [json.dumps(tree, ensure_ascii=escaped) for tree in trees]
        assert choose_plan(TRANSLATE_ART, question, texts) == 1


@given(
    name=st.sampled_from(("łóşéñøćű", "абвгдежч", "αβγδε", "雪国物語", "مصنعسعاد")).flatmap(
        lambda letters: st.text(letters, min_size=2, max_size=10)
    ),
    written=st.text(max_size=10),
)
def test_a_name_of_any_script_is_kept_or_the_question_is_asked_as_it_stands(name: str, written: str) -> None:
    question = f"When was the director of {name} born?"
    wrong, right = (f"Who is the director of {w}? * When was {{director}} born?" for w in (written, name))
    assert choose_plan(TRANSLATE_BNF, question, [wrong]) is None or name in written
    assert choose_plan(TRANSLATE_BNF, question, [wrong, right]) is not None


@pytest.mark.parametrize(("keeps_words", "taken"), [(True, 1), (False, 0)])
def test_a_text_may_lose_a_word_that_ascii_cannot_write_where_any_words_do(keeps_words: bool, taken: int) -> None:
    texts = ["Who is the director of Ol?", "Who is the director of Öl?"]
    assert choose_plan(TRANSLATE_BNF, "Who is the director of Öl?", texts, False, keeps_words) == taken


def test_a_query_keeps_names_in_its_terms() -> None:
    assert choose_plan(TRANSLATE_LOGIC, "about Tin Comet, not Mars", ['"Comet"', '"Tin Comet" AND NOT "Mars"']) == 1


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("When did Ada Quill's village join the U.S.?", ["Ada", "Quill", "U.S"]),
        ("Who married Sammy Davis Jr.'s mother?", ["Sammy", "Davis", "Jr"]),
        ("Who directed The Wall?", ["The", "Wall"]),
        ("The director of Jaws is who?", ["Jaws"]),
        ("Please tell me: who directed Jaws?", ["Jaws"]),
        ("I wonder, who directed Jaws?", ["Jaws"]),
        ("Tin Comet was released in 1999. When did its director die?", ["Comet", "1999"]),
        ("who founded AT&T and O'Neill-Smith", ["AT&T", "O'Neill-Smith"]),
        ("Émile, Émile and 東京", ["Émile"]),
        ("", []),
    ],
)
def test_names_of_a_question(question: str, names: list[str]) -> None:
    assert find_name_words(question) == names
