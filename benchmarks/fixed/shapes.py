"""Shapes of published models, as arguments of a configuration: random weights cost what trained ones do."""

from __future__ import annotations

from typing import Any

QWEN2_5_0_5B: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
}
LLAMA_3_2_3B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 28,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128_256,
    "tie_word_embeddings": True,
}
