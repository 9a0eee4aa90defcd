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
    Instruction,
    check_labels,
    pinned,
    read_split,
    shares,
    verify_set,
)


def test_a_tokenizer_that_cannot_tell_labels_apart_is_refused(tmp_path: Path, base: Path) -> None:
    check_labels(AutoTokenizer.from_pretrained(base))
    coarse = AutoTokenizer.from_pretrained(write_base(tmp_path / "coarse", words=("yes",)))
    coarse = coarse.train_new_from_iterator(["a"], vocab_size=258)  # bytes alone: both begin with the space
    with pytest.raises(ArtifactError, match="the same first token"):
        check_labels(coarse)


weights = st.dictionaries(st.sampled_from(list(TASKS)), st.floats(0.1, 10), min_size=1)
sizes = st.fixed_dictionaries({task: st.integers(1, 100_000) for task in TASKS})
temperatures = st.none() | st.floats(0.5, 100)


@given(weights, sizes, temperatures)
def test_shares_are_those_of_the_weighted_tasks_and_sum_to_one(weights, sizes, temperature) -> None:
    drawn_as = shares(weights, sizes, temperature)
    assert set(drawn_as) == set(weights)
    assert sum(drawn_as.values()) == pytest.approx(1)


@given(weights, sizes, temperatures, st.floats(0.01, 100))
def test_shares_depend_on_the_ratio_of_weights_alone(weights, sizes, temperature, factor: float) -> None:
    scaled = {task: factor * weight for task, weight in weights.items()}
    assert shares(scaled, sizes, temperature) == pytest.approx(shares(weights, sizes, temperature))


@given(sizes)
def test_temperature_one_draws_rows_evenly_and_none_draws_by_weight(sizes) -> None:
    even = shares(dict.fromkeys(TASKS, 1.0), sizes, 1.0)
    assert even == pytest.approx({task: size / sum(sizes.values()) for task, size in sizes.items()})
    assert shares({"route": 3.0, "end": 1.0}, sizes, None) == pytest.approx({"route": 0.75, "end": 0.25})
    assert shares(dict.fromkeys(TASKS, 1.0), sizes, 1e9) == pytest.approx(dict.fromkeys(TASKS, 1 / len(TASKS)))


@given(sizes, st.floats(0.5, 50), st.floats(1.01, 10))
def test_a_higher_temperature_never_lowers_the_share_of_the_smallest_task(sizes, temperature: float, more: float):
    smallest = min(sizes, key=lambda task: sizes[task])
    cool, warm = (shares(dict.fromkeys(TASKS, 1.0), sizes, t) for t in (temperature, temperature * more))
    assert warm[smallest] >= cool[smallest] * (1 - 1e-9)


def test_no_task_with_rows_and_weight_is_an_error() -> None:
    with pytest.raises(DataError, match="no row belongs to a task with a weight above zero"):
        shares({"route": 0.0, "end": 1.0}, {"route": 9}, None)


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
