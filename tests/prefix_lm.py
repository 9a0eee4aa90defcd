"""A prefix language model that any test can afford: MiniLM's tokenizer over a random model of two layers."""

from __future__ import annotations

from pathlib import Path

import torch

from revelator.prefix_lm.model import PrefixLMConfig, PrefixLMForCausalLM, load_minilm_tokenizer


def make_model() -> PrefixLMForCausalLM:
    """Large random weights: its choices are plain, and every token and position matters."""
    tokenizer = load_minilm_tokenizer()
    torch.manual_seed(3)
    config = PrefixLMConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        boundary_token_id=tokenizer.sep_token_id,
    )
    model = PrefixLMForCausalLM(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0.0, 0.3)
    return model.eval()


def write_prefix_base(folder: Path) -> Path:
    make_model().save_pretrained(folder)
    load_minilm_tokenizer().save_pretrained(folder)
    return folder
