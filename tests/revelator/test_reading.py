"""Rows, windows and answers of reading: offsets lead back to the text, windows leave nothing out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revelator.errors import ArtifactError, DataError
from revelator.minilm import TOKENIZER, fetch_minilm
from revelator.reading import (
    BEGIN,
    CLS,
    INSIDE,
    LIST,
    MOST_WINDOWS,
    OUTSIDE,
    SEP,
    SPAN,
    Answer,
    Calibration,
    Reader,
    ReadingRow,
    ReadingTokenizer,
    Window,
    batch_by_length,
    choose_windows,
    decode_window,
    find_tagged_spans,
    load_rows,
    pad_windows,
)
from revelator.scores import score_outcomes
from revelator.sentences import find_ends
from tests.mark_reader import TOKENS, read_mark, watch_passes

TEXTS = st.text(max_size=300)
SCRIPTS = [
    "Ada Lovelace schrieb 1843 über die Maschine.",
    "Москва — столица России, основана в 1147 году.",
    "東京は日本の首都です。人口は約1400万人。",
    "القاهرة هي عاصمة مصر، وتقع على نهر النيل.",
    "e\u0301le\u0301phant ﬁn ㎏ İstanbul 👩‍👩‍👧 \x00 \ud800 end",
    "",
]


@given(text=st.one_of(TEXTS, st.sampled_from(SCRIPTS), st.text(st.characters(), max_size=60)))
@settings(max_examples=100, deadline=None)
def test_offsets_of_any_text_lie_in_it_and_go_forward(text: str) -> None:
    ids, offsets = TOKENS.encode(text)
    assert len(ids) == len(offsets)
    assert ((offsets >= 0) & (offsets <= len(text))).all()
    assert (offsets[:, 0] <= offsets[:, 1]).all()
    assert (np.diff(offsets[:, 0]) >= 0).all()
    assert (np.diff(offsets[:, 1]) >= 0).all()
    assert all(not text[b:a].strip(" ") or a >= b for a, b in offsets)


@given(before=TEXTS, after=TEXTS)
@settings(max_examples=60, deadline=None)
def test_an_answer_is_cut_from_the_text_itself(before: str, after: str) -> None:
    """Between any two texts, in whichever window, the span's characters are those of the passage."""
    passage = f"{before} Zanzibar Quixote {after}"
    outcome = read_mark("Zanzibar Quixote").read("Who?", [("", passage)])
    (span,) = outcome.spans
    assert passage[span.start : span.end] == span.text == "Zanzibar Quixote"
    assert outcome.probability > 0.9


@given(question=TEXTS, title=TEXTS, passage=st.text(max_size=1500), stride=st.integers(1, 36))
@settings(max_examples=60, deadline=None)
def test_windows_hold_every_token_of_a_passage_and_are_no_longer_than_asked(
    question: str, title: str, passage: str, stride: int
) -> None:
    tokenizer = ReadingTokenizer(fetch_minilm() / TOKENIZER, size=128, stride=stride)
    ids, offsets = tokenizer.encode(passage)
    windows = tokenizer.cut(question, title, passage)
    covered = np.zeros(len(ids), bool)
    for number, window in enumerate(windows):
        start = number * stride
        assert len(window.ids) <= 128
        assert window.ids[0] == CLS
        assert window.ids[-1] == SEP
        assert (window.ids[window.first : -1] == ids[start : start + len(window.offsets)]).all()
        assert (window.offsets == offsets[start : start + len(window.offsets)]).all()
        covered[start : start + len(window.offsets)] = True
    assert covered.all()
    assert len(windows) >= 1


def test_an_empty_passage_and_no_passage_give_no_answer() -> None:
    reader = read_mark("Zanzibar")
    for passages in ([], [("", "")], [("Zanzibar", " \n\t")]):
        outcome = reader.read("Where?", passages)
        assert (outcome.kind, outcome.answers, outcome.probability) == ("none", (), 0.0)


def test_an_answer_in_the_middle_of_a_megabyte_is_found() -> None:
    filler = "the quick brown fox jumps over it . " * 14_000
    passage = f"{filler}The port is Zanzibar Quixote. {filler}"
    assert len(passage) > 1_000_000
    tokenizer = ReadingTokenizer(fetch_minilm() / TOKENIZER, size=384, stride=256)
    reader = read_mark("Zanzibar Quixote", tokenizer=tokenizer)
    (span,) = reader.read("Which port?", [("", passage)]).spans
    assert (span.start, span.text) == (passage.index("Zanzibar"), "Zanzibar Quixote")


