"""Rows of tables as lines, and back."""

from hypothesis import given
from hypothesis import strategies as st

from revelator.tables import read_row, say_row, write_row

words = (
    st.text("abcdefgh ", min_size=1, max_size=12).map(str.strip).filter(bool).map(lambda text: " ".join(text.split()))
)


@given(st.lists(st.tuples(words, words), min_size=3, max_size=6))
def test_a_row_that_was_written_is_read(pairs):
    assert read_row(write_row(*zip(*pairs, strict=True))) == pairs


@given(st.lists(st.tuples(words, words), min_size=2, max_size=6))
def test_what_is_said_of_a_row_has_its_key_and_every_value(pairs):
    said = say_row(pairs)
    assert all(f"For {pairs[0][1]}, the {name} is {value}." in said for name, value in pairs[1:])


@given(st.sampled_from(["", "A sentence.", "Editor: Jon Abel", "See A; then B: both.", ": ; :"]))
def test_what_is_no_row_is_not_read(line):
    assert read_row(line) == []
