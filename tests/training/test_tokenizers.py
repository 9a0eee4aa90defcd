"""Training and serving see the same tokens: prompts, where a completion begins, and labels.

The files of Qwen2.5's and Llama 3's tokenizers are taken from the hub's cache; where they are absent, tokenizers of the
same build, learnt from the toy rows, stand in for the rules by which those split text.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)
from transformers.convert_slow_tokenizer import TikTokenConverter

from revelator.tasks import TASKS
from serving.models.engine import Engine
from tests.causal import TINY
from tests.training.toy import toy_rows
from training.tokens import IGNORED, check_labels, find_first_token, tokenise

PUBLISHED = ("Qwen/Qwen2.5-0.5B", "meta-llama/Llama-3.2-1B")


def own() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(TINY)


def published(name: str) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(name, local_files_only=True)
    except OSError:
        pytest.skip(f"the tokenizer files of {name} are not in the hub's cache on this machine")


def like_qwen() -> PreTrainedTokenizerBase:
    return Qwen2Tokenizer().train_new_from_iterator(texts(), vocab_size=1200)


def like_llama() -> PreTrainedTokenizerBase:
    """Byte-level BPE over the pattern that Llama 3 splits text by, a beginning token before each text."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(TikTokenConverter().pattern), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    begin, end = "<|begin_of_text|>", "<|end_of_text|>"
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=[begin, end], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=begin, eos_token=end)


def texts() -> list[str]:
    labels = [f": {label}" for task in TASKS.values() for label in task.labels or ()]
    return [row.prompt + row.completion for row in toy_rows("train", 30)] + labels * 200


@pytest.mark.parametrize(
    "make",
    [own, like_qwen, like_llama, *(lambda name=name: published(name) for name in PUBLISHED)],
    ids=["own", "like Qwen2.5", "like Llama 3", *PUBLISHED],
)
def test_prompts_boundary_and_labels_tokenise_alike_in_training_and_serving(
    make: Callable[[], PreTrainedTokenizerBase], tmp_path: Path
) -> None:
    tokenizer = make()
    size = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    LlamaForCausalLM(size).to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    engine = Engine(tmp_path, threads=1)

    check_labels(tokenizer)
    rows = toy_rows("dev", 8)
    for row, tokens in zip(rows, tokenise(rows, tokenizer), strict=True):
        prompt = engine._tokenize([row.prompt], reserve=None)[0]
        assert tokens.input_ids[: len(prompt)] == prompt
        assert tokens.labels[: len(prompt)] == [IGNORED] * len(prompt)
        assert tokens.labels[len(prompt) :] == tokens.input_ids[len(prompt) :]
        if row.label:
            assert (
                tokens.labels[len(prompt)]
                == engine._find_first_token(row.label)
                == find_first_token(tokenizer, row.label)
            )
        assert engine.tokenizer.decode(tokens.input_ids[len(prompt) :]) == row.completion + tokenizer.eos_token
    assert {task.name for task in TASKS.values() if task.labels} <= {row.task for row in rows if row.label}
