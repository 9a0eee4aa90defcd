"""The embedded base, and what it is made of: tokenizer, rows, batches, optimizer."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import PreTrainedTokenizerFast

from revelator.errors import ConfigError
from revelator.files import sha256_file
from revelator.tasks import TASKS, RelevanceInput
from tests.training.toy import toy_row, toy_rows
from training import pretrain
from training.checkpoints import find_checkpoint
from training.config import PretrainConfig
from training.mixture import batch_rows, shorten, train_tokenizer, weigh_rows
from training.pretrain import Muon, orthogonalise

BASE = Path(__file__).resolve().parents[2] / "training" / "bases" / "tiny"
LABELS = sorted({label for task in TASKS.values() for label in task.labels or ()})
TITLES = ["The Tin Drum", "C++ Nights", "Ødegård 1997", "Salt & Straw", "O'Hara", "Łódź (film)", "12 Monkeys"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(
        [f"Who directed {title}? When was it made?" for title in TITLES] * 50, words=LABELS, size=600
    )


@pytest.fixture(scope="module")
def embedded() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(BASE)


@given(text=st.text(max_size=80))
def test_every_text_survives_the_tokenizer(embedded: PreTrainedTokenizerFast, text: str) -> None:
    plain = "".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF)
    ids = embedded(plain, add_special_tokens=False)["input_ids"]
    assert embedded.decode(ids, clean_up_tokenization_spaces=False) == plain


def test_a_label_is_one_token_behind_a_space(
    tokenizer: PreTrainedTokenizerFast, embedded: PreTrainedTokenizerFast
) -> None:
    for own in (tokenizer, embedded):
        assert [len(own(f" {label}", add_special_tokens=False)["input_ids"]) for label in LABELS] == [1] * len(LABELS)


def test_a_completion_counts_fully_and_its_prompt_a_little(tokenizer: PreTrainedTokenizerFast) -> None:
    plan = toy_row(
        task="translate_bnf", prompt="Question: Who directed O'Hara?\nPlan:", completion=" Who directed O'Hara?"
    )
    (row,) = weigh_rows([plan], tokenizer, 200)
    prompt = len(tokenizer(plan.prompt, add_special_tokens=False)["input_ids"])
    assert row.tokens[-1] == tokenizer.eos_token_id
    assert set(row.weights[:prompt]) == {row.weights[0]}
    assert 0 < row.weights[0] < 1 == row.weights[prompt:].min()


def test_a_row_over_the_length_is_left_out(tokenizer: PreTrainedTokenizerFast) -> None:
    assert weigh_rows([toy_row(task="refine", prompt="x" * 500, completion=" y")], tokenizer, 64) == []


def test_a_round_of_batches_holds_no_row_twice_and_fits_its_widths(tokenizer: PreTrainedTokenizerFast) -> None:
    rows = weigh_rows(toy_rows("train", 40), tokenizer, 256)
    widths = (64, 128, 256)
    first = [row for batch in islice(batch_rows(rows, widths, 512, Random(0)), 15) for row in batch]
    assert len({id(row) for row in first}) == len(first)
    assert all(len(row.tokens) <= widths[-1] for row in first)


def test_a_shortened_document_leaves_question_and_frame_as_they_were() -> None:
    prompt = TASKS["relevance"].render(RelevanceInput("Who made it?", "A (film)", "word " * 200))
    short = shorten(toy_row(task="relevance", prompt=prompt, completion=" yes", label="yes"), Random(2)).prompt
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
    files = [path for path in BASE.iterdir() if path.suffix not in {".md"}]
    adapter = 6 * 16 * (4 * (256 + 256) + 3 * (256 + 704)) * 4  # rank 16 at every projection, in fp32
    assert sum(path.stat().st_size for path in files) + adapter < 20_000_000
    with safe_open(BASE / "model.safetensors", "pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert not list(BASE.glob("*.bin"))


def test_a_pre_training_that_is_resumed_ends_in_the_base_of_one_that_was_not(
    set_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)  # compiling takes longer than these steps
    monkeypatch.setattr(pretrain, "score_tasks", lambda *_, **__: {"route": 0.0})
    common = {"stage": "pretrain", "sets": (set_folder,), "steps": 4, "rows": 300}
    common |= {"batch_tokens": 448, "threads": 1}
    config = PretrainConfig(**common, out=tmp_path / "straight")
    straight = pretrain.train(config, resume=False)
    assert (straight["steps"], straight["exact"]) == (4, {"route": 0.0})
    assert json.loads((tmp_path / "straight" / "training.json").read_text())["tokens"] == straight["tokens"]

    broken = PretrainConfig(**common, out=tmp_path / "resumed", save_minutes=1e-9)  # a checkpoint after each step
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_base", stop_at_step_2)
        with pytest.raises(KeyboardInterrupt):
            pretrain.train(broken, resume=False)
    assert find_checkpoint(broken.work) == broken.work / "checkpoint-2"
    with pytest.raises(ConfigError, match="rows: 300, now 301"):
        pretrain.train(broken.model_copy(update={"rows": 301}), resume=True)
    assert pretrain.train(broken, resume=True) == straight | {"base": str(tmp_path / "resumed")}
    digests = {sha256_file(tmp_path / name / "model.safetensors") for name in ("straight", "resumed")}
    assert len(digests) == 1
    assert {path.name for path in broken.work.glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-4"}


def stop_at_step_2(model: object, tokenizer: object, out: Path, card: dict) -> None:
    if card["steps"] == 2:
        raise KeyboardInterrupt
