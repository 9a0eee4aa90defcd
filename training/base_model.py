"""Loads a base for training, after checking that it can be trained on the rows."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import revelator.prefix_lm.model  # noqa: F401  (the Auto classes know its class from here on)
from revelator.errors import ArtifactError, ConfigError
from training.config import AdapterConfig
from training.tokens import check_labels

LOADING = (OSError, ValueError, KeyError, RuntimeError, SafetensorError)  # what transformers raises for a wrong folder


def choose_precision(config: AdapterConfig) -> torch.dtype:
    """Raises ConfigError for bf16 on a device without units for it, where it is slower than fp32."""
    has_units = has_bf16_units()
    if config.precision == "bf16" and not has_units:
        hint = "`precision: auto` takes what the device can, and `revelator doctor` says what it has"
        raise ConfigError("precision = bf16: this device has no units for bf16", where=config.stage, hint=hint)
    if config.precision == "auto":
        return torch.bfloat16 if torch.cuda.is_available() and has_units else torch.float32
    return torch.bfloat16 if config.precision == "bf16" else torch.float32


def has_bf16_units() -> bool:
    """Has the GPU, or else the CPU, units for products in bf16?"""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    found = torch.cpu.get_capabilities()
    return any(found.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))  # the last one of ARM


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Loads the tokenizer. Raises ArtifactError if there is none, or if it cannot tell labels apart."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except LOADING as error:
        raise _make_base_error(folder, "the base's tokenizer cannot be loaded", error) from error
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    check_labels(tokenizer)
    return tokenizer


def check_base(folder: Path, tokenizer: PreTrainedTokenizerBase, *, longest: int, largest_id: int) -> None:
    """Raises ArtifactError unless the base is a causal language model with room for `longest` tokens, none above
    `largest_id`."""
    try:
        settings = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except LOADING as error:
        raise _make_base_error(folder, "the base's configuration cannot be read", error) from error
    architecture = next(iter(settings.architectures or ()), "")
    if settings.is_encoder_decoder or architecture.endswith("ForMaskedLM"):
        raise _make_base_error(folder, f"{architecture or settings.model_type} is no causal language model")
    refuse_quantized(settings, folder)
    text = settings.get_text_config()
    largest_id = max(tokenizer.pad_token_id, largest_id)
    if largest_id >= text.vocab_size:
        raise _make_base_error(
            folder, f"its tokenizer gives token {largest_id}, but its embeddings end at {text.vocab_size - 1}"
        )
    positions = getattr(text, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        raise _make_base_error(folder, f"the base reads {positions} tokens at most, but rows have up to {longest}")


def refuse_quantized(settings: PreTrainedConfig, folder: Path) -> None:
    """Raises ArtifactError for quantised weights: an adapter merged into them would be rounded to their steps."""
    if method := getattr(settings, "quantization_config", None):
        kind = method.get("quant_method", "unknown") if isinstance(method, dict) else method.quant_method
        raise ArtifactError(
            f"the base's weights are stored quantised ({kind}), and an adapter is merged into bf16 weights alone",
            where=str(folder),
            hint="name the bf16 base that they were made from; to train on 4 bits of it: quantization: nf4",
        )


def load_base(config: AdapterConfig, folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    quantization = None
    if config.quantization == "nf4":
        quantization = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype, bnb_4bit_use_double_quant=True
        )
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, quantization_config=quantization, use_safetensors=True, trust_remote_code=False
        )
    except LOADING as error:
        raise _make_base_error(folder, "the base cannot be loaded", error) from error


def _make_base_error(folder: Path, message: str, error: Exception | None = None) -> ArtifactError:
    reason = f": {str(error).strip().splitlines()[0]}" if error else ""
    return ArtifactError(f"{message}{reason}", where=str(folder), hint="choose another --base")
