"""Rows as tokens, the file that holds those of a split, and the order of training."""

from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from revelator.errors import ArtifactError, DataError
from revelator.rows import read_split
from revelator.tasks import TASKS
from tests.training.toy import toy_row, write_base, write_set
from training.tokens import (
    IGNORED,
    check_labels,
    cut_step,
    draw_indices,
    join_tables,
    load_token_table,
    order_rows,
    order_rows_by_tokens,
    select_fitting,
    share_tasks,
    tokenise,
)

rows_of_tasks = st.lists(st.tuples(st.sampled_from(list(TASKS)), st.integers(2, 40)), min_size=1, max_size=60)


@given(rows=rows_of_tasks, batch_size=st.integers(1, 8), steps=st.integers(1, 40), seed=st.integers(0, 9))
def test_the_order_fills_every_step_and_shows_each_row_of_a_task_before_any_again(
    rows: list[tuple[str, int]], batch_size: int, steps: int, seed: int
) -> None:
    tasks, lengths = zip(*rows, strict=True)
    weights = dict.fromkeys(TASKS, 1.0)
    made = order_rows(tasks, lengths, weights, batch_size=batch_size, steps=steps, seed=seed)
    assert [len(step) for step in made] == [batch_size] * steps
    order = [row for step in made for row in step]
    seen = Counter(order)
    for task in set(tasks):
        times = [seen[i] for i, own in enumerate(tasks) if own == task]
        assert max(times) - min(times) <= 1
    assert made == order_rows(tasks, lengths, weights, batch_size=batch_size, steps=steps, seed=seed)


@given(
    rows=rows_of_tasks,
    tokens=st.integers(80, 400),
    parts=st.integers(1, 2),
    count=st.integers(1, 200),
    seed=st.integers(0, 9),
)
def test_steps_by_tokens_are_full_and_show_each_row_of_a_task_before_any_again(
    rows: list[tuple[str, int]], tokens: int, parts: int, count: int, seed: int
) -> None:
    tasks, lengths = zip(*rows, strict=True)
    weights = dict.fromkeys(TASKS, 1.0)
    limits = {"tokens": tokens, "least": parts, "rows": count, "seed": seed}
    steps = list(order_rows_by_tokens(tasks, lengths, weights, **limits))
    assert steps == list(order_rows_by_tokens(tasks, lengths, weights, **limits))
    shown = [row for step in steps for row in step]
    assert count <= len(shown) <= count + parts - 1
    seen = Counter(shown)
    for task in set(tasks):
        times = [seen[i] for i, own in enumerate(tasks) if own == task]
        assert max(times) - min(times) <= 1
    for step in steps:
        cut = cut_step(step, parts)
        assert [row for part in cut for row in part] == step
        assert max(map(len, cut)) - min(map(len, cut)) <= 1 and min(map(len, cut)) > 0
        assert max(lengths[row] for row in step) * len(step) <= tokens


def test_steps_by_tokens_hold_rows_of_like_length_and_without_a_count_never_end() -> None:
    random = Random(0)
    lengths = [random.randint(5, 200) for _ in range(600)]
    endless = order_rows_by_tokens(["route"] * 600, lengths, {"route": 1.0}, tokens=2000, least=1, rows=None, seed=1)
    steps = list(islice(endless, 200))
    padded = [max(lengths[row] for row in step) * len(step) for step in steps]
    read = sum(lengths[row] for step in steps for row in step)
    assert read / sum(padded) > 0.95 and sum(padded) / (200 * 2000) > 0.93


def test_sets_share_a_task_by_how_often_they_are_named(base: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base)
    folders = [write_set(tmp_path / f"{size}", train=size, dev=1) for size in (4, 9)]
    tables = [load_token_table(folder, "train", TASKS, tokenizer, tmp_path / folder.name / "t") for folder in folders]
    joined = join_tables(tables)
    assert joined.rows[len(tables[0])] == tables[1].rows[0] and joined.sets == [0] * 4 * len(TASKS) + [1] * 9 * len(
        TASKS
    )
    shares = share_tasks(joined, {"route": 3.0, "end": 1.0}, (2, 1))
    assert shares == {("route", 0): 2.0, ("route", 1): 1.0, ("end", 0): 2 / 3, ("end", 1): 1 / 3}
    only = joined.select([i for i, task in enumerate(joined.tasks) if task == "route" or joined.sets[i]])
    assert share_tasks(only, {"end": 1.0}, (2, 1)) == {("end", 1): 1.0}
    kinds = list(zip(joined.tasks, joined.sets, strict=True))
    drawn = Counter(kinds[i] for i in islice(draw_indices(kinds, shares, Random(0)), 4000))
    assert {kind: round(count / 1000) for kind, count in drawn.items()} == {
        ("route", 0): 2,
        ("route", 1): 1,
        ("end", 0): 1,
        ("end", 1): 0,
    }