@given(st.integers(0, 2**32 - 1), st.sampled_from([SPAN, LIST]))
@settings(max_examples=60)
def test_answers_are_whole_words_whatever_the_scores(seed: int, kind: int) -> None:
    text = "the Qubbivoxans sail to Zeffirandolo and Thrumquist today"
    tokenizer = ReadingTokenizer(fetch_minilm() / TOKENIZER, size=384, stride=256)
    [window] = tokenizer.cut("who sails?", "", text)
    random = np.random.default_rng(seed)
    scores, kinds = random.normal(size=(len(window.ids), 5)), np.full(5, -9.0)
    kinds[kind] = 9
    outcome = decode_window(window, scores, kinds, text, 0, Calibration())
    assert set(" ".join(outcome.answers).split()) <= set(text.split())


PIECES = ["Zanzibar", "Quixote", "port:", "Port", "of", "the", "–", "(", "…!", "9", "C. §"]


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=20),
    st.integers(0, 2**32 - 1),
    st.sampled_from([SPAN, LIST]),
)
@settings(max_examples=100)
def test_no_answer_is_punctuation_alone(said: list[str], seed: int, kind: int) -> None:
    text = " ".join(said)
    [window] = ReadingTokenizer(fetch_minilm() / TOKENIZER).cut("Which port?", "", text)
    random = np.random.default_rng(seed)
    scores, kinds = random.normal(size=(len(window.ids), 5)), np.full(5, -9.0)
    kinds[kind] = 9
    outcome = decode_window(window, scores, kinds, text, 0, Calibration())
    assert all(re.search(r"\w", span.text) for span in outcome.spans)
    if not outcome.spans:
        assert (outcome.kind, outcome.probability) == ("none", 0.0)


def test_a_list_goes_on_in_passages_of_its_title_and_in_no_others() -> None:
    reader = read_mark("Zanzibar", "list")
    outcome = reader.read(
        "Who?", [("Staff", "zanzibar"), ("Ports", "Zanzibar is one of them."), ("Staff", "ZANZIBAR.")]
    )
    assert [(span.passage, span.text) for span in outcome.spans] == [(0, "zanzibar"), (2, "ZANZIBAR")]
    outcome = reader.read("Who?", [("", "zanzibar"), ("", "ZANZIBAR has no title, either.")])
    assert [span.passage for span in outcome.spans] == [0]


def make_window(asked: set[int], held: set[int]) -> Window:
    ids = [CLS, *sorted(asked), SEP, *sorted(held), SEP]
    types = [0] * (len(asked) + 2) + [1] * (len(held) + 1)
    return Window(
        np.array(ids), np.array(types), np.zeros((len(held), 2), int), np.zeros(len(held), bool), len(asked) + 2
    )


TOKEN_SETS = st.sets(st.integers(1000, 1008))


@given(TOKEN_SETS, st.lists(TOKEN_SETS, min_size=1, max_size=12), st.integers(1, 12))
def test_no_window_is_left_out_for_one_that_holds_less_of_the_question(
    asked: set[int], held: list[set[int]], most: int
) -> None:
    chosen = choose_windows([make_window(asked, each) for each in held], most)
    assert chosen == sorted(set(chosen)) and len(chosen) == min(most, len(held))
    left = [asked & held[i] for i in range(len(held)) if i not in chosen]
    assert not any(asked & held[i] < other for i in chosen for other in left)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_of_a_long_passage_few_windows_are_read_and_the_one_with_the_rarest_words_is_among_them(
    before: int, after: int, copies: int
) -> None:
    filler = "Which river is it, and where does the river of the town rise? "
    passage = f"{filler * before}The source of the Lunsurova is Zanzibar Quixote. {filler * after}"
    reader = read_mark("Zanzibar Quixote")
    passes = watch_passes(reader)
    outcome = reader.read("Where does the river Lunsurova rise?", [("", filler * 100)] * copies + [("", passage)])
    assert outcome.answers == ("Zanzibar Quixote",)
    assert sum(passes) <= MOST_WINDOWS


def test_the_best_passage_wins_and_a_span_names_it() -> None:
    passages = [("A", "Nothing is said here."), ("B", "It lies on Zanzibar Quixote."), ("C", "Nor here.")]
    outcome = read_mark("Zanzibar Quixote").read("Where?", passages)
    assert [(span.passage, span.text) for span in outcome.spans] == [(1, "Zanzibar Quixote")]


