"""The embedded base, and what it is made of: rows, batches, optimizer."""

from __future__ import annotations

from itertools import islice
from random import Random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from revelator.artifact import EMBEDDED_BASE
from revelator.prefix_lm.model import load_minilm_tokenizer
from revelator.tasks import TASKS, RelevanceInput
from tests.training.toy import toy_row, toy_rows
from training.mixture import batch_rows, shorten_document, weigh_rows
from training.pretrain import Muon, orthogonalise


def test_a_row_over_the_length_is_left_out() -> None:
    row = toy_row(task="refine", prompt="who " * 100, completion=" y")
    assert weigh_rows([row], load_minilm_tokenizer(), 64) == []
    assert len(weigh_rows([row], load_minilm_tokenizer(), 448)) == 1


def test_a_round_of_batches_holds_no_row_twice_and_fits_its_widths() -> None:
    rows = weigh_rows(toy_rows("train", 40), load_minilm_tokenizer(), 256)
    widths = (64, 128, 256)
    first = [row for batch in islice(batch_rows(rows, widths, 512, Random(0)), 15) for row in batch]
    assert len({id(row) for row in first}) == len(first)
    assert all(len(row.tokens) <= widths[-1] for row in first)


def test_a_shortened_document_leaves_question_and_frame_as_they_were() -> None:
    prompt = TASKS["relevance"].render(RelevanceInput("Who made it?", "A (film)", "word " * 200))
    short = shorten_document(toy_row(task="relevance", prompt=prompt, completion=" yes", label="yes"), Random(2)).prompt
    assert len(short) < len(prompt)
    assert short.splitlines()[:2] == prompt.splitlines()[:2]
    assert short.splitlines()[-1] == prompt.splitlines()[-1]


@given(rows=st.integers(2, 40), columns=st.integers(2, 40), seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_the_update_of_muon_is_nearly_orthogonal(rows: int, columns: int, seed: int) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    kept = torch.linalg.svdvals(matrix) > 0.02 * matrix.norm()  # five steps lift no smaller ones
    values = torch.linalg.svdvals(orthogonalise(matrix))[: int(kept.sum())]
    assert values.max() < 1.3
    assert values.min() > 0.3


def test_muon_goes_down_a_quadratic() -> None:
    weight = torch.nn.Parameter(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))
    goal = torch.zeros(8, 4)
    optimizer = Muon([weight], lr=0.05)
    before = (weight - goal).square().sum().item()
    for _ in range(100):
        optimizer.zero_grad()
        (weight - goal).square().sum().backward()
        optimizer.step()
    assert (weight - goal).square().sum().item() < before / 4


def test_the_embedded_base_is_small_and_in_bf16_safetensors() -> None:
    assert sum(path.stat().st_size for path in EMBEDDED_BASE.iterdir()) < 25_000_000
    with safe_open(EMBEDDED_BASE / "model.safetensors", "pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert not list(EMBEDDED_BASE.glob("*.bin"))
