"""ONNX Runtime writes and judges as transformers does: the same texts, the same probabilities."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, LlamaConfig, PretrainedConfig, Qwen2Config

from revelator.plans.decoding import make_plan_grammar
from revelator.tasks import TASKS, QuestionInput, RelevanceInput
from serving.models import onnx_model
from serving.models.engine import Engine, GeneratedText
from serving.models.onnx_model import OnnxModel
from serving.models.transformers_model import TransformersModel
from tests.causal import TINY
from tests.serving.toy_model import write_base

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
SCALED = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ARCHITECTURES = [
    LlamaConfig(**SIZES, tie_word_embeddings=True),
    LlamaConfig(**SIZES, tie_word_embeddings=False, attention_bias=False, rope_parameters=SCALED, head_dim=16),
    Qwen2Config(**SIZES, tie_word_embeddings=True),
]
QUESTIONS = ["Who wrote Tin Comet?", "Is it?", "When was the founder of the company that made Tin Comet born? " * 3]
DOCUMENTS = ["", "a film", "a film of 1987 by Ada Quill " * 10, *(f"document {n}" for n in range(6))]


def write(folder: Path, config: PretrainedConfig) -> Path:
    """The toy base's tokenizer beside random weights of another architecture, large ones: its choices are plain."""
    from transformers import AutoModelForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(write_base(folder))
    config.vocab_size, config.eos_token_id = len(tokenizer) + 8, tokenizer.eos_token_id
    config.bos_token_id, config.pad_token_id = None, tokenizer.pad_token_id
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(0.0, 0.3)
    model.save_pretrained(folder)
    return folder


def both(base: Path | str) -> tuple[Engine, Engine]:
    ours, theirs = (Engine(base, threads=1, runtime=runtime) for runtime in ("auto", "transformers"))
    assert isinstance(ours.model, OnnxModel) and isinstance(theirs.model, TransformersModel)
    return ours, theirs


@pytest.mark.parametrize("config", ARCHITECTURES, ids=["llama", "llama-scaled", "qwen2"])
def test_an_architecture_writes_and_judges_as_it_does_on_transformers(
    config: PretrainedConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of different lengths together, some longer than a chunk; with a grammar and without."""
    monkeypatch.setattr(onnx_model, "CHUNK", 16)
    ours, theirs = both(write(tmp_path, config))
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in QUESTIONS]
    for grammars in (None, [make_plan_grammar()] * len(prompts)):
        assert ours.generate(prompts, 0.0, 24, grammars) == theirs.generate(prompts, 0.0, 24, grammars)
    judged = [TASKS["relevance"].render(RelevanceInput(QUESTIONS[0], "Tin Comet", text)) for text in DOCUMENTS]
    for left, right in zip(*(e.judge_labels(judged + prompts, ("yes", "no")) for e in (ours, theirs)), strict=True):
        assert left == pytest.approx(right, abs=1e-5)


def assert_found_alike(ours: Engine, theirs: Engine, *asked: Any) -> list[list[GeneratedText]]:
    """The same texts, with the same probabilities."""
    found, expected = ours.search_beams(*asked), theirs.search_beams(*asked)
    texts, others = ([text._replace(probability=None) for own in each for text in own] for each in (found, expected))
    assert texts == others
    likely, also = ([text.probability for own in each for text in own] for each in (found, expected))
    assert likely == pytest.approx(also, abs=1e-4)
    return found


@pytest.mark.parametrize("config", ARCHITECTURES, ids=["llama", "llama-scaled", "qwen2"])
def test_an_architecture_searches_as_it_does_on_transformers(config: PretrainedConfig, tmp_path: Path) -> None:
    """Random weights never end a text by themselves: what their greedy one has in fourth place ends it here."""
    ours, theirs = both(write(tmp_path, config))
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in QUESTIONS]
    greedy = ours.tokenizer(ours.generate(prompts[:1], 0.0, 24)[0].text, add_special_tokens=False)["input_ids"]
    for engine in (ours, theirs):
        engine.tokenizer.eos_token = engine.tokenizer.convert_ids_to_tokens(greedy[3])
    for width in (2, 3):
        found = assert_found_alike(ours, theirs, prompts, width, 24)
        assert len(found[0]) == width


def test_what_a_base_has_for_chats_changes_no_plan(tmp_path: Path) -> None:
    """Penalties of a base's own generation_config.json would keep names of the question from being copied."""
    base = write(tmp_path, ARCHITECTURES[0])
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in QUESTIONS]
    before = both(base)[1].generate(prompts, 0.0, 24)
    chat = {"repetition_penalty": 1.9, "no_repeat_ngram_size": 2, "suppress_tokens": list(range(100)), "num_beams": 2}
    (base / "generation_config.json").write_text(json.dumps(chat))
    ours, theirs = both(base)
    assert ours.generate(prompts, 0.0, 24) == theirs.generate(prompts, 0.0, 24) == before


def test_the_embedded_base_plans_as_it_does_on_transformers() -> None:
    ours, theirs = both(str(TINY))
    prompts = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in QUESTIONS]
    grammars = [make_plan_grammar()] * len(prompts)
    assert ours.generate(prompts, 0.0, 40, grammars) == theirs.generate(prompts, 0.0, 40, grammars)
    assert len(assert_found_alike(ours, theirs, prompts, 4, 40)[0]) == 4
    routed = [e.judge_labels(prompts, TASKS["route"].labels) for e in (ours, theirs)]
    for left, right in zip(*routed, strict=True):
        assert left == pytest.approx(right, abs=1e-5)


def test_another_architecture_runs_on_transformers(tmp_path: Path) -> None:
    base = write(tmp_path, GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=256))
    assert isinstance(Engine(base, threads=1).model, TransformersModel)
