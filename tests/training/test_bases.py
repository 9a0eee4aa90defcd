"""Today's small bases: a configuration for each architecture trains two steps on a random model of its architecture."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma3TextConfig,
    Lfm2Config,
    LlamaConfig,
    PreTrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from revelator.artifact import verify_adapter
from tests.training.test_config import HUB_BASES
from training import sft
from training.config import FineTuneConfig, load_config

ATTENTION = {f"{name}_proj" for name in ("q", "k", "v", "o")}
LAYERS = ATTENTION | {f"{name}_proj" for name in ("gate", "up", "down")}
ARCHITECTURES: dict[str, tuple[type[PreTrainedConfig], dict[str, object], set[str]]] = {
    "Qwen/Qwen2.5": (Qwen2Config, {}, LAYERS),
    "Qwen/Qwen3": (Qwen3Config, {"head_dim": 8}, LAYERS),
    "meta-llama/Llama-3.2": (LlamaConfig, {}, LAYERS),
    "HuggingFaceTB/SmolLM2": (LlamaConfig, {}, LAYERS),
    "HuggingFaceTB/SmolLM3": (SmolLM3Config, {"no_rope_layers": [1, 0]}, LAYERS),
    "google/gemma-3": (
        Gemma3TextConfig,
        {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
        LAYERS,
    ),
    "LiquidAI/LFM2": (
        Lfm2Config,
        {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
        {"in_proj", "k_proj", "out_proj", "q_proj", "v_proj", "w1", "w2", "w3"},
    ),
}


def find_architecture(name: str) -> str:
    return next(prefix for prefix in ARCHITECTURES if name.startswith(prefix))


def make_random_base(name: str, like: Path, folder: Path) -> tuple[Path, set[str]]:
    """A random model of two layers of the architecture of the Hub's `name`, and the linear layers that it has."""
    kind, own, layers = ARCHITECTURES[find_architecture(name)]
    tokenizer = AutoTokenizer.from_pretrained(like)
    torch.manual_seed(0)
    settings = kind(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **own,
    )
    AutoModelForCausalLM.from_config(settings).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, layers


@pytest.fixture(scope="module")
def home(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_store, home)
    return home


ONE_OF_EACH = {find_architecture(str(load_config(path).base)): path for path in HUB_BASES}


@pytest.mark.parametrize("path", ONE_OF_EACH.values(), ids=lambda path: path.stem)
def test_a_base_of_today_loads_and_takes_two_steps(
    path: Path, base: Path, set_folder: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REVELATOR_HOME", str(home))
    plain = load_config(path)
    assert isinstance(plain, FineTuneConfig)
    random_base, layers = make_random_base(plain.base, base, tmp_path / "base")
    small = {"steps": 2, "save_every": 2, "log_every": 1, "threads": 1, "evaluation": {"every": 2, "rows_per_task": 1}}
    small |= {"precision": "auto"}  # not every CPU has units for bf16
    config = load_config(path, base=str(random_base), sets=(set_folder,), out=tmp_path / "adapter", **small)
    assert isinstance(config, FineTuneConfig) and sft.train(config, resume=False)
    adapter = tmp_path / "adapter"
    verify_adapter(adapter, random_base)
    modules = json.loads((adapter / "adapter_config.json").read_text())["target_modules"]
    assert {name.rpartition(".")[2] for name in modules} == layers
    with safe_open(adapter / "adapter_model.safetensors", "pt") as weights:
        learnt = [weights.get_tensor(name).abs().max() for name in weights.keys() if "lora_B" in name]  # noqa: SIM118
    assert learnt and min(learnt) > 0