def test_a_batch_holds_rows_of_like_length_and_tasks_come_by_their_weights() -> None:
    random = Random(0)
    tasks = ["route"] * 300 + ["end"] * 300
    lengths = [random.randint(5, 200) for _ in tasks]
    made = order_rows(tasks, lengths, {"route": 3.0, "end": 1.0}, batch_size=16, steps=100, seed=1)
    order = [row for step in made for row in step]
    shown = [lengths[i] for i in order]
    padded = sum(max(shown[i : i + 16]) * 16 for i in range(0, len(shown), 16))
    assert sum(shown) / padded > 0.9
    share = sum(tasks[i] == "route" for i in order) / len(order)
    assert 0.70 < share < 0.80


def test_only_the_completion_and_its_end_token_count_for_the_loss(base: Path, set_folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base)
    rows = read_split(set_folder, "dev")
    for row, tokens in zip(rows, tokenise(rows, tokenizer), strict=True):
        learnt = [i for i in tokens.labels if i != IGNORED]
        assert tokenizer.decode(learnt) == row.completion + tokenizer.eos_token
        assert tokenizer.decode(tokens.input_ids) == row.prompt + row.completion + tokenizer.eos_token


def test_a_completion_that_joins_the_prompt_is_refused(base: Path) -> None:
    joined = toy_row(id="row-1", task="refine", prompt="Question: Who is the may", completion="or of Port Velm?")
    with pytest.raises(ArtifactError, match=r"row row-1 .* across their boundary"):
        tokenise([joined], AutoTokenizer.from_pretrained(base))


def test_rows_that_are_too_long_are_counted_by_task_and_refused_above_the_limit() -> None:
    tasks, lengths = ["end"] * 100 + ["route"] * 900, [50] + [5] * 999
    assert select_fitting(tasks, lengths, 10) == ([*range(1, 1000)], {"end": 1})
    with pytest.raises(DataError, match="2 of 100 end rows are longer than 10 tokens") as caught:
        select_fitting(tasks, [50, 50, *lengths[2:]], 10)  # 0.2 % of all rows, but 2 % of a task's
    assert "50 tokens" in str(caught.value)


def test_the_file_of_a_split_holds_the_tokens_of_its_rows_and_is_written_once(
    base: Path, set_folder: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base)
    wanted = {"route", "translate_bnf"}
    expected = tokenise(read_split(set_folder, "train", wanted), tokenizer)
    table = load_token_table(set_folder, "train", wanted, tokenizer, tmp_path / "tokens")
    assert len(table) == len(expected) > 0
    assert [(row["input_ids"], row["labels"]) for row in table.rows] == [(r.input_ids, r.labels) for r in expected]
    assert (table.tasks, table.lengths) == ([r.task for r in expected], [len(r.input_ids) for r in expected])
    assert table.largest_id == max(max(row.input_ids) for row in expected)
    written = (tmp_path / "tokens").stat().st_mtime_ns
    again = load_token_table(tmp_path / "no set is read any more", "train", wanted, tokenizer, tmp_path / "tokens")
    assert again.select([1]).rows[0]["input_ids"] == expected[1].input_ids
    assert (tmp_path / "tokens").stat().st_mtime_ns == written
    assert list(tmp_path.iterdir()) == [tmp_path / "tokens"]


def test_nothing_half_written_is_left_where_a_row_cannot_be_tokenised(base: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such split"):
        load_token_table(tmp_path, "train", TASKS, AutoTokenizer.from_pretrained(base), tmp_path / "work" / "tokens")
    assert list((tmp_path / "work").iterdir()) == []


def test_a_tokenizer_that_cannot_tell_labels_apart_is_refused(tmp_path: Path, base: Path) -> None:
    check_labels(AutoTokenizer.from_pretrained(base))
    coarse = AutoTokenizer.from_pretrained(write_base(tmp_path / "coarse", words=("yes",)))
    coarse = coarse.train_new_from_iterator(["a"], vocab_size=258)  # bytes alone: both begin with the space
    with pytest.raises(ArtifactError, match="the same first token"):
        check_labels(coarse)
