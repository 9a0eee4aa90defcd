"""A small causal language model that plans, for what a prefix language model cannot show: vLLM, grammars over
byte-level tokens, prompts that share their beginning. `tests/tiny/README.md` says what it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TINY = Path(__file__).with_name("tiny")
END, PAD = "<|end|>", "<|pad|>"


def train_tokenizer(texts: Iterable[str], *, words: Iterable[str], size: int = 4096) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE tokenizer of `size` tokens. `words` (labels) are one token behind a space, as in " yes".

    Digits stand alone, so that years and counts are copied digit by digit; every byte has a token, so that no name in
    any script is unknown. There is no beginning token: a prompt tokenises the same alone and before its completion.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[PAD, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # A label that the merges split would lose its single token: its word is shown often enough to be merged whole.
    labels = [f": {word}" for word in words] * 20_000
    tokenizer.train_from_iterator([*texts, *labels], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, padding_side="left")
