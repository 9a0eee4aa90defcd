"""Reading, tokenising and ordering instruction sets."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from revelator.errors import ArtifactError, DataError
from revelator.tasks import TASKS
from tests.training.toy import write_base, write_set
from training.instructions import (
    IGNORED,
    Instruction,
    TokenRow,
    check_labels,
    keep_whole,
    pinned,
    read_split,
    tokenise,
    training_order,
    verify_set,
)

task_rows = st.lists(
    st.builds(
        lambda task, length: TokenRow(task, [1] * length, [1] * length),
        st.sampled_from(list(TASKS)),
        st.integers(2, 40),
    ),
    min_size=1,
    max_size=60,
)


@given(rows=task_rows, batch_size=st.integers(1, 8), steps=st.integers(1, 40), seed=st.integers(0, 9))
def test_the_order_fills_every_step_and_shows_each_row_of_a_task_before_any_again(
    rows: list[TokenRow], batch_size: int, steps: int, seed: int
) -> None:
    order = training_order(rows, dict.fromkeys(TASKS, 1.0), batch_size=batch_size, steps=steps, seed=seed)
    assert len(order) == batch_size * steps
    seen = Counter(order)
    for task in {row.task for row in rows}:
        times = [seen[i] for i, row in enumerate(rows) if row.task == task]
        assert max(times) - min(times) <= 1
    assert order == training_order(rows, dict.fromkeys(TASKS, 1.0), batch_size=batch_size, steps=steps, seed=seed)


def test_a_batch_holds_rows_of_like_length_and_tasks_come_by_their_shares() -> None:
    random = Random(0)
    rows = [
        TokenRow(task, [1] * (n := random.randint(5, 200)), [1] * n) for task in ("route", "end") for _ in range(300)
    ]
    order = training_order(rows, {"route": 3.0, "end": 1.0}, batch_size=16, steps=100, seed=1)
    lengths = [len(rows[i].input_ids) for i in order]
    padded = sum(max(lengths[i : i + 16]) * 16 for i in range(0, len(lengths), 16))
    assert sum(lengths) / padded > 0.9
    share = sum(rows[i].task == "route" for i in order) / len(order)
    assert 0.70 < share < 0.80


def test_only_the_completion_and_its_end_token_count_for_the_loss(base: Path, set_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = read_split(set_folder, "dev")
    for row, tokens in zip(rows, tokenise(rows, tokenizer), strict=True):
        learnt = [i for i in tokens.labels if i != IGNORED]
        assert tokenizer.decode(learnt) == row.completion + tokenizer.eos_token
        assert tokenizer.decode(tokens.input_ids) == row.prompt + row.completion + tokenizer.eos_token


def test_a_completion_that_joins_the_prompt_is_refused(base: Path) -> None:
    joined = Instruction("row-1", "refine", "Question: Who is the may", "or of Port Velm?", "", '""')
    with pytest.raises(ArtifactError, match=r"row row-1 .* across their boundary"):
        tokenise([joined], AutoTokenizer.from_pretrained(base))


def test_a_tokenizer_that_cannot_tell_labels_apart_is_refused(tmp_path: Path, base: Path) -> None:
    check_labels(AutoTokenizer.from_pretrained(base))
    coarse = AutoTokenizer.from_pretrained(write_base(tmp_path / "coarse", words=("yes",)))
    coarse = coarse.train_new_from_iterator(["a"], vocab_size=258)  # bytes alone: both begin with the space
    with pytest.raises(ArtifactError, match="the same first token"):
        check_labels(coarse)


def test_rows_that_are_too_long_are_counted_and_refused_above_the_limit() -> None:
    rows = [TokenRow("end", [1] * n, [1] * n) for n in (5, 5, 5, 50)]
    assert keep_whole(rows, 10, limit=0.25) == (rows[:3], 1)
    with pytest.raises(DataError, match="1 of 4 rows are longer than 10 tokens") as caught:
        keep_whole(rows, 10, limit=0.2)
    assert "50 tokens" in str(caught.value)


@given(seed=st.integers(0, 100), each=st.integers(1, 5))
def test_the_pinned_slice_does_not_depend_on_the_order_of_rows(seed: int, each: int) -> None:
    rows = [Instruction(f"{task}-{n}", task, "", "", "", "") for task in ("end", "route") for n in range(9)]
    shuffled = Random(seed).sample(rows, len(rows))
    chosen = pinned(rows, each)
    assert pinned(shuffled, each) == chosen
    assert Counter(row.task for row in chosen) == {"end": each, "route": each}


def test_a_set_of_other_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="built with other prompts: its prompt hash is 0123"):
        verify_set(write_set(tmp_path / "old", train=1, dev=1, hashed="0123" * 16))


def test_a_changed_file_an_unfinished_set_and_an_empty_split_are_refused(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", train=0, dev=1)
    verify_set(folder)
    with pytest.raises(DataError, match=r"train\.parquet: the split is empty"):
        read_split(folder, "train")
    (folder / "dev.parquet").write_bytes(b"changed")
    with pytest.raises(DataError, match=r"dev\.parquet: missing, or changed"):
        verify_set(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match="build did not finish"):
        verify_set(folder)