def test_scores_that_are_no_numbers_are_an_error() -> None:
    def forward(ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full((*ids.shape, 5), np.nan), np.zeros((len(ids), 5))

    with pytest.raises(ArtifactError, match="no numbers"):
        Reader(TOKENS, forward, Calibration()).read("Who?", [("", "Someone.")])


def test_tags_give_the_items_of_a_list() -> None:
    tags = np.array([OUTSIDE, BEGIN, INSIDE, OUTSIDE, INSIDE, INSIDE, BEGIN, BEGIN]) - OUTSIDE
    assert find_tagged_spans(np.eye(3)[tags]) == [(1, 2), (4, 5), (6, 6), (7, 7)]


@given(lengths=st.lists(st.integers(1, 400), max_size=60), tokens=st.integers(1, 2000))
def test_batches_hold_each_window_once_within_their_bound(lengths: list[int], tokens: int) -> None:
    batches = list(batch_by_length(lengths, tokens))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= tokens for batch in batches)


def test_padding_is_masked() -> None:
    windows = [*TOKENS.cut("Who?", "", "A b c."), *TOKENS.cut("Who was it then?", "Title", "Another, longer passage.")]
    ids, mask, types = pad_windows(windows)
    assert ids.shape == mask.shape == types.shape
    assert mask.sum(1).tolist() == [len(window.ids) for window in windows]
    assert not ids[mask == 0].any()


def test_a_row_survives_its_file(tmp_path: Path) -> None:
    rows = [
        ReadingRow("1", "Who?", "Ada and Bo.", "T", (Answer("Ada", 0), Answer("Bo", 8)), is_list=True),
        ReadingRow("2", "Was it?", "It was.", verdict="yes"),
        ReadingRow("3", "When?", ""),
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{row.to_json()}\n" for row in rows))
    assert load_rows(path) == rows


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ('{"question": "Q", "passage": "P"}', "'answers'"),
        ('{"question": "Q", "passage": 3, "answers": []}', "must be text"),
        ('{"question": "Q", "passage": "abc", "answers": [{"text": "b", "start": 2}]}', "does not say 'b'"),
        ('{"question": "Q", "passage": "abc", "answers": [], "verdict": "maybe"}', "yes or no"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "Q", "passage": "P", "answers": []}\n' + line + "\n")
    with pytest.raises(DataError, match=reason) as error:
        load_rows(path)
    assert error.value.where == f"{path}, line 2"


def test_scores_count_answers_lists_and_who_answers_at_all() -> None:
    passage = "Zanzibar Quixote and Bo were there."
    rows = [
        ReadingRow("1", "Who?", passage, answers=(Answer("Zanzibar Quixote", 0),)),
        ReadingRow("2", "Who?", passage, answers=(Answer("Zanzibar Quixote", 0), Answer("Bo", 21)), is_list=True),
        ReadingRow("3", "Who?", "Nobody was."),
    ]
    reader = read_mark("Zanzibar Quixote")
    scores = score_outcomes(rows, reader.read_all([(row.question, [("", row.passage)]) for row in rows]))
    assert scores.n == 3
    assert scores.em == 0.5
    assert scores.f1 == pytest.approx((1 + 0.8) / 2)
    assert scores.no_answer_auc == 1.0
    assert scores.span_f1 == pytest.approx(2 * 1 / (1 + 2))
    assert score_outcomes(rows[2:], reader.read_all([("Who?", [("", "No.")])])).to_json()["f1"] is None


@given(st.lists(st.lists(st.sampled_from(["Prisca", "Verlag", "J. Smith", "2.5", "ran"]), min_size=1), min_size=1))
def test_a_span_lies_in_one_sentence(sentences: list[list[str]]) -> None:
    text = " ".join(f"The {' '.join(words)}." for words in sentences)
    [window] = TOKENS.cut("Who?", "", text)[:1]
    scores, kinds = np.full((len(window.ids), 5), -4.0), np.array([4.0, 0, 0, 0, -4])
    scores[window.first, 0] = scores[window.first + len(window.offsets) - 1, 1] = 9.0
    [found] = decode_window(window, scores, kinds, text, 0, Calibration()).spans
    assert not any(found.start < end < found.end for end in find_ends(text))
