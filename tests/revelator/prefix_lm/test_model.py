"""The prefix language model: what sees what, padding, cache, writing, saving, and what libraries make of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from revelator.errors import ArtifactError
from revelator.minilm import WEIGHTS, fetch_minilm
from revelator.prefix_lm.model import PrefixLMForCausalLM, load_minilm_tokenizer, start_from_minilm
from tests.prefix_lm import make_model

CLS, SEP = 101, 102
LONGEST = 24
TOKENS = st.lists(st.integers(1000, 30521), min_size=1, max_size=LONGEST)
LAW = settings(max_examples=25, deadline=None)


@pytest.fixture(scope="module")
def model() -> PrefixLMForCausalLM:
    return make_model()


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return load_minilm_tokenizer()


@torch.no_grad()
def logits_of(model: PrefixLMForCausalLM, row: list[int]) -> torch.Tensor:
    """(tokens, vocabulary)"""
    return model(input_ids=torch.tensor([row])).logits[0]


@given(prompt=TOKENS, written=TOKENS, later=TOKENS)
@LAW
def test_what_is_written_later_changes_no_logits(
    model: PrefixLMForCausalLM, prompt: list[int], written: list[int], later: list[int]
) -> None:
    before = [CLS, *prompt, SEP, *written]
    torch.testing.assert_close(
        logits_of(model, [*before, *later])[: len(before)], logits_of(model, before), rtol=0, atol=1e-5
    )


@given(prompt=st.lists(st.integers(1000, 30521), min_size=3, max_size=LONGEST), written=TOKENS)
@LAW
def test_the_end_of_a_prompt_is_seen_from_its_beginning(
    model: PrefixLMForCausalLM, prompt: list[int], written: list[int]
) -> None:
    """And a written token sees the whole prompt: both change with the prompt's last word."""
    row = [CLS, *prompt, SEP, *written]
    other = [CLS, *prompt[:-1], 1000 + (prompt[-1] - 999) % 20_000, SEP, *written]
    changed = (logits_of(model, row) - logits_of(model, other)).abs().amax(-1)
    assert changed.min() > 1e-4


@given(prompts=st.lists(TOKENS, min_size=2, max_size=4), written=TOKENS, side=st.sampled_from(["left", "right"]))
@LAW
def test_padding_changes_no_logits(
    model: PrefixLMForCausalLM, prompts: list[list[int]], written: list[int], side: str
) -> None:
    rows = [[CLS, *prompt, SEP, *written] for prompt in prompts]
    width = max(map(len, rows))
    padded, masks = [], []
    for row in rows:
        empty = [0] * (width - len(row))
        padded.append([*empty, *row] if side == "left" else [*row, *empty])
        masks.append([*empty, *[1] * len(row)] if side == "left" else [*[1] * len(row), *empty])
    with torch.no_grad():
        together = model(input_ids=torch.tensor(padded), attention_mask=torch.tensor(masks)).logits
    for row, mask, logits in zip(rows, masks, together, strict=True):
        torch.testing.assert_close(logits[torch.tensor(mask).bool()], logits_of(model, row), rtol=0, atol=1e-5)


@given(prompt=TOKENS, written=TOKENS)
@LAW
@torch.no_grad()
def test_a_cache_from_the_first_written_token_on_gives_the_logits_of_the_whole(
    model: PrefixLMForCausalLM, prompt: list[int], written: list[int]
) -> None:
    row = [CLS, *prompt, SEP]
    read = model(input_ids=torch.tensor([row]), use_cache=True)
    found, past = [read.logits[0]], read.past_key_values
    for token in written:
        read = model(input_ids=torch.tensor([[token]]), past_key_values=past, use_cache=True)
        found.append(read.logits[0])
    torch.testing.assert_close(torch.cat(found), logits_of(model, [*row, *written]), rtol=0, atol=1e-5)


def test_a_mask_that_is_not_of_this_model_is_refused(model: PrefixLMForCausalLM) -> None:
    with pytest.raises(ValueError, match="an attention mask of 1 rows and 2 tokens is needed"):
        model(input_ids=torch.tensor([[CLS, SEP]]), attention_mask=torch.zeros(1, 1, 2, 2))


@torch.no_grad()
def test_generation_writes_what_single_steps_would(
    model: PrefixLMForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    batch = tokenizer(["Who wrote it?", "When was Ödegård, the 3rd of them, born?"], padding=True, return_tensors="pt")
    for cached in (True, False):
        output = model.generate(**batch, max_new_tokens=8, do_sample=False, use_cache=cached)
        for ids, mask, written in zip(batch["input_ids"], batch["attention_mask"], output, strict=True):
            row = ids[mask.bool()].tolist()
            for token in written[len(ids) :].tolist():
                assert token == logits_of(model, row)[-1].argmax()
                row.append(token)


def test_a_text_that_spells_the_boundary_has_none(tokenizer: PreTrainedTokenizerFast) -> None:
    ids = tokenizer("Who wrote [SEP] and [CLS]?")["input_ids"]
    assert ids.count(SEP) == 1 and ids[-1] == SEP and ids.count(CLS) == 1


def test_a_saved_model_is_loaded_as_it_was_by_the_auto_classes(model: PrefixLMForCausalLM, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=True, trust_remote_code=False)
    assert isinstance(loaded, PrefixLMForCausalLM)
    torch.testing.assert_close(dict(loaded.state_dict()), dict(model.state_dict()), rtol=0, atol=0)
    row = [CLS, 2040, 2626, 2009, SEP, 2158]
    torch.testing.assert_close(logits_of(loaded.eval(), row), logits_of(model, row), rtol=0, atol=0)


def test_what_is_made_from_minilm_is_saved_without_the_embeddings_that_minilm_has(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = start_from_minilm(tokenizer)
    published = load_file(fetch_minilm() / WEIGHTS)
    torch.testing.assert_close(model.lm_head.weight.data, published["embeddings.word_embeddings.weight"])
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 24_000_000
    with safe_open(tmp_path / "model.safetensors", "pt") as weights:
        assert not [name for name in weights.keys() if "word_emb" in name or "position_emb" in name]  # noqa: SIM118
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.testing.assert_close(loaded.lm_head.weight.data, published["embeddings.word_embeddings.weight"])
    frozen = {name for name, value in loaded.named_parameters() if not value.requires_grad}
    assert {name.rpartition(".embeddings.")[2] for name in frozen} == {
        "word_embeddings.weight",
        "position_embeddings.weight",
    }
    ids = AutoTokenizer.from_pretrained(tmp_path)("Who [SEP] wrote it?")["input_ids"]
    assert ids == tokenizer("Who [SEP] wrote it?")["input_ids"] and ids.count(SEP) == 1
    with torch.no_grad():
        theirs = model.float().eval()(input_ids=torch.tensor([ids])).logits
    error = (logits_of(loaded, ids) - theirs[0]).abs().max()
    assert error < 0.05  # the model's own embeddings were rounded to bf16, MiniLM's are not


def test_a_model_made_from_another_minilm_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = start_from_minilm(tokenizer)
    model.config.embeddings_from = "0" * 64
    model.save_pretrained(tmp_path)
    with pytest.raises(ArtifactError, match="made from MiniLM of sha256 000000000000…"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_lora_trains_and_is_merged(model: PrefixLMForCausalLM, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "base")
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    tuned = get_peft_model(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), lora)
    ids = torch.tensor([[CLS, 2040, 2626, 2009, SEP, 2158, SEP]])
    labels = ids.masked_fill(torch.arange(7)[None] < 5, -100)
    optimizer = torch.optim.SGD([p for p in tuned.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(5):
        loss = tuned(input_ids=ids, labels=labels).loss
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0] - 0.1
    tuned.save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter"
    ).merge_and_unload()
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(input_ids=ids).logits, tuned.eval()(input_ids=ids).logits)
